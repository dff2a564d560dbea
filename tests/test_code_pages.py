"""The pages about the code are true: each file, function and folder that they name is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.support import played

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/mulligan"
ONE_FAILURE = ROOT / "docs/project/one-failure.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = (ARCHITECTURE, CONTRIBUTING, ONE_FAILURE, ROOT / "docs/project/layers.md")

# A file or a folder in backticks, below the clone or the package; NAME stands for any name.
PATH = re.compile(r"`((?:[\w.*-]+/)+[\w.*-]*|[\w-]+\.(?:py|toml|md))`")
RECIPES = (
    "A flag of `list`",
    "A field of a retry rule",
    "A store",
    "An action",
    "A column of the runs page",
    "An event",
    "A file format",
    "How a failed notice is retried",
)
ROW = re.compile(r"^\| (.+) \| `([\w/.]+\.py)` \| `([\w.]+)` \|$", re.MULTILINE)
EVENT = re.compile(r"^ *\d+ \S+Z (\w+\.\w+) +([\w.@]+(?= {2,}|$|  ?\w+=))?", re.MULTILINE)


def is_there(path: str) -> bool:
    return any(next(folder.glob(path.rstrip("/")), None) is not None for folder in (ROOT, PACKAGE))


def missing_paths(text: str) -> list[str]:
    return [path for path in PATH.findall(text) if "SYSTEM" not in path and not is_there(path)]


@cache
def names_in(path: Path) -> frozenset[str]:
    """The functions, methods and tables of a module, as `name` or `Class.name`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_file_and_folder_that_a_page_about_the_code_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert PATH.findall(text)
    assert missing_paths(text) == []


@pytest.mark.parametrize("text", ["`core/no_such_module.py`", "see `service/nowhere/`", "`no_such_test.py`"])
def test_a_file_that_is_not_there_would_be_found(text: str) -> None:
    assert missing_paths(text)


def test_each_function_on_the_way_of_one_failure_is_in_its_file() -> None:
    rows = ROW.findall(ONE_FAILURE.read_text(encoding="utf-8"))

    missing = [f"{path}: {name}" for _, path, name in rows if name not in names_in(PACKAGE / path)]

    assert len(rows) > 40
    assert missing == []


def test_one_failure_has_the_events_and_the_story_that_its_page_shows(tmp_path: Path) -> None:
    folder = tmp_path / "nightly"
    folder.mkdir()

    events, story = played.play(ONE_FAILURE, folder)

    assert EVENT.findall(events.printed) == EVENT.findall(events.text)
    assert len(EVENT.findall(events.text)) == len(events.text.splitlines())
    assert played.steady(story.text) == played.steady(story.printed)


def first_lines(path: Path) -> str:
    """What a module or a package says of itself, up to the first empty line."""
    file = path / "__init__.py" if path.is_dir() else path
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(said.partition("\n\n")[0].split())


def parts() -> list[str]:
    """The packages in their import order, as `tests/test_architecture.py` has them."""
    text = (ROOT / "tests/test_architecture.py").read_text(encoding="utf-8")
    return re.findall(r'"(\w+)"', text.partition("\nPARTS = (")[2].partition("\n)")[0])


def rooms(folder: Path) -> list[Path]:
    return sorted(found.parent for found in folder.glob("*/__init__.py"))


def picture() -> Iterator[str]:
    """The packages in their import order, and below `service` and `worker` their rooms, each with what it says."""
    for name in parts():
        for path in (PACKAGE / name, PACKAGE / f"{name}.py"):
            if path.exists():
                name_shown = path.name + "/" if path.is_dir() else path.name
                yield f"{name_shown:<18}{first_lines(path)}"
        if name in ("service", "worker"):
            for room in rooms(PACKAGE / name):
                yield f"  {room.name + '/':<16}{first_lines(room)}"
                yield from (f"    {one.name + '/':<16}{first_lines(one)}" for one in rooms(room))


def test_the_map_has_every_package_and_room_with_what_it_says_of_itself() -> None:
    shown = ARCHITECTURE.read_text(encoding="utf-8").split("```\n")[1]

    assert shown == "".join(f"{line}\n" for line in picture())


def test_each_row_of_the_decisions_is_one_question_and_one_file() -> None:
    section = ARCHITECTURE.read_text(encoding="utf-8").partition("## Where things are decided")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and line != "| question | where |"]

    odd = [row for row in rows if not re.fullmatch(r"\| [A-Z][^?;|]*\? \| `[\w/]+\.py` \|", row)]

    assert len(rows) > 50
    assert odd == []


def test_each_change_has_a_recipe_that_names_its_files() -> None:
    section = CONTRIBUTING.read_text(encoding="utf-8").partition("## How to add")[2].partition("\n## ")[0]
    recipes = dict(re.findall(r"^\*\*(.+?)\.?\*\*(.*?)(?=^\*\*|\Z)", section, re.MULTILINE | re.DOTALL))

    nameless = [name for name in RECIPES if not PATH.findall(recipes.get(name, ""))]

    assert nameless == []
