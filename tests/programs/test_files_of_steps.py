"""Results that are files: a program passes them on, and reads them when it wants to."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from mulligan.programs.call_values import ResultFile, encode_arguments, read_result
from mulligan.programs.errors import NotStorable


def artifact(path: Path, format: str) -> dict[str, Any]:
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return {"$artifact": {"name": path.name, "size": len(data), "sha256": digest, "format": format}}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n", encoding="utf-8")
    return path


def test_a_large_result_is_what_it_was(tmp_path: Path):
    path = tmp_path / "output.json"
    path.write_text('{"rows": [1, 2]}', encoding="utf-8")

    output = {"large": artifact(path, "json"), "small": 1}

    assert read_result(output, None, {path.name: str(path)}, "'f'") == {"large": {"rows": [1, 2]}, "small": 1}


def test_a_file_is_passed_on_as_its_reference_and_read_when_it_is_wanted(table: Path):
    reference = artifact(table, "csv")

    [found] = read_result([reference], None, {table.name: str(table)}, "'f'")

    assert isinstance(found, ResultFile)
    assert b'"$artifact"' in encode_arguments({"rows": found}, "'load'")
    assert found.read_bytes() == b"a,b\n"


def test_a_file_that_is_damaged_or_not_here_is_said_when_it_is_read(table: Path):
    reference = artifact(table, "csv")
    table.write_text("b,a\n", encoding="utf-8")

    damaged = read_result(reference, None, {table.name: str(table)}, "'f'")
    missing = read_result(reference, None, {}, "'f'")

    with pytest.raises(NotStorable, match="is damaged"):
        damaged.load()
    with pytest.raises(NotStorable, match="is not here"):
        missing.load()


def test_a_large_result_that_is_not_here_is_said_at_once(tmp_path: Path):
    path = tmp_path / "output.json"
    path.write_text("[]", encoding="utf-8")

    with pytest.raises(NotStorable, match=r"the result of 'f' cannot be read: its file 'output.json' is not here"):
        read_result(artifact(path, "json"), None, {}, "'f'")
