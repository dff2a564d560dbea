"""How the SQLite file finds runs by words: the newest in a table, all others in a full-text index."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from mulligan.store.encoding import encoded
from mulligan.store.run_search import NEAR_RUNS
from mulligan.store.sql.sql_arrays import Texts
from mulligan.store.sql.sql_lists import SqlRunLists

# The longest beginning of a word that the full-text index has as such: `prefix` of its table.
_BEGINNING_CHARS_MAX = 4


class SqliteRunLists(SqlRunLists):
    def _candidates_by_words(self, words: tuple[str, ...], before: int, after: int, limit: int) -> list[int]:
        """The newest runs are not in the index yet. They are asked first: meanwhile they may be moved there."""
        newest = self._db.query("candidates_by_new_words", before, after, limit, Texts(words))
        if newest:
            before = newest[-1][0]
        missing = limit - len(newest)
        older = self._candidates_by_index(words, before, after, missing) if missing else []
        return [run_id for (run_id,) in newest] + older

    def _candidates_by_index(self, words: tuple[str, ...], before: int, after: int, limit: int) -> list[int]:
        """Beginnings of words are in the index, so the newest runs with them come first; whole words are not."""
        beginnings = _match(word[:_BEGINNING_CHARS_MAX] for word in words)
        if all(len(word) <= _BEGINNING_CHARS_MAX for word in words):
            rows = self._db.query("candidates_by_words", before, after, limit, beginnings)
        else:
            asked = (before, after, limit, beginnings, NEAR_RUNS, Texts(words))
            rows = self._db.query("candidates_by_words_near", *asked)
            if len(rows) < limit:
                rows = self._db.query("candidates_by_words", before, after, limit, _match(words))
        return [run_id for (run_id,) in rows]

    def _words(self, words: tuple[str, ...]) -> Texts:
        return Texts(words)

    def _places(self, keys: Collection[tuple[int, str]]) -> list[Any]:
        return self._db.query("places_at", encoded(list(keys)).decode())


def _match(words: Iterable[str]) -> str:
    """The query of the full-text index for runs that have a word beginning with each of these."""
    return " ".join(f'"{word}"*' for word in words)
