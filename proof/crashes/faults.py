"""What can happen to a process, and how it is spelled: `kill:after_commit@12` is kill -9 at the 12th pass there.

| kind | what | the process |
|---|---|---|
| kill | a fault point | is killed there |
| cut | a fault point | loses its connections to the server there |
| server | a fault point | loses the server there, which dies and comes back |
| answer | - | never hears the n-th answer of the server, which has done what it was asked |
| disk | an operation and what comes of it | has SQLite's n-th such operation refused, done by half, or its last |
| call | a system call and what comes of it | has its n-th such call refused, or is killed in it |
| supervisor | the same | has a supervisor to which that happens |
| short | a call that writes, and what comes of it | has its n-th done by half |
| move | a fault point | has its home moved there, and the run is resumed at the new place at once |

The other kinds name one of the processes around a run, which is killed at a point: see `scenarios.py`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SPELLED = re.compile(
    r"(?P<kind>kill|cut|server|answer|disk|call|supervisor|short|move"
    r"|http_server|background|remote|full_disk|dask|dask_worker|worktrees|pilot|allocator):(?P<what>[\w.-]+)@(?P<nth>[1-9]\d*)"
)
STORES = ("sqlite", "postgres")


class Fault(NamedTuple):
    """One thing that happens to one process, once."""

    kind: str
    what: str
    nth: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.what}@{self.nth}"


class Trial(NamedTuple):
    """A run on a store, and what happens to the process that begins it and to those that take it up again."""

    store: str
    troubles: tuple[Fault, ...]

    def __str__(self) -> str:
        return "/".join((self.store, *map(str, self.troubles)))


def parsed(words: str) -> Trial:
    """A trial as it is spelled: `sqlite/kill:after_commit@12/kill:after_lease@1`."""
    store, *troubles = words.split("/")
    found = [_SPELLED.fullmatch(fault) for fault in troubles]
    if store not in STORES or not found or None in found:
        raise ValueError(f"'{words}' is no trial: write it like sqlite/kill:after_commit@12")
    return Trial(store, tuple(Fault(one["kind"], one["what"], int(one["nth"])) for one in found if one))
