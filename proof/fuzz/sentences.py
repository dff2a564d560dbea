"""What a refusal must be: one of our own complete sentences, which can be shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mulligan.errors import LanguageError, MulliganError

# Python's words in one of our messages: an error was passed on unexplained.
_FOREIGN = re.compile(r"Traceback|object at 0x|<class |RecursionError|Exceeds the limit|NoneType")


class Wrong(AssertionError):
    """An input broke what its target promises."""


@contextmanager
def refusing(*others: type[Exception]) -> Iterator[None]:
    """Allow nothing to be raised but our own refusals, or the given other ones."""
    try:
        yield
    except MulliganError as error:
        require_whole(error)
    except others:
        pass


def require_whole(error: MulliganError) -> None:
    """Raise Wrong if a refusal has no message, or one that cannot be shown or understood."""
    sentences = [problem.message for problem in error.problems] if isinstance(error, LanguageError) else [error.message]
    shown = error.render()
    if not sentences or not all(sentences):
        raise Wrong(f"a refusal without words: {shown!r}")
    if not shown.startswith("error["):
        raise Wrong(f"no error: {shown!r}")
    for sentence in sentences:
        if found := _FOREIGN.search(sentence):
            raise Wrong(f"'{found[0]}' in a sentence of ours: {sentence[:300]!r}")


def require(is_so: bool, what: str) -> None:
    if not is_so:
        raise Wrong(what)
