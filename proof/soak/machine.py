"""How much of the machine was used by others: what is compared over hours has to be compared in the same conditions."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

_TICKS = os.sysconf("SC_CLK_TCK")
# In the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. The guests are in user.
_COLUMNS, _IDLE, _STOLEN = 8, (3, 4), 7
# In /proc/PID/stat, behind the name: the parent, and user and system time, of it and of its children that have ended.
_PARENT, _TIMES = 1, slice(11, 15)


class MachineTime(msgspec.Struct, frozen=True):
    """The CPU seconds since the machine started, over all cores, at a moment."""

    # Seconds since the load began.
    at: float
    total: float
    busy: float
    # The part of `busy` that a hypervisor gave to other machines.
    stolen: float
    # The part of `busy` that belongs to the soak: server, workers, steps, database, clients.
    own: float


def sample_machine(at: float, roots: Collection[int]) -> MachineTime:
    """What was used until now. `roots` are the first processes of the soak: their descendants count too."""
    columns = [int(word) / _TICKS for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]][:_COLUMNS]
    total = sum(columns)
    return MachineTime(at, total, total - sum(columns[n] for n in _IDLE), columns[_STOLEN], own_seconds(roots))


def own_seconds(roots: Collection[int]) -> float:
    """The CPU seconds of these processes and of all their descendants, with those that have ended."""
    found = {int(name): stat for name in os.listdir("/proc") if name.isdecimal() and (stat := _stat(int(name)))}
    return sum(sum(map(int, stat[_TIMES])) for pid, stat in found.items() if _is_below(pid, roots, found)) / _TICKS


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it is gone."""
    stat = _stat(pid)
    return int(stat[_PARENT]) if stat else 0


def share_of_others(times: Sequence[MachineTime], begin: float, end: float) -> float:
    """Which share of the machine others used in this time, from 0 to 1."""
    first = max((time for time in times if time.at <= begin), key=lambda time: time.at, default=times[0])
    last = min((time for time in times if time.at >= end), key=lambda time: time.at, default=times[-1])
    if last.total <= first.total:
        return 0.0
    others = (last.busy - first.busy) - (last.own - first.own)
    return min(1.0, max(0.0, others / (last.total - first.total)))


def _is_below(pid: int, roots: Collection[int], stats: dict[int, list[str]]) -> bool:
    while pid in stats and pid not in roots:
        pid = int(stats[pid][_PARENT])
    return pid in roots and pid in stats


def _stat(pid: int) -> list[str]:
    """The fields behind the name; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
