"""What attempts wrote, as `Service.logs` gives it: whole, by line, by position, while it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.ports import LogKey
    from mulligan.service.logs.log_following import AttemptFollower, LogPiece, LogSelection
    from mulligan.service.logs.log_lines import LogLines
    from mulligan.service.logs.log_pages import LogPages
    from mulligan.service.logs.log_ranges import LogRanges
    from mulligan.service.logs.logs import (
        Part,
    )
    from mulligan.service.runs.stored.run_cache import RunCache
    from mulligan.service.runs.stored.run_reader import AttemptLog, RunReader


class Logs:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader, cache: Callable[[], RunCache]) -> None:
        self._reader = reader
        self._cache = cache

    def event_lines(self, run_id: int) -> Iterator[bytes]:
        """The events of a run as JSON lines, as they are stored."""
        from mulligan.service.logs import logs

        return logs.event_lines(self._reader, run_id)

    def plain_events(self, run_id: int) -> Iterator[dict[str, Any]]:
        """The events of a run as plain data: the same as their JSON says."""
        from mulligan.service.logs import logs

        return logs.plain_events(self._reader, run_id)

    def step_logs(
        self,
        run_id: int,
        step: str,
        *,
        item: int | None = None,
        attempt: int | None = None,
        part: Part = "own",
    ) -> list[AttemptLog]:
        """What the attempts of a step wrote: of one item, of one attempt or the last, of its handler or script."""
        from mulligan.service.logs import logs

        return logs.step_logs(self._reader, run_id, step, item=item, attempt=attempt, part=part)

    def first_logs(self, run_id: int) -> tuple[list[AttemptLog], int]:
        """The logs that are asked for first, of what failed or else ran last; and how many more failed."""
        from mulligan.service.logs import logs

        return logs.first_logs(self._reader, run_id)

    def attempt_log(self, run_id: int, place: str, attempt: int) -> AttemptLog:
        """What one attempt wrote; empty if it wrote nothing, or its log is neither here nor in the store."""
        return self._reader.attempt_log(run_id, place, attempt)

    @property
    def ranges(self) -> LogRanges:
        """What attempts wrote, by position."""
        return self._reader.log_ranges

    def follow_log(self, key: LogKey, start: int = 0) -> AttemptFollower:
        """One stream of an attempt while it is written. To be read again and again until it is over."""
        from mulligan.service.logs import log_following

        return log_following.AttemptFollower(self._reader, key, start)

    def follow_logs(self, run_id: int, selection: LogSelection, *, by_line: bool = False) -> Iterator[LogPiece]:
        """What the attempts of a step or of a whole run write, as they write it, until it ends."""
        from mulligan.service.logs import log_following

        return log_following.follow_logs(self._reader, run_id, selection, by_line=by_line)

    @property
    def lines(self) -> LogLines:
        """Logs by line: how many there are, and which have a text."""
        from mulligan.service.logs import log_lines

        return log_lines.LogLines(self._reader.log_ranges, self._cache().counted_logs)

    @property
    def pages(self) -> LogPages:
        """Parts of logs, by line."""
        from mulligan.service.logs import log_pages

        return log_pages.LogPages(self._reader, self._cache().counted_logs)
