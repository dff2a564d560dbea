"""Options and arguments that several commands share."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused
from mulligan.cli.words.commands import COMMANDS
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.core.model.workflow import NoticeRule
from mulligan.errors import MulliganError
from mulligan.formats import FORMATS
from mulligan.service.home_names import server_url
from mulligan.service.runs.stored.run_reader import LATEST as LATEST
from mulligan.service.service import Service, open_service, open_temporary_service

# Commands that do not read runs.
_WITHOUT_HOME = frozenset({"validate", "coverage", "graph", "convert", "schema", "demo", "login", "logout"})

RunName = Annotated[str, Argument("RUN", "The number of a run, or 'latest' (see `mulligan list`).")]
NewestRun = Annotated[str, Argument("RUN", "The number of a run (default: 'latest').")]
StepName = Annotated[str, Argument("STEP", "The name of a step.")]
HomeFolder = Annotated[str | None, Option("DIR", "The folder of the runs (default: $MULLIGAN_HOME or .mulligan).")]
LogFormat = Annotated[str, Option("FORM", "How messages are written on stderr: text, or json.")]
AsJson = Annotated[bool, Flag("Print JSON, and nothing else, on stdout.", "--json")]
By = Annotated[str, Option("NAME", "Your name, which is recorded (default: $MULLIGAN_BY or your user name).")]
Reason = Annotated[str, Option("TEXT", "The reason, which is recorded.")]
Budgets = Annotated[
    list[str] | None,
    Option("WHAT=N", "What agents may spend from now on: cost=5, tokens=200k, calls=20; for one step: STEP.cost=5."),
]
System = Annotated[
    str | None, Option("SYSTEM", f"The system of the file: {', '.join(FORMATS)} (default: detected).", "--format")
]
TrustTemplates = Annotated[bool, Flag("In a NoETL file, let any value become part of a command or a query.")]
Catalogue = Annotated[
    Path | None,
    Option("DIR", "The folder in which the playbooks that a NoETL file calls are looked up by their paths."),
]
Fake = Annotated[
    list[str] | None,
    Option("STEP=END", "Do not run this step: give its output as JSON, or a code such as EXIT_NONZERO:11."),
]
Fakes = Annotated[Path | None, Option("FILE", "A YAML file with the same for several steps.")]


def pairs(words: list[str] | None, noun: str, example: str) -> dict[str, str]:
    """Read words of the form `name=value` into a dictionary."""
    values: dict[str, str] = {}
    for word in words or ():
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageRefused(f"'{word}' is not a valid {noun}", hint=f"write it like {example}")
        if name in values:
            raise UsageRefused(f"{noun} '{name}' is given twice")
        values[name] = value
    return values


def read_notify(words: Sequence[str] | None) -> tuple[NoticeRule, ...]:
    """The rules of `--notify`."""
    if not words:
        return ()
    from mulligan.service.server.notices.notices import parse_notify

    return parse_notify(words)


def find_run_and_step(service: Service, run: str, step: str | None) -> tuple[int, str]:
    """The run and the step that two words name. A single word that is not a run names a step of the newest run."""
    if step is None and run != LATEST and not run.isdecimal():
        return service.runs.find(LATEST), run
    return service.runs.find(run), step or ""


@contextmanager
def service_at(home: str | None, by: str = "") -> Iterator[Service]:
    """Open the service of a home, acting in the name of `by`. If `--home` was given, hints of errors include it."""
    try:
        with open_service(home, by) as service:
            try:
                yield service
            except OSError:
                raise
            except Exception as error:
                damaged = service.runs.explain_damage(None, error)
                if damaged is None or damaged is error:
                    raise
                raise damaged from error
    except MulliganError as error:
        error.hint = with_home(error.hint, home)
        raise


@contextmanager
def service_kept_or_not(home: str | None) -> Iterator[Service]:
    """The service over the home that was asked for; otherwise over one that is removed in the end."""
    with service_at(home) if home is not None else open_temporary_service() as service:
        yield service


def is_on_server(home: str | None) -> bool:
    """Whether a server has the runs: --home URL, or $MULLIGAN_SERVER without --home."""
    return bool(server_url(home, os.environ))


def where(home: str | None) -> str:
    """The option that a suggested command needs to find the same runs; empty for the default home."""
    return f" --home {shlex.quote(home)}" if home else ""


def with_home(text: str, home: str | None) -> str:
    """Add `--home DIR` to each command that a text suggests, so that the command finds the same runs."""
    if not home:
        return text
    verbs = "|".join(sorted(COMMANDS.keys() - _WITHOUT_HOME))
    # The command ends where its sentence goes on.
    command = rf"\bmulligan (?:{verbs})\b(?:[^;,()`\n]*[^;,()`\s])?"
    return re.sub(command, lambda match: match[0] if "--home" in match[0] else match[0] + where(home), text)


def coverage_hint(file: str) -> str:
    """What somebody who brings a file of another system would want to see first."""
    return f"what happens to it when something fails: mulligan coverage {shlex.quote(file)}"


def check_log_format(form: str) -> str:
    """The form, if there is one of that name."""
    if form not in ("text", "json"):
        raise UsageRefused(f"--log-format: '{form}' is not a form of logs", hint="use text or json")
    return form
