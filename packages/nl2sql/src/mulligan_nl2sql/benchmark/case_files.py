"""The file of a benchmark (TOML): databases, and questions with what is expected of each.

    today = 2025-11-17                       # what 'last month' is counted from; the day of the run if left out

    [databases]
    shop = "sqlite:///shop.db"               # `--db shop=URL` takes its place

    [[cases]]
    question = "how many customers are in each city?"
    sql = "select city, count(*) from customers group by city"
    tags = ["groups"]

    [[cases]]
    question = "revenue in 2024"
    refused = true

A case has one of `sql`, `rows` (a list of lists), `refused` and, with several databases, `expected`: for each of them
`{sql = "…"}` or `{rows = […]}`. The order of the rows counts if the SQL orders them, or with `ordered = true`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from mulligan import StepError
from mulligan_nl2sql.database_urls import parse_url, split_name
from mulligan_nl2sql.policy import describe_invalid

FILE_BYTES_MAX = 16 << 20
CASES_MAX = 10_000
_HEADER = re.compile(r"\s*\[\[\s*cases\s*\]\]")
_AT = re.compile(r" \(at line (\d+), column (\d+)\)$")


class BenchmarkInvalid(StepError):
    """The file cannot be used. Nothing was started."""

    def __init__(self, message: str) -> None:
        super().__init__("BENCHMARK_INVALID", message, retryable=False)


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rows that one database must give: those of a statement, or the rows themselves."""

    sql: str | None = None
    rows: list[list[Any]] | None = None
    ordered: bool = False


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question. `expected` is for each of its databases; empty if it must be refused."""

    question: str
    databases: list[str]
    expected: dict[str, Expected] = {}
    tags: list[str] = []
    today: str = ""
    line: int = 0

    @property
    def must_be_refused(self) -> bool:
        return not self.expected


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """A file that has been read: URLs by the names of databases, and cases."""

    file: str
    databases: dict[str, str]
    cases: list[Case]


class _WrittenCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case as it stands in the file."""

    question: str
    databases: list[str] | None = None
    sql: str | None = None
    rows: list[list[Any]] | None = None
    ordered: bool = False
    refused: bool | None = None
    expected: dict[str, Expected] | None = None
    tags: list[str] = []
    today: date | None = None


class _WrittenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    databases: dict[str, str] = {}
    cases: list[dict[str, Any]] = []
    today: date | None = None


def read_benchmark(file: Path, databases: Sequence[str] = ()) -> Benchmark:
    """Read and check a file. `databases` are `NAME=URL`, instead of those of the file or in addition.

    BenchmarkInvalid with the line if anything in it is wrong.
    """
    text = _read(file)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _AT.search(str(error))
        place = f":{where[1]}:{where[2]}" if where else ""
        reason = _AT.sub("", str(error))
        raise BenchmarkInvalid(f"{file}{place}: {reason[:1].lower()}{reason[1:]}") from None
    try:
        written = msgspec.convert(content, _WrittenFile)
    except msgspec.ValidationError as error:
        raise BenchmarkInvalid(f"{file}: {describe_invalid(error)}") from None
    if not written.cases:
        raise BenchmarkInvalid(f"{file} has no [[cases]]")
    if len(written.cases) > CASES_MAX:
        raise BenchmarkInvalid(f"{file} has {len(written.cases):,} cases, and may have {CASES_MAX:,}")
    urls = _databases(file, written.databases, databases)
    lines = _Lines(file, text, len(written.cases))
    cases = [_case(at, given, lines, urls, written.today) for at, given in enumerate(written.cases)]
    return Benchmark(file=str(file), databases=urls, cases=cases)


class _Lines:
    """Where the cases and their keys stand: the parser of TOML does not say."""

    def __init__(self, file: Path, text: str, count: int) -> None:
        self.file = file
        self._lines = text.splitlines()
        found = [number for number, line in enumerate(self._lines, 1) if _HEADER.match(line)]
        # Otherwise a text of several lines contains what looks like the beginning of a case.
        self._starts = found if len(found) == count else []

    def start(self, at: int) -> int:
        return self._starts[at] if self._starts else 0

    def refuse(self, at: int, message: str, key: str = "") -> BenchmarkInvalid:
        line = self.start(at)
        if key and line:
            end = self._starts[at + 1] - 1 if at + 1 < len(self._starts) else len(self._lines)
            pattern = re.compile(rf"""\s*(?:\[\s*cases\s*\.\s*)?["']?{re.escape(key)}["']?\s*[=.\]]""")
            line = next((n for n in range(line, end + 1) if pattern.match(self._lines[n - 1])), line)
        return BenchmarkInvalid(f"{self.file}{f':{line}' if line else ''}: case {at + 1}: {message}")


