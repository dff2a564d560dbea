"""Values that steps set in `ctx` and `vars`, each with a version, so that every reader sees the same one.

A value gets one more than the highest version that its step has read. Of values that were set in parallel branches or
items, the one of the step or item that sorts last counts, whichever ended first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# The groups: `ctx.x`, `vars.x`, and arguments for one step.
CTX, VARS, ARGS = "ctx", "vars", "args"
Entries = dict[str, list[Any]]


def merge_entries(all_entries: Iterable[Entries]) -> Entries:
    """The entry that counts for each name: [version, value, step, item]."""
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
    """The values that this step sets, and those that were set before. It passes on those of earlier items."""

    def __init__(self, before: Entries, step: str, item: int, passed_on: Entries) -> None:
        self.own: Entries = dict(passed_on)
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
        """Set what the items of a loop have set."""
        for key, entry in entries.items():
            group, _, name = key.partition(".")
            self.put(group, name, entry[1])


def _rank(entry: list[Any]) -> tuple[int, str, int]:
    return entry[0], entry[2], entry[3]


def _put(found: dict[str, Any], path: list[str], value: Any) -> None:
    *above, last = path
    for name in above:
        inner = found.get(name)
        found[name] = dict(inner) if isinstance(inner, dict) else {}
        found = found[name]
    found[last] = value
