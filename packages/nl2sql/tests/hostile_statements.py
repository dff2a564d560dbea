"""Statements that must never be executed, and the table that says which layer stops each of them.

A file of `hostile/` has one line for each statement: a mark for each layer, `x` if the layer alone stops it and `-` if
it lets it through; the code of the check; the statement. `NL2SQL_WRITE_LAYERS=1` writes the marks anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mulligan_nl2sql.checking.check import check
from mulligan_nl2sql.database_urls import Database
from mulligan_nl2sql.execution.queries import execute
from mulligan_nl2sql.failures import Code, QueryFailed, Stage
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.schema import Schema

from .shop import POLICY, SECONDS

STATEMENTS_MIN = 60
REPAIRABLE = {
    *(Code.SYNTAX, Code.UNSUPPORTED, Code.TABLE_UNKNOWN, Code.COLUMN_UNKNOWN, Code.FUNCTION_UNKNOWN, Code.TOO_COMPLEX)
}
FOLDER = Path(__file__).parent / "hostile"
_LINE = re.compile(r"([-x ]+)\| *([\w-]+) *\| (.*)")

# Raises if the layer stops the statement.
Layer = Callable[[str], object]


@dataclass(frozen=True)
class Row:
    marks: str
    code: str
    statement: str

    def text(self, folder: Path) -> str:
        """The statement, with a folder of the test in the place of `{folder}`. A layer replaces `{long}`."""
        return self.statement.replace("{folder}", str(folder)).replace("\\n", "\n")


def read_rows(dialect: str) -> list[Row]:
    found = [_LINE.fullmatch(line) for line in (FOLDER / f"{dialect}.txt").read_text().splitlines()]
    return [Row(line[1].strip(), line[2], line[3]) for line in found if line]


def layer_marks(layers: Mapping[str, Layer], text: str) -> str:
    """Run the statement against each layer alone."""
    return " ".join("x" if _stops(layer, text) else "-" for layer in layers.values())


def _stops(layer: Layer, text: str) -> bool:
    try:
        layer(text)
    except Exception:
        return True
    return False


def refusal(text: str, schema: Schema) -> QueryFailed | None:
    try:
        check(text.replace("{long}", "600"), schema, Limits())
    except QueryFailed as failure:
        return failure
    return None


def assert_layers(schema: Schema, layers: Mapping[str, Layer], folder: Path) -> None:
    """Each layer alone lets through what the file says."""
    rows = []
    for row in read_rows(schema.dialect):
        text = row.text(folder)
        rows.append(Row(layer_marks(layers, text), getattr(refusal(text, schema), "code", "-"), row.statement))

    # Without any layer these would run: one that stops other things lets them through.
    harmful = {row.statement for row in rows if "-" in row.marks}
    assert len(harmful) >= STATEMENTS_MIN
    # Each layer stops something, and none of them everything.
    assert [set(column) for column in zip(*(row.marks.split() for row in rows), strict=True)] == [set("-x")] * len(
        layers
    )
    compare(schema.dialect, list(layers), rows)


def assert_nothing_is_executed(database: Database, schema: Schema, folder: Path, *, cost_max: float) -> None:
    """All layers together, as a user meets them: the check or the plan refuses, and no file appears."""
    before = sorted(folder.iterdir())
    policy = msgspec.structs.replace(POLICY, limits=Limits(seconds=SECONDS, cost=cost_max))
    executed = []
    for row in read_rows(schema.dialect):
        try:
            execute(database, row.text(folder).replace("{long}", "600"), schema, policy, file=folder / "rows.jsonl")
            executed.append(row.statement)
        except QueryFailed as failure:
            assert failure.stage == Stage.CHECK or failure.code == Code.TOO_EXPENSIVE, row.statement

    assert executed == []
    assert sorted(folder.iterdir()) == before


def assert_severe(schema: Schema) -> None:
    """What is refused for another reason than a mistake is neither retried nor repaired."""
    failures = [refusal(row.text(Path("folder")), schema) for row in read_rows(schema.dialect)]
    severe = [failure for failure in failures if failure is not None and failure.code not in REPAIRABLE]

    assert len(severe) > STATEMENTS_MIN // 2
    assert [one.message for one in severe if not one.is_security or one.retryable or one.repair] == []


def compare(dialect: str, layers: Sequence[str], rows: Sequence[Row]) -> None:
    """Compare what was found with the file, or write it."""
    path = FOLDER / f"{dialect}.txt"
    written = _write(path.read_text().splitlines(), layers, {row.statement: row for row in rows})
    if os.environ.get("NL2SQL_WRITE_LAYERS"):
        path.write_text(written)
    assert path.read_text() == written


def _write(lines: Sequence[str], layers: Sequence[str], rows: Mapping[str, Row]) -> str:
    result = [f"# layers: {', '.join(layers)}"]
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            result += [] if line.startswith("# layers:") else [line]
        else:
            row = rows[match[3]]
            result.append(f"{row.marks} | {row.code:<22} | {row.statement}")
    return "\n".join(result) + "\n"
