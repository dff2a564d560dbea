"""How the tests of Torc's files read: a text in, what our file says out."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError
from mulligan.formats import examine
from mulligan.formats.torc.workflow import translate
from mulligan.formats.translation import Translation
from mulligan.language.text.document import parse
from mulligan.language.text.nodes import Source, plain

# What every workflow of Torc's is given, and no test here is about.
_ALWAYS = ("inputs", "defaults")


def ours(text: str) -> dict[str, Any]:
    """The tree that a file becomes, without what every one has."""
    source = Source(dedent(text), "w.yaml")
    source.origin = "torc"
    root = plain(translate(parse(source), Translation(source)))
    assert not source.problems
    return {key: value for key, value in root.items() if key not in _ALWAYS}


def jobs(text: str, top: str = "") -> dict[str, dict[str, Any]]:
    """The steps that a list of jobs becomes, by their names, without their environment."""
    found = ours(f"name: w\n{dedent(top)}\njobs:\n{indent(dedent(text).strip(), '  ')}\n")["steps"]
    return {step.pop("step"): {key: value for key, value in step.items() if key != "env"} for step in found}


def job(text: str, top: str = "") -> dict[str, Any]:
    """The step that the only job becomes."""
    (found,) = jobs(text, top).values()
    return found


def names(text: str, top: str = "") -> list[str]:
    return list(jobs(text, top))


def loaded(text: str) -> Workflow:
    """The checked workflow of a file."""
    return examine(Path("w.yaml"), text=dedent(text)).workflow


def warnings(text: str) -> list[str]:
    """The sentences of the warnings about a file that is taken."""
    return [warning.message for warning in examine(Path("w.yaml"), text=dedent(text)).warnings]


def warned(text: str) -> str:
    """The whole text of the only warning."""
    (warning,) = examine(Path("w.yaml"), text=dedent(text)).warnings
    return warning.render()


def refusal(text: str) -> str:
    """The whole text of what is said about a file that is refused."""
    with pytest.raises(LanguageError) as refused:
        examine(Path("w.yaml"), text=dedent(text))
    return refused.value.render()
