"""The reference of the Python face says what the code says."""

from __future__ import annotations

import ast
import builtins
import inspect

import mulligan

from .signatures import PAGE, written


def test_the_tables_of_the_reference_are_what_the_docstrings_say():
    page = PAGE.read_text(encoding="utf-8")

    assert page == written(page), "write them anew with: PYTHONPATH=src python tests/client/signatures.py"


def test_every_name_of_the_face_is_in_the_reference():
    page = PAGE.read_text(encoding="utf-8")
    face = [name for name in dir(mulligan) if getattr(mulligan, name) is not None]
    ours = [name for name in face if getattr(getattr(mulligan, name), "__module__", "").startswith("mulligan.client")]

    assert sorted(ours) == ["Home", "Run", "connect", "load", "open", "run"]
    assert [name for name in ours if f"`mulligan.{name}" not in page and f"# {name}" not in page] == ["Home"]
    assert "home.start" in page


def test_the_package_lists_its_names_before_they_are_imported():
    assert dir(mulligan) == sorted([*mulligan.__all__, "open"])


def test_what_type_checkers_see_is_what_there_is():
    tree = ast.parse(inspect.getsource(mulligan))
    [typed] = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        alias.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }

    assert imported == {name: module for name, module in mulligan._LAZY.items() if not name.startswith("_")}
    assert {*imported, "StepError", "__version__"} == {*dir(mulligan)}


def test_importing_every_name_replaces_nothing_of_python():
    assert [name for name in mulligan.__all__ if hasattr(builtins, name)] == []


def test_every_public_name_of_the_face_has_a_docstring():
    for kind in (mulligan.Run, mulligan.Home):
        names = [name for name in vars(kind) if not name.startswith("_")]
        assert [name for name in names if not inspect.getdoc(getattr(kind, name))] == []
