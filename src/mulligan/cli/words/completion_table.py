"""Write the table of the parameters of all commands, for completion: `python -m mulligan.cli.words.completion_table`.

One line per argument and option, separated by tabs: the command, the names of the option, the kind of its value, 'many'
if it may be repeated, and its help. The kind is one that `mulligan.cli.words.completion` has suggestions for (RUN,
STEP, …), words separated by `|`, PATH or TEXT; a flag has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mulligan.cli.words.commands import COMMANDS, load
from mulligan.cli.words.completion import TABLE
from mulligan.cli.words.parameters import Argument, Parameter, parameters_of
from mulligan.formats import FORMATS, OURS
from mulligan.service.runs.views.run_list import STATUSES

_SYSTEMS = "|".join([*FORMATS, OURS])
_BY_METAVAR = {
    "RUN": "RUN",
    "STEP": "STEP",
    "OUT": "PATH",
    "STATUS": "|".join(STATUSES),
    "SYSTEM": _SYSTEMS,
    "WORD": f"mermaid|svg|png|{_SYSTEMS}",
}
_BY_NAME = {"--home": "HOME", "--reset": "BREAKER", "--workflow": "WORKFLOW", "--worker": "WORKER", "--as": "TEXT"}


def table() -> str:
    """The whole table."""
    return "".join("\t".join(row) + "\n" for name in COMMANDS for row in _rows(name))


def _rows(command: str) -> Iterator[Sequence[str]]:
    parameters = parameters_of(load(command))
    has_step = any(one.label == "STEP" for one in parameters)
    for one in parameters:
        declared = one.declared
        many = "many" if one.is_list else ""
        if isinstance(declared, Argument):
            # If the run has a default, a single word may name a step of the newest run.
            is_either = declared.metavar == "RUN" and one.default == "latest" and has_step
            kind = "RUN_OR_STEP" if is_either else _kind_of(declared.metavar, is_argument=True)
            yield command, "", kind, many, declared.help
        else:
            names = " ".join(name for name, _ in one.flags())
            kind = "" if one.kind is bool else _option_kind(command, one)
            yield command, names, kind, many, declared.help


def _option_kind(command: str, option: Parameter) -> str:
    by_name = next((_BY_NAME[name] for name in option.names if name in _BY_NAME), "")
    # The file of 'classify' contains decisions.
    is_workflow = "--file" in option.names and command != "classify"
    return by_name or _kind_of(option.declared.metavar, is_argument=is_workflow)


def _kind_of(metavar: str, *, is_argument: bool) -> str:
    if metavar.rstrip(".…") == "FILE":
        return "WORKFLOW_FILE" if is_argument else "PATH"
    return metavar if "|" in metavar else _BY_METAVAR.get(metavar, "TEXT")


if __name__ == "__main__":
    Path(TABLE).write_text(table(), encoding="utf-8")
