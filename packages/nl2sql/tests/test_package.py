"""The shape of the package: it uses what every package could use, and its parts know each other in one direction."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mulligan
import mulligan_nl2sql

from .hostile_statements import read_rows

PACKAGE = Path(mulligan_nl2sql.__file__).parent
ROOT = Path(__file__).parents[3]
SOURCES = sorted(PACKAGE.rglob("*.py"))
LINES_MAX = 800
NAMELESS = re.compile(r"_?(utils?|commons?|helpers?|base|managers?|mixins?|misc|v\d+)")
# What each part may know of the package. The process of a query needs no parser, and a check no database.
MAY_KNOW = {
    "checking": {"checking", "failures", "limits", "schema"},
    "databases": {"databases", "execution.messages", "failures", "limits", "policy", "schema"},
    "policy": {"failures", "limits", "schema"},
    "schema": set(),
    "limits": set(),
    "failures": set(),
    "database_urls": {"failures"},
}


def imports(source: Path) -> list[tuple[str, str]]:
    """Each import as a module and a name of it."""
    found = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


def private_names(found: list[tuple[str, str]]) -> list[str]:
    """Imports of Mulligan that are not of its public API."""
    return [
        f"{module}:{name}"
        for module, name in found
        if module.split(".")[0] == "mulligan" and (module != "mulligan" or name not in mulligan.__all__)
    ]


def test_the_package_uses_the_public_api_alone() -> None:
    found = {source.name: private_names(imports(source)) for source in SOURCES}

    assert {name: names for name, names in found.items() if names} == {}
    assert any(module == "mulligan" for source in SOURCES for module, _ in imports(source))


def test_a_private_import_would_be_found() -> None:
    assert private_names([("mulligan.worker.databases.values", "as_json")])
    assert private_names([("mulligan", "errors")])
    assert private_names([("mulligan.errors", "")])
    assert private_names([("mulligan", "StepError"), ("mulligan_nl2sql.schema", "Schema")]) == []


def test_parts_know_each_other_in_one_direction() -> None:
    wrong = []
    for source in SOURCES:
        path = source.relative_to(PACKAGE).with_suffix("").parts
        for module, _ in imports(source):
            if module.startswith("mulligan_nl2sql.") and path[0] in MAY_KNOW:
                known = module.removeprefix("mulligan_nl2sql.")
                if not {known, known.split(".")[0]} & MAY_KNOW[path[0]]:
                    wrong.append(f"{'/'.join(path)}: {module}")

    assert wrong == []


def test_files_have_names_and_a_length_that_can_be_read() -> None:
    assert [path.name for path in SOURCES if NAMELESS.fullmatch(path.stem)] == []
    assert [path.name for path in SOURCES if len(path.read_text().splitlines()) >= LINES_MAX] == []


def test_no_import_stands_inside_a_function() -> None:
    inner = [
        f"{source.name}:{node.lineno}"
        for source in SOURCES
        for function in ast.walk(ast.parse(source.read_text()))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]

    assert inner == []


@pytest.mark.parametrize("module", ["execution.child", "command_line", "question_steps"])
def test_what_reads_no_sql_loads_neither_a_parser_nor_a_database(module: str) -> None:
    code = f"import sys, mulligan_nl2sql.{module}; print({{'sqlglot', 'apsw', 'duckdb'}} & set(sys.modules))"

    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert shown.strip() == "set()"


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(mulligan_nl2sql, name) is not None for name in mulligan_nl2sql.__all__)
    assert dir(mulligan_nl2sql) == sorted(mulligan_nl2sql.__all__)


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "packages/nl2sql/pyproject.toml").read_text())["project"]
    pins = (ROOT / "requirements/dev.txt").read_text()

    names = {re.match(r"[\w-]+", requirement)[0] for requirement in project["dependencies"]} - {"mulligan"}

    assert names
    assert {name for name in names if not re.search(rf"^{name}==", pins, re.MULTILINE)} == set()


def test_the_decision_record_has_the_figures_of_the_tables() -> None:
    (record,) = ROOT.glob("docs/project/adr/0076-*.md")
    rows = [line.strip("| ").split(" | ") for line in record.read_text().splitlines() if line.startswith("| ")]
    header, *cells = rows

    for column, dialect in zip((0, 2, 4), ("sqlite", "duckdb", "postgres"), strict=True):
        marks = [row.marks.split() for row in read_rows(dialect)]
        let_through = [sum(mark == "-" for mark in layer) for layer in zip(*marks, strict=True)]
        assert int(re.search(r"\d+", header[column])[0]) == len(marks)
        assert [int(row[column + 1]) for row in cells] == let_through
