"""The table of threats is true: what it names is there, and what is here it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (HERE / "README.md").read_text(encoding="utf-8"))


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_test_that_the_table_names_is_there() -> None:
    missing = [f"{path}::{name}" for path, name in NAMED if name not in functions_of(path)]

    assert missing == []


def test_each_file_of_tests_here_is_named() -> None:
    here = {str(path.relative_to(ROOT)) for path in HERE.glob("test_*.py")}

    assert here - {path for path, _ in NAMED} == set()
