"""Files of steps whose results are kept: held against the disk before a round or a fork relies on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from mulligan.core.deciding.rounds import kept_files, written_files
from mulligan.core.model.file_records import FileRecord, StaleFile, stale_files
from mulligan.core.state.state import State
from mulligan.service.home import this_host
from mulligan.worker.file_hashes import problem_of


def stale_of_round(state: State, from_step: str) -> tuple[StaleFile, ...]:
    """Files of the steps that another round would keep, and that are gone or have changed since."""
    return _stale(state, kept_files(state, from_step))


def stale_results(state: State, steps: Iterable[str]) -> tuple[StaleFile, ...]:
    """Files of these steps that are gone or have changed since the steps completed."""
    return _stale(state, written_files(state, steps))


def _stale(state: State, written: Iterator[tuple[str, FileRecord]]) -> tuple[StaleFile, ...]:
    """What was written on another host is not looked for here: its disk may be another one."""
    here = ("", this_host())
    ours = ((step, record) for step, record in written if state.places[step].host in here)
    return stale_files(ours, partial(problem_of, home=state.run.cwd))
