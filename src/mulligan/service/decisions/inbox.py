"""What waits for a person, as `Service.decisions` gives it: all of it, and one thing with what helps to decide."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mulligan.core.effects.snapshot import read_decision, read_place
from mulligan.core.model.events import AttemptFailed, AttemptSucceeded
from mulligan.core.model.place_keys import is_at_or_below, step_name
from mulligan.core.model.text.formatting import quote_names
from mulligan.errors import InputInvalid, Refused
from mulligan.ports import LogKey
from mulligan.service.decisions.earlier_decisions import EarlierDecision, find_earlier
from mulligan.service.decisions.pending import (
    PendingEntry,
    PendingPage,
    Waiting,
    commands_for_pending,
    find_waiting,
    read_waiting,
)
from mulligan.service.runs.stored.run_reader import RunReader

# How much of the end of a log is shown.
TAIL_BYTES, TAIL_LINES = 8_192, 40
# How many of the newest events are read for the answer to an approval.
EVENTS_MAX = 2_000
# How many approvals below a step are named.
NAMED_MAX = 10


class LogTail(msgspec.Struct, frozen=True):
    """The end of what the failed attempt wrote."""

    stream: Literal["stdout", "stderr"]
    text: str
    # Whether there is more before it.
    is_cut: bool


class GivenAnswer(msgspec.Struct, frozen=True):
    """What somebody decided about a step that does not wait any more."""

    verdict: str
    by: str
    reason: str
    at: datetime | None


class PendingDetails(msgspec.Struct, frozen=True):
    """A step that waits for a person, or that has waited."""

    run_id: int
    step: str
    # None if it does not wait any more.
    entry: PendingEntry | None
    # The last answer, if it does not wait any more and somebody gave one.
    answer: GivenAnswer | None
    log: LogTail | None
    # What was decided about the same error: about the same step first, each group the newest first.
    decisions: list[EarlierDecision]
    # The display name of the step: `check[web]` for a command of an item.
    name: str = ""


class Decisions:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def list_pending(self) -> list[PendingEntry]:
        """What waits, over all runs, oldest run first. A run that cannot be read has an `error` and hides no other."""
        return read_waiting(self._reader.store, find_waiting(self._reader.store)) if self._reader.home.is_there else []

    def pending_page(self, *, after: tuple[int, str] | None = None, limit: int = 100) -> PendingPage:
        """A page of it: what comes behind run and step `after`, with the commands that answer.

        Only the runs of the page are read.
        """
        if limit < 1:
            raise InputInvalid(f"a page has at least 1 entry, not {limit}")
        if not self._reader.home.is_there:
            return PendingPage([], None, 0)
        found = find_waiting(self._reader.store)
        left = [key for key in sorted(found) if after is None or key > after]
        page = left[:limit]
        entries = self._read_answerable({key: found[key] for key in page})
        return PendingPage(entries, page[-1] if len(left) > limit else None, len(found))

    def _read_answerable(self, waiting: Waiting) -> list[PendingEntry]:
        """The entries, with the commands that answer."""
        entries = read_waiting(self._reader.store, waiting)
        for entry in entries:
            entry.commands = commands_for_pending(entry)
        return entries

    def details(self, run_id: int, step: str) -> PendingDetails:
        """A step that waits for a person: the end of its log, and earlier decisions about the same error.

        For a step that does not wait any more: what was decided. `UnknownRun`, `UnknownStep`.
        """
        record, step = self._reader.record(run_id), self._reader.find_place(run_id, step)
        entry = self._find(run_id, step)
        if entry is None:
            self._reader.refuse_unknown(run_id, step_name(step))
            name = self._reader.name_places(run_id, [step])[step]
            return PendingDetails(run_id, step, None, self._answer(run_id, step), None, [], name)
        failure, decisions = entry.failure, list[EarlierDecision]()
        if entry.kind == "parked" and failure is not None:
            workflow = entry.workflow or record.workflow
            decisions = find_earlier(self._reader.store, workflow, step, failure["code"], failure["exit_code"])
        name = entry.name or step
        return PendingDetails(run_id, entry.step or step, entry, None, self._tail(entry), decisions, name)

    def find_approval(self, run_id: int, step: str) -> str:
        """The place that waits for an approval: the step, or the only command below it that does."""
        self._reader.record(run_id)
        step = self._reader.find_place(run_id, step)
        approvals = [
            one.place for one in self._reader.store.waiting_places() if one.run_id == run_id and one.kind == "approval"
        ]
        below = [place for place in approvals if is_at_or_below(place, step)]
        if step in approvals or not below:
            return step
        if len(below) > 1:
            names = list(self._reader.name_places(run_id, below).values())
            message = f"{len(below)} approvals wait in step '{step}': {quote_names(names, NAMED_MAX)}"
            raise Refused(message, hint="name one of them", step=step, item_names=names[:NAMED_MAX])
        return below[0]

    def _find(self, run_id: int, step: str) -> PendingEntry | None:
        """The entry of a step, or of the only command below it that waits."""
        waiting = find_waiting(self._reader.store)
        below = [key for key in waiting if key[0] == run_id and key[1] and is_at_or_below(key[1], step)]
        key = (run_id, step) if (run_id, step) in waiting else below[0] if len(below) == 1 else None
        found = self._read_answerable({key: waiting[key]}) if key is not None else []
        return found[0] if found else None

    def _tail(self, entry: PendingEntry) -> LogTail | None:
        if entry.kind != "parked" or entry.error or not entry.step or not entry.attempt:
            return None
        return read_tail(self._reader, entry.run_id, entry.step, entry.attempt)

    def _answer(self, run_id: int, step: str) -> GivenAnswer | None:
        """The last decision about a step, or the answer to its approval."""
        rows = self._reader.store.lists.rows([run_id], "decisions", EVENTS_MAX)
        decided = [one for key, one in (read_decision(key, data) for _, key, data in rows) if key == step]
        if decided:
            last = max(decided, key=lambda one: one.at)
            return GivenAnswer(last.verdict, last.by, last.reason, last.at)
        found = self._reader.store.lists.places([(run_id, step)])
        place = read_place(step, found[0][2]) if found else None
        if place is not None and place.climb.ruling is not None:
            ruling = place.climb.ruling
            return GivenAnswer(ruling.verdict, ruling.by, ruling.reason, None)
        return self._approval(run_id, step)

    def _approval(self, run_id: int, step: str) -> GivenAnswer | None:
        seq = self._reader.record(run_id).seq
        for entry in reversed(self._reader.store.log(run_id, max(0, seq - EVENTS_MAX))):
            fact = entry.fact
            if isinstance(fact, AttemptSucceeded) and fact.place == step and isinstance(fact.output, dict):
                said = fact.output
                if said.get("approved") is True:
                    by, reason = str(said.get("by", "")), str(said.get("reason", ""))
                    return GivenAnswer("approve", by, reason, entry.at)
            if isinstance(fact, AttemptFailed) and fact.place == step and fact.failure.code == "APPROVAL_REFUSED":
                by = str((fact.failure.details or {}).get("by", ""))
                return GivenAnswer("refuse", by, fact.failure.message, entry.at)
        return None


def read_tail(reader: RunReader, run_id: int, place: str, attempt: int) -> LogTail | None:
    """The end of what an attempt wrote to stderr; to stdout if nothing was written there."""
    streams: tuple[Literal["stdout", "stderr"], ...] = ("stderr", "stdout")
    for stream in streams:
        key = LogKey(run_id, place, attempt, stream)
        found = reader.log_ranges.size(key)
        if found is None or not found.size:
            continue
        start = max(0, found.size - TAIL_BYTES)
        text = reader.log_ranges.read(key, start, found.size).decode("utf-8", "replace")
        lines = text.splitlines()[1 if start else 0 :]
        shown = lines[-TAIL_LINES:] or [text[-TAIL_BYTES:]]
        return LogTail(stream, "\n".join(shown), bool(start) or len(lines) > TAIL_LINES)
    return None
