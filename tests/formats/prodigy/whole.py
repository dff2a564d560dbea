"""A whole file of Prodigy's in, our plain tree out; or all that is said against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import LanguageError
from mulligan.formats import examine
from mulligan.formats.prodigy.workflow import translate
from mulligan.formats.translation import Translation
from mulligan.language.text.document import parse
from mulligan.language.text.nodes import Source, plain


def tree(text: str, file: str = "flow.yml") -> dict[str, Any]:
    """The file of ours that a text of Prodigy's becomes."""
    source = Source(text, file)
    found = translate(parse(source), Translation(source))
    if source.problems:
        raise LanguageError(source.problems)
    said: dict[str, Any] = plain(found)
    return said


def steps(text: str) -> dict[str, dict[str, Any]]:
    """The steps of that file by their names, without those for the worktree."""
    ours = ("worktree", "merge")
    return {step["step"]: step for step in tree(text)["steps"] if step["step"] not in ours}


def warnings(text: str, folder: Path) -> list[str]:
    path = folder / "flow.yml"
    path.write_text(text)
    return [warning.message for warning in examine(path).warnings]


def refusal(text: str, folder: Path) -> str:
    """All that is said against a text, in the user's own file."""
    path = folder / "flow.yml"
    path.write_text(text)
    with pytest.raises(LanguageError) as caught:
        examine(path, named="prodigy")
    return caught.value.render().replace(f"{folder}/", "")
