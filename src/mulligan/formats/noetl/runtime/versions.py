"""What steps have set, `ctx` and `vars`: each value with a number, so that of two the later counts, whoever is asked.

A value that is set gets one more than the highest number that its step has seen. Of values that were set side by side,
in branches or items, the one of the later name or item counts: the same for every reader, whatever ended first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Of what is set: for all, as `ctx.x`; as `vars.x`; for one step, which is reached with arguments.
CTX, VARS, ARGS = "ctx", "vars", "args"
Entries = dict[str, list[Any]]


def merged(all_entries: Iterable[Entries]) -> Entries:
    """Of every name the entry that counts: [number, value, step, item]."""
    found: Entries = {}
    for entries in all_entries:
        for key, entry in entries.items():
            if key not in found or _rank(entry) > _rank(found[key]):
                found[key] = entry
    return found


def values(entries: Entries, group: str) -> dict[str, Any]:
    """The values of one group, by their names; `a.b` is `b` in `a`."""
    found: dict[str, Any] = {}
    for key in sorted(entries):
        of, _, name = key.partition(".")
        if of == group:
            _put(found, name.split("."), entries[key][1])
    return found


class Settings:
    """What this step sets, over what was set before it."""

    def __init__(self, before: Entries, step: str, item: int) -> None:
        self.own: Entries = {}
        self._before = before
        self._by = [step, item]
        self._number = 1 + max((entry[0] for entry in before.values()), default=0)

    @property
    def all(self) -> Entries:
        return {**self._before, **self.own}

    def put(self, group: str, name: str, value: Any) -> None:
        self.own[f"{group}.{name}"] = [self._number, value, *self._by]
        self._number += 1

    def take_over(self, entries: Entries) -> None:
        """What items have set, as if it were set here."""
        for key, entry in entries.items():
            self.put(*_parted(key), entry[1])


def _parted(key: str) -> tuple[str, str]:
    group, _, name = key.partition(".")
    return group, name


def _rank(entry: list[Any]) -> tuple[int, str, int]:
    return entry[0], entry[2], entry[3]


def _put(found: dict[str, Any], path: list[str], value: Any) -> None:
    *above, last = path
    for name in above:
        inner = found.get(name)
        found[name] = dict(inner) if isinstance(inner, dict) else {}
        found = found[name]
    found[last] = value
