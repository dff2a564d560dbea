"""The survivors that a person has judged, and why each is not a gap in the tests: `judged.toml`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .mutants import Mutant

KINDS = {
    "equivalent": "the changed code does the same",
    "wording": "only the words of a message differ",
    "cost": "only the time or the memory it takes differs",
    "unreachable": "nothing that is lawful leads there; it guards against a bug of ours",
}


class Judgement(NamedTuple):
    """One survivor, and why it may survive."""

    module: str
    function: str
    change: str
    kind: str
    why: str

    @property
    def name(self) -> str:
        return f"{self.function}: {self.change}"


def read(path: Path) -> list[Judgement]:
    """All judgements, in the order of the file."""
    tables = tomllib.loads(path.read_text()) if path.exists() else {}
    return [Judgement(module, **row) for module, rows in tables.items() for row in rows]


def written(module: str, mutants: Iterable[Mutant]) -> str:
    """Return survivors as rows of the file, without a reason."""
    return "\n".join(_row(module, mutant) for mutant in mutants)


def _row(module: str, mutant: Mutant) -> str:
    fields = {"function": mutant.unit.name, "change": mutant.change, "kind": "", "why": ""}
    lines = [f"# {module}.py:{mutant.lines.start}", f"[[{module}]]"]
    return "\n".join([*lines, *(f"{name} = {_quoted(value)}" for name, value in fields.items()), ""])


def _quoted(value: str) -> str:
    return f"'{value}'" if "'" not in value and value else json.dumps(value, ensure_ascii=False)


def faults(judgements: Iterable[Judgement], names: dict[str, set[str]]) -> Iterator[str]:
    """What is wrong with the file: said of a change that does not exist, twice, or without a reason."""
    seen: set[tuple[str, str]] = set()
    for one in judgements:
        where = f"{one.module}: {one.name}"
        if one.name not in names.get(one.module, set()):
            yield f"{where}: there is no such change"
        if (one.module, one.name) in seen:
            yield f"{where}: judged twice"
        if one.kind not in KINDS or not one.why:
            yield f"{where}: needs a kind ({', '.join(KINDS)}) and a reason"
        seen.add((one.module, one.name))
