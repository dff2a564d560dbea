"""Options and arguments that many commands share: said once, so that they mean the same everywhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from mulligan.cli.commands import COMMANDS
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.terminal import UsageRefused
from mulligan.errors import MulliganError
from mulligan.service.home import find_home
from mulligan.service.run_reader import LATEST as LATEST
from mulligan.service.verbs import Service

# Commands that look at no run.
_WITHOUT_HOME = frozenset({"validate", "graph", "convert", "schema", "demo"})

RunName = Annotated[str, Argument(metavar="RUN", help="The number of a run, or 'latest': see `mulligan list`.")]
NewestRun = Annotated[str, Argument(metavar="RUN", help="The number of a run; by default the newest, 'latest'.")]
StepName = Annotated[str, Argument(metavar="STEP", help="The name of a step.")]
HomeFolder = Annotated[
    str | None, Option("--home", metavar="DIR", help="Where runs are kept: else $MULLIGAN_HOME, else .mulligan.")
]
AsJson = Annotated[bool, Option("--json", help="Print JSON on stdout, and nothing else there.")]
By = Annotated[
    str, Option("--by", metavar="NAME", help="Who says so: else $MULLIGAN_BY, else the user. It is recorded.")
]
Reason = Annotated[str, Option("--reason", metavar="TEXT", help="Why: it is recorded.")]
Budgets = Annotated[
    list[str] | None,
    Option(
        "--budget",
        metavar="WHAT=N",
        help="What agents may spend from now on: cost=5, tokens=200k, calls=20; of one step: STEP.cost=5.",
    ),
]
Inputs = Annotated[
    list[str] | None, Option("--input", "-i", metavar="KEY=VALUE", help="An input; may be given several times.")
]
System = Annotated[
    str | None,
    Option(
        "--format",
        metavar="SYSTEM",
        help="Whose file it is: torc, prodigy, noetl, alphred. By default it is recognised.",
    ),
]
TrustTemplates = Annotated[
    bool,
    Option("--trust-templates", help="Of a NoETL file: let any value become part of a command or a query."),
]
Fake = Annotated[
    list[str] | None,
    Option(
        "--fake",
        metavar="STEP=END",
        help="How a step ends without running: its output as JSON, or a code such as EXIT_NONZERO:11.",
    ),
]
Fakes = Annotated[Path | None, Option("--fakes", metavar="FILE", help="A YAML file that says it of several steps.")]
Follow = Annotated[
    bool | None, Option("--follow/--no-follow", help="Drive the run on, and show it; by default on a terminal.")
]


def pairs(words: list[str] | None, noun: str, example: str) -> dict[str, str]:
    """What is given as `name=value`, by name."""
    given: dict[str, str] = {}
    for word in words or ():
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageRefused(f"'{word}' is no {noun}", hint=f"write it like {example}")
        if name in given:
            raise UsageRefused(f"{noun} '{name}' is given twice")
        given[name] = value
    return given


def find_run_and_step(service: Service, run: str, step: str | None) -> tuple[int, str]:
    """The run and the step that two words name. One word that is no run names a step of the newest run."""
    if step is None and run != LATEST and not run.isdecimal():
        return service.find_run(LATEST), run
    return service.find_run(run), step or ""


@contextmanager
def service_at(home: str | None, by: str = "") -> Iterator[Service]:
    """The verbs over a home, in somebody's name, closed in the end. The hints of their refusals name that home, too."""
    found = find_home(home)
    service = Service(found, by)
    try:
        yield service
    except MulliganError as error:
        error.hint = with_home(error.hint, home)
        raise
    except OSError as error:
        if not found.holds(error.filename):
            raise
        raise found.trouble(error) from error
    finally:
        service.close()


def where(home: str | None) -> str:
    """What a command that we propose needs beside its words, to find the same runs."""
    return f" --home {shlex.quote(home)}" if home else ""


def with_home(text: str, home: str | None) -> str:
    """A text of ours with `--home DIR` in each command that it proposes, so that it finds the same runs as we did."""
    if not home:
        return text
    verbs = "|".join(sorted(COMMANDS.keys() - _WITHOUT_HOME))
    # Up to what follows the command in its sentence.
    command = rf"\bmulligan (?:{verbs})\b(?:[^;,()`\n]*[^;,()`\s])?"
    return re.sub(command, lambda found: found[0] if "--home" in found[0] else found[0] + where(home), text)
