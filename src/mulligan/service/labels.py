"""Labels of runs: what people call them, to find them again."""

from __future__ import annotations

from collections.abc import Mapping

from mulligan.core.effects.run_lists import ATTRIBUTE_CHARS_MAX
from mulligan.errors import InputInvalid

# Of a label's name, and how many one run may have.
NAME_CHARS_MAX, LABELS_MAX = 63, 50


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels, or `InputInvalid` where one is too long, empty, or more than one line."""
    if len(labels) > LABELS_MAX:
        raise InputInvalid(f"{len(labels)} labels are too many", hint=f"a run has at most {LABELS_MAX}")
    for name, value in labels.items():
        _check(f"the name of label '{_shown(name)}'", name, NAME_CHARS_MAX, is_needed=True)
        _check(f"the value of label '{_shown(name)}'", value, ATTRIBUTE_CHARS_MAX, is_needed=False)
    return dict(labels)


def _check(what: str, text: str, chars_max: int, *, is_needed: bool) -> None:
    hint = f"one line of at most {chars_max} characters"
    if is_needed and not text.strip():
        raise InputInvalid(f"{what} is empty", hint=hint)
    if len(text) > chars_max:
        raise InputInvalid(f"{what} has {len(text)} characters", hint=hint)
    if not text.isprintable():
        raise InputInvalid(f"{what} has a character that cannot be seen", hint=hint)


def _shown(name: str) -> str:
    return " ".join(name.split())[:NAME_CHARS_MAX]
