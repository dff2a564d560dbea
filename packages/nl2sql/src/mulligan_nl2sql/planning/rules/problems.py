"""Why a reading of a question is none."""

from __future__ import annotations

from mulligan_nl2sql.planning.rules.phrases import Span


class Problem(Exception):
    """A reading that says nothing that can be asked of this schema. Shown last if it `is_general`."""

    def __init__(self, message: str, span: Span = (0, 0), *, is_general: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.is_general = is_general


class Unclear(Problem):
    """Words that may mean several things, if they mean anything at all: another reading may be right."""

    def __init__(self, message: str, span: Span, candidates: list[str]) -> None:
        super().__init__(message, span)
        self.candidates = tuple(dict.fromkeys(candidates))


class Ambiguous(Unclear):
    """Words that certainly mean one of several things: the question is refused, whatever other readings say."""
