"""How a PostgreSQL server finds runs by words."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mulligan.store.run_search import NEAR_RUNS, NO_LIMIT
from mulligan.store.sql.sql_arrays import Bigints, Texts
from mulligan.store.sql.sql_lists import SqlRunLists


class PostgresRunLists(SqlRunLists):
    def _candidates_by_words(self, words: tuple[str, ...], before: int, after: int, limit: int) -> list[int]:
        """First a look at the newest runs: the index has no order, so a word that many runs have takes it long."""
        newest = before if before < NO_LIMIT else (self._db.query("last_run_id")[0][0] or 0) + 1
        near = max(after, newest - NEAR_RUNS)
        query: dict[str, Any] = {"words": self._words(words), "before": before, "limit": limit}
        rows = self._db.query("candidates_by_words_near", **query, after=near)
        if len(rows) < limit and near > after:
            rows = self._db.query("candidates_by_words", **query, after=after)
        return [run_id for (run_id,) in rows]

    def _words(self, words: tuple[str, ...]) -> str:
        """The query for runs that have a word beginning with each of these."""
        return " & ".join(f"'{word}':*" for word in words)

    def _places(self, keys: Collection[tuple[int, str]]) -> list[Any]:
        return self._db.query("places_at", Bigints(run_id for run_id, _ in keys), Texts(key for _, key in keys))
