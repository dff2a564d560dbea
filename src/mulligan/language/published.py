"""Published workflows as child workflows: `workflow: region@2` is version 2 of `region` in the catalogue.

Who reads files does not know a store: whoever does says with `finding_published` how a version is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mulligan.errors import LanguageError, NotFound, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from mulligan.core.model.workflow import Workflow

    Find: TypeAlias = Callable[[str, int], Workflow]

# A number, and not `latest`: what was published never changes, and so does not what it calls.
_REFERENCE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})@([1-9][0-9]{0,8}|latest)")
_FIND: ContextVar[Find | None] = ContextVar("mulligan_published", default=None)


def is_reference(word: str) -> bool:
    """Whether it is written like `region@2`."""
    return _REFERENCE.fullmatch(word) is not None


def references_in(text: str) -> Iterator[str]:
    """What is written like one in a text, each once: more than it may call."""
    yield from dict.fromkeys(match[0] for match in _REFERENCE.finditer(text))


@contextmanager
def finding_published(find: Find) -> Iterator[None]:
    """Let what is read meanwhile call published workflows."""
    before = _FIND.set(find)
    try:
        yield
    finally:
        _FIND.reset(before)


def find_published(word: str) -> Workflow:
    """The published workflow. `LanguageError` if there is none, or no catalogue to look into."""
    match = _REFERENCE.fullmatch(word)
    assert match is not None
    find = _FIND.get()
    if match[2] == "latest":
        raise _problem(f"'{word}' may be another workflow tomorrow", f"name a version: {match[1]}@1")
    if find is None:
        raise _problem(f"'{word}' is of the catalogue of a store, and none is read here", "")
    try:
        return find(match[1], int(match[2]))
    except NotFound as error:
        raise _problem(error.message, error.hint) from None


def _problem(message: str, hint: str) -> LanguageError:
    return LanguageError([Problem("language.include", message, hint=hint)])
