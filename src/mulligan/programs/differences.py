"""What differs between a program and what is recorded of it, in words and without values."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from mulligan.flows.context import Site
from mulligan.programs.errors import Nondeterministic
from mulligan.programs.messages import RecordedCall


class AskedCall(NamedTuple):
    """What a program calls now. `arguments`: as JSON."""

    kind: str
    name: str
    site: Site
    digest: str = ""
    arguments: bytes = b"{}"


def difference_of_call(recorded: RecordedCall, asked: AskedCall) -> Nondeterministic:
    """The program calls something else than what is recorded at this place."""
    site = asked.site
    shown: dict[str, Any] = {"name": asked.name, "kind": asked.kind, "file": site.file, "line": site.line}
    if (recorded.kind, recorded.name) == (asked.kind, asked.name):
        what = f"{_shown(recorded)} now gets other arguments"
        if names := _differing(recorded, asked.arguments):
            shown["arguments"] = names
            shown_names = ", ".join(f"'{name}'" for name in names)
            what += f" ({shown_names})"
    else:
        what = f"{_shown(recorded)} is recorded, and now '{asked.name}' is called"
    return _difference(f"{what}, at {_at(site.file, site.line)}", recorded, shown)


def _differing(recorded: RecordedCall, arguments: bytes) -> list[str]:
    """The names of the arguments that differ. Of long ones it is not known: they are named if no other differs."""
    before, now = json.loads(recorded.arguments), json.loads(arguments)
    long = set(recorded.long_arguments)
    names = [name for name in (before | now) if name not in long]
    # As JSON, since True and 1 are not the same there.
    found = [name for name in names if _as_json(before, name) != _as_json(now, name)]
    return found or [name for name in recorded.long_arguments if name in now] or list(long)


def _as_json(arguments: dict[str, Any], name: str) -> str:
    return json.dumps(arguments[name], sort_keys=True) if name in arguments else ""


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
