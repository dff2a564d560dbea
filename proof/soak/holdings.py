"""What a process and its children hold, read from /proc."""

from __future__ import annotations

import os
import re
from pathlib import Path

from proof.soak.verdict import MEMORY, Sample

_PRIVATE = ("Private_Clean:", "Private_Dirty:", "Swap:")


def sample_tree(at: float, name: str, pid: int) -> list[Sample]:
    """The process and its children, but not theirs: those are steps, which come and go."""
    found = [(name, pid), *((f"{name}: {_role(child)}", child) for child in children_of(pid))]
    return [Sample(at, each, number, held) for each, number in found if (held := holdings(number))]


def holdings(pid: int) -> dict[str, int]:
    """What one process holds; nothing if it is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()
        links = [_target(folder / "fd" / number) for number in os.listdir(folder / "fd")]
        threads = len(os.listdir(folder / "task"))
    except OSError:
        return {}
    memory = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_PRIVATE))
    sockets = sum(1 for link in links if link.startswith("socket:"))
    return {MEMORY: memory, "files": len(links), "sockets": sockets, "threads": threads}


def children_of(pid: int) -> list[int]:
    """The children of all threads of a process, the oldest first."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, file.read_text().split())
        except OSError:
            continue  # the thread is gone
    return sorted(found)


def _role(pid: int) -> str:
    """A word for what a child of ours does, from its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "gone"
    named = re.search(r"mulligan\.(?:api\.processes\.|worker\.\w+\.)?(\w+)", " ".join(words))
    return named[1] if named else f"child {words[0][-20:]}"


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""  # closed meanwhile
