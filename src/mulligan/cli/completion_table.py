"""The table of what commands take, for completion: `python -m mulligan.cli.completion_table` writes it anew.

One line for each argument and option, with tabs between: the command, the names of the option, what kind of value it
takes, 'many' if it may come again, and its help. The kind is what `mulligan.cli.completion` knows how to find (RUN,
STEP, …), words with `|` between them, PATH or TEXT; a flag has none.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from mulligan.cli import list_command
from mulligan.cli.commands import COMMANDS, load
from mulligan.cli.completion import TABLE
from mulligan.cli.parameters import Argument, Option, plain

# With the words that stand for several, where there are any.
_STATUSES = (*list_command.STATUSES, *getattr(list_command, "GROUPS", ()))
_SYSTEMS = "torc|prodigy|noetl|alphred|mulligan"
_BY_METAVAR = {
    "RUN": "RUN",
    "STEP": "STEP",
    "OUT": "PATH",
    "STATUS": "|".join(_STATUSES),
    "SYSTEM": _SYSTEMS,
    "WORD": f"mermaid|svg|png|{_SYSTEMS}",
}
_BY_NAME = {"--home": "HOME", "--reset": "BREAKER", "--workflow": "WORKFLOW", "--worker": "WORKER", "--as": "TEXT"}


def table() -> str:
    """The whole table."""
    return "".join("\t".join(row) + "\n" for name in COMMANDS for row in _rows(name))


def _rows(command: str) -> Iterator[Sequence[str]]:
    function = load(command)
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    marked = {one.name: (*get_args(hints.get(one.name)), None, None)[:2] for one in parameters}
    has_step = any(isinstance(it, Argument) and it.metavar == "STEP" for _, it in marked.values())
    for one in parameters:
        kind, marker = marked[one.name]
        is_many = get_origin(plain(kind)) is list
        if isinstance(marker, Argument):
            # One word alone names a step of the newest run, where the run has a default.
            is_either = marker.metavar == "RUN" and one.default == "latest" and has_step
            found = "RUN_OR_STEP" if is_either else _kind_of(command, marker.metavar, is_argument=True)
            yield command, "", found, "many" if is_many else "", marker.help
        elif isinstance(marker, Option):
            names = " ".join(name for given in marker.names for name in given.split("/"))
            found = "" if plain(kind) is bool else _option_kind(command, marker)
            yield command, names, found, "many" if is_many else "", marker.help


def _option_kind(command: str, option: Option) -> str:
    by_name = next((_BY_NAME[name] for name in option.names if name in _BY_NAME), "")
    # `--file` of 'classify' holds decisions.
    is_workflow = "--file" in option.names and command != "classify"
    return by_name or _kind_of(command, option.metavar or "", is_argument=is_workflow)


def _kind_of(command: str, metavar: str, *, is_argument: bool) -> Any:
    if metavar.rstrip(".…") == "FILE":
        return "WORKFLOW_FILE" if is_argument else "PATH"
    return metavar if "|" in metavar else _BY_METAVAR.get(metavar, "TEXT")


if __name__ == "__main__":
    Path(TABLE).write_text(table(), encoding="utf-8")
