"""What a refusal must be: a sentence of ours, whole, that can be shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mulligan.errors import LanguageError, MulliganError

# Words of Python's in a sentence of ours: somebody has passed on what he did not understand.
_FOREIGN = re.compile(r"Traceback|object at 0x|<class |RecursionError|Exceeds the limit|NoneType")


class Wrong(AssertionError):
    """What a target promises does not hold for an input."""


@contextmanager
def refusing(*others: type[Exception]) -> Iterator[None]:
    """Nothing may come out of here but a refusal of ours, or one of the others that are said."""
    try:
        yield
    except MulliganError as error:
        require_whole(error)
    except others:
        pass


def require_whole(error: MulliganError) -> None:
    """Wrong, where a refusal has no words, or words that nobody can show or understand."""
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
