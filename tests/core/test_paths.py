"""Templated paths: which folder they must stay in, and which texts leave it."""

from __future__ import annotations

import pytest

from mulligan.core.model.text.paths import TemplatedPath, folder_of, literal_prefix, path_problem
from mulligan.core.model.workflow import Expression, Template

ITEM = Expression("item", ("item",))
HOME = Expression("env.HOME", ("env",))
MESH = Expression("files.mesh", ("files",))
ANYWHERE = Expression("inputs.dir", ("inputs",), any_path=True)


@pytest.mark.parametrize(
    ("parts", "before"),
    [
        (("logs/", ITEM, ".log"), ("", "logs/")),
        ((ITEM,), ("",)),
        ((HOME, "/logs/", ITEM), ("", HOME, "/logs/")),
        ((ANYWHERE, "/logs/", ITEM), ("", ANYWHERE, "/logs/")),
        ((MESH, ITEM), ("", MESH)),
    ],
)
def test_what_is_written_before_the_first_value_is_the_authors(parts: tuple, before: tuple) -> None:
    assert literal_prefix(Template(parts)) == Template(before)


@pytest.mark.parametrize("parts", [("/etc/../x",), (HOME, "/x"), (ANYWHERE,), ("a", MESH)])
def test_a_path_without_a_value_is_the_authors_alone(parts: tuple) -> None:
    assert literal_prefix(Template(parts)) is None


def test_an_expression_that_reads_a_value_beside_the_environment_is_a_value() -> None:
    mixed = Expression("env.HOME + item", ("env", "item"))

    assert literal_prefix(Template((mixed,))) == Template(("",))


@pytest.mark.parametrize(
    ("text", "folder"), [("logs/", "logs/"), ("logs/run-", "logs/"), ("run-", ""), ("", ""), ("/", "/"), ("/a", "/")]
)
def test_the_folder_ends_with_the_last_slash(text: str, folder: str) -> None:
    assert folder_of(text) == folder


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("logs/../x", "logs/"),
        ("logs/a/..", "logs/"),
        ("..", ""),
        ("a/../b", ""),
        ("logs//etc/passwd", "logs/"),
        ("/etc/passwd", "logs/"),
        ("logs/a\0b", "logs/"),
    ],
)
def test_a_text_that_leaves_its_folder_has_a_fault(text: str, folder: str) -> None:
    assert path_problem(TemplatedPath(text, folder))


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("logs/a/b.log", "logs/"),
        ("logs/..a", "logs/"),
        ("logs/a..b/...", "logs/"),
        ("../logs/a", "../logs/"),
        ("/a/b", ""),  # whether it leads to where it may is for the file system to say
        ("//a/b", "/"),
    ],
)
def test_a_text_that_stays_in_its_folder_has_none(text: str, folder: str) -> None:
    assert path_problem(TemplatedPath(text, folder)) == ""
