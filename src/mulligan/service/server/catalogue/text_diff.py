"""What differs between two texts, line by line, with a few equal lines around each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal

import msgspec

from mulligan.service.server.catalogue.text_reading import read_apart

CONTEXT_LINES = 3
# Beyond this many lines that may differ, they are shown as replaced as a whole: matching them takes too long.
MATCHED_LINES_MAX = 4000
# Beyond this many pairs of equal lines, a line is matched first only if the new text has it once, as in a patience
# diff: each block that is found looks at the pairs anew.
PAIRS_MAX = 10_000


class DiffLine(msgspec.Struct, frozen=True):
    """A line of a comparison, with its number in each text; `gap` stands for equal lines that are left out."""

    kind: Literal["same", "removed", "added", "gap"]
    text: str = ""
    old: int | None = None
    new: int | None = None


@read_apart
def diff_texts(old: str, new: str) -> list[DiffLine]:
    """The lines that differ, with those around them; empty if the texts are equal."""
    if old == new:
        return []
    return list(_fold(list(_compare(old.splitlines(), new.splitlines()))))


def diff_as_text(lines: list[DiffLine]) -> str:
    """A comparison as people read it in a terminal or a model in a prompt."""
    signs = {"same": " ", "removed": "-", "added": "+"}
    return "\n".join("..." if line.kind == "gap" else f"{signs[line.kind]}{line.text}" for line in lines)


def _compare(old: list[str], new: list[str]) -> Iterator[DiffLine]:
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    tail = 0
    while tail < min(len(old), len(new)) - same and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    yield from (DiffLine("same", old[at], at + 1, at + 1) for at in range(same))
    before, after = old[same : len(old) - tail], new[same : len(new) - tail]
    for tag, i1, i2, j1, j2 in _blocks(before, after):
        if tag == "equal":
            pairs = zip(range(i1, i2), range(j1, j2), strict=True)
            yield from (DiffLine("same", before[i], same + i + 1, same + j + 1) for i, j in pairs)
        else:
            yield from (DiffLine("removed", before[i], old=same + i + 1) for i in range(i1, i2))
            yield from (DiffLine("added", after[j], new=same + j + 1) for j in range(j1, j2))
    for at in range(tail, 0, -1):
        yield DiffLine("same", old[-at], len(old) - at + 1, len(new) - at + 1)


def _blocks(before: list[str], after: list[str]) -> list[tuple[str, int, int, int, int]]:
    if len(before) + len(after) > MATCHED_LINES_MAX:
        return [("replace", 0, len(before), 0, len(after))]
    old_counts, new_counts = Counter(before), Counter(after)
    pairs = sum(count * new_counts[line] for line, count in old_counts.items())
    is_repeated = (lambda line: new_counts[line] > 1) if pairs > PAIRS_MAX else None
    return list(SequenceMatcher(is_repeated, before, after, autojunk=False).get_opcodes())


def _fold(lines: list[DiffLine]) -> Iterator[DiffLine]:
    """Leave out equal lines that are far from every change."""
    changed = [at for at, line in enumerate(lines) if line.kind != "same"]
    shown = {near for at in changed for near in range(at - CONTEXT_LINES, at + CONTEXT_LINES + 1)}
    is_open = True
    for at, line in enumerate(lines):
        if at in shown:
            yield line
            is_open = True
        elif is_open:
            yield DiffLine("gap")
            is_open = False
