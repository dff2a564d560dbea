"""Shapes that NoETL's mappings are made of."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mulligan.language.nodes import Mapping, Refusal, Scalar, Source, shorten
from mulligan.language.shapes import (
    TEXT,
    Deferred,
    Either,
    Json,
    Key,
    Nothing,
    Record,
    Value,
    number,
    whole,
)
from mulligan.language.suggestions import key_hint

# A value in which templates may stand: it goes on as it is written.
ANY = Deferred(Json)
NAME = Either("a name", text=TEXT, number=Value("a name", str, {"type": "number"}))
SECONDS = number(0, 86_400 * 365)
ATTEMPTS = whole(1, 1000)
GROWTH = number(1, 1000)
DESCRIPTION = Key(Either("a text", text=TEXT, empty=Nothing()), "the step's 'description'")


class Dialect(Record, frozen=True):
    """A mapping of one of NoETL's dialects. A key of another one is refused with what to write here."""

    elsewhere: dict[str, str] = msgspec.field(default_factory=dict)

    def _refuse_unknown(self, key: Scalar, node: Mapping, label: str, source: Source) -> Refusal:
        hint = self.elsewhere.get(key.text) or key_hint(key.text, self.words)
        return source.refuse("unknown_key", f"'{shorten(key.text)}' is not a key of {label}", key, hint=hint)


class Open(Record, frozen=True):
    """A mapping in which NoETL takes whatever else is there."""

    def known(self, word: str) -> Key | None:
        return self.keys.get(word) or _WHATEVER

    @property
    def words(self) -> Collection[str]:
        return self.keys


_WHATEVER = Key(ANY)
