"""What differs between a program and what is recorded of it, in words and without values."""

from __future__ import annotations

from typing import Any

from mulligan.flows.context import Site
from mulligan.programs.errors import Nondeterministic
from mulligan.programs.messages import RecordedCall


def difference_of_call(recorded: RecordedCall, kind: str, name: str, digest: str, site: Site) -> Nondeterministic:
    """The program calls something else than what is recorded at this place."""
    asked = {"name": name, "kind": kind, "file": site.file, "line": site.line}
    if (recorded.kind, recorded.name) == (kind, name):
        what = f"{_shown(recorded)} now gets other arguments"
    else:
        what = f"{_shown(recorded)} is recorded, and now '{name}' is called"
    return _difference(f"{what}, at {_at(site.file, site.line)}", recorded, asked)


def difference_of_missing(recorded: RecordedCall, site: Site | None, *, end: str = "") -> Nondeterministic:
    """The program does not make a call that is recorded."""
    if end:
        message = f"{_shown(recorded)} is recorded, and now the program {end} without calling it"
    else:
        where = f" at {_at(site.file, site.line)}" if site is not None else ""
        message = f"{_shown(recorded)} is recorded, and now the program waits{where} without having called it"
    asked = None if site is None else {"file": site.file, "line": site.line}
    return _difference(message, recorded, asked)


def _difference(message: str, recorded: RecordedCall, asked: dict[str, Any] | None) -> Nondeterministic:
    known = {
        "name": recorded.name,
        "label": recorded.label,
        "kind": recorded.kind,
        "file": recorded.file,
        "line": recorded.line,
    }
    return Nondeterministic(message, recorded=known, asked=asked)


def _shown(recorded: RecordedCall) -> str:
    return f"'{recorded.label or recorded.name}' (called at {_at(recorded.file, recorded.line)})"


def _at(file: str, line: int) -> str:
    return f"{file.rpartition('/')[2]}:{line}"