def _case(at: int, given: dict[str, Any], lines: _Lines, urls: Mapping[str, str], today: date | None) -> Case:
    known = [field.encode_name for field in msgspec.structs.fields(_WrittenCase)]
    for key in given:
        if key not in known:
            raise lines.refuse(at, f"unknown key '{key}'{_near(key, known)}", key)
    try:
        written = msgspec.convert(given, _WrittenCase)
    except msgspec.ValidationError as error:
        found = re.search(r"at `\$\.(\w+)", str(error))
        raise lines.refuse(at, describe_invalid(error), found[1] if found else "") from None
    if not written.question.strip():
        raise lines.refuse(at, "the question is empty", "question")
    names = written.databases if written.databases is not None else list(urls)
    for name in names:
        if name not in urls:
            raise lines.refuse(at, f"there is no database '{name}'{_near(name, urls)}", "databases")
    if not names:
        raise lines.refuse(at, "it asks no database", "databases")
    return Case(
        question=written.question.strip(),
        databases=names,
        expected=_expected(at, written, names, lines),
        tags=list(dict.fromkeys(written.tags)),
        today=day.isoformat() if (day := written.today or today) else "",
        line=lines.start(at),
    )


def _expected(at: int, written: _WrittenCase, names: list[str], lines: _Lines) -> dict[str, Expected]:
    given = [key for key in ("sql", "rows", "refused", "expected") if getattr(written, key) is not None]
    if len(given) != 1:
        said = " and ".join(f"'{key}'" for key in given) or "none of them"
        raise lines.refuse(at, f"it needs one of 'sql', 'rows', 'refused' and 'expected', and has {said}")
    if given == ["refused"]:
        if not written.refused:
            raise lines.refuse(at, "'refused' is true, or the case says what is expected", "refused")
        return {}
    found = written.expected
    if found is None:
        if len(names) > 1:
            example = f"expected.{names[0]} = {{{given[0]} = …}}"
            raise lines.refuse(at, f"it asks {len(names)} databases: say of which, as in {example}", given[0])
        found = {names[0]: Expected(sql=written.sql, rows=written.rows, ordered=written.ordered)}
    elif not found:
        raise lines.refuse(at, "'expected' is empty", "expected")
    for name, one in found.items():
        if name not in names:
            message = f"it expects rows of '{name}', which it does not ask{_near(name, names)}"
            raise lines.refuse(at, message, "expected")
        if (one.sql is None) == (one.rows is None):
            raise lines.refuse(at, f"what is expected of '{name}' needs one of 'sql' and 'rows'", "expected")
        if one.sql is not None and not one.sql.strip():
            raise lines.refuse(at, "the expected SQL is empty", given[0])
    return {name: _with_plain_rows(at, one, lines, given[0]) for name, one in found.items()}


def _with_plain_rows(at: int, expected: Expected, lines: _Lines, key: str) -> Expected:
    if expected.rows is None:
        return expected
    if len({len(row) for row in expected.rows}) > 1:
        raise lines.refuse(at, "the rows differ in their number of columns", key)
    rows = [[_plain(value) for value in row] for row in expected.rows]
    if any(isinstance(value, (list, dict)) for row in rows for value in row):
        raise lines.refuse(at, "a value of a row is a list or a table", key)
    return msgspec.structs.replace(expected, rows=rows)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, (date, datetime, time)) else value


def _databases(file: Path, written: Mapping[str, str], given: Sequence[str]) -> dict[str, str]:
    urls = dict(written)
    for one in given:
        name, url = split_name(one)
        if not name and len(written) == 1:
            name = next(iter(written))
        urls[name or parse_url(url, must_exist=False).name] = url
    if not urls:
        raise BenchmarkInvalid(f"{file} has no [databases]: add them, or give --db NAME=URL")
    return urls


def _read(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BenchmarkInvalid(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise BenchmarkInvalid(f"{file} has {len(data):,} bytes, and may have {FILE_BYTES_MAX:,}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BenchmarkInvalid(f"{file}:{line}: it is not UTF-8") from None


def _near(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""
