"""Options and arguments that many commands share: said once, so that they mean the same everywhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from mulligan.cli.parameters import Argument, Option
from mulligan.service.home import find_home
from mulligan.service.verbs import Service

RunId = Annotated[int, Argument(metavar="RUN", help="The number of a run: see `mulligan list`.")]
StepName = Annotated[str, Argument(metavar="STEP", help="The name of a step.")]
HomeFolder = Annotated[
    str | None, Option("--home", metavar="DIR", help="Where runs are kept: else $MULLIGAN_HOME, else .mulligan.")
]
AsJson = Annotated[bool, Option("--json", help="Print JSON on stdout, and nothing else there.")]
By = Annotated[
    str, Option("--by", metavar="NAME", help="Who says so: else $MULLIGAN_BY, else the user. It is recorded.")
]
Reason = Annotated[str, Option("--reason", metavar="TEXT", help="Why: it is recorded.")]
Inputs = Annotated[
    list[str] | None, Option("--input", "-i", metavar="KEY=VALUE", help="An input; may be given several times.")
]
System = Annotated[
    str | None,
    Option("--format", metavar="SYSTEM", help="Whose file it is: torc, prodigy, noetl, alphred. Else it is told."),
]
Follow = Annotated[
    bool | None, Option("--follow/--no-follow", help="Drive the run on, and show it; by default on a terminal.")
]


@contextmanager
def service_at(home: str | None, by: str = "") -> Iterator[Service]:
    """The verbs over a home, in somebody's name, closed in the end."""
    service = Service(find_home(home), by)
    try:
        yield service
    finally:
        service.close()


def where(home: str | None) -> str:
    """What a command that we propose needs beside its words, to find the same runs."""
    return f" --home {shlex.quote(home)}" if home else ""
