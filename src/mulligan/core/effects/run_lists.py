"""Filters, attributes and open work of runs, for lists that do not load the runs themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Literal

import msgspec

from mulligan.core.model.events import Entry, RunRevised
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import END, LABEL_CHARS_MAX
from mulligan.core.state.state import FailureRecord

# What a run can be found by, besides workflow, status and time.
AttributeKind = Literal["input", "label"]
# kind, name, value
Attribute = tuple[AttributeKind, str, str]
# Longer values are not indexed.
ATTRIBUTE_CHARS_MAX = LABEL_CHARS_MAX
# How much of a run can be found by its words: of one word, of one failure's message, and how many failures.
WORD_CHARS_MAX, MESSAGE_CHARS_MAX, FAILURES_MAX = 40, 300, 10
# How many words of a run's start, of its inputs and of its failures. PostgreSQL has a megabyte for all of them.
WORDS_MAX = 2_000
_WORD = lazy_regex(r"[^\W_]+")


class RunFilter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which runs to list. An empty field accepts every run. How stores find them: `mulligan.store.run_filters`.

    A server that does not know a field yet refuses what asks for it.
    """

    statuses: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    # Created at `since` or later, and before `until`.
    since: datetime | None = None
    until: datetime | None = None
    # All must match. A child run has the attributes of the root of its tree.
    attributes: tuple[Attribute, ...] = ()
    # Started by one of these users.
    starters: tuple[str, ...] = ()
    # Failed with one of these codes in a failure that nothing handled, when its last round ended.
    failure_codes: tuple[str, ...] = ()
    # Each begins a word of the run: see `search_words`. A child run has the words of the root of its tree.
    words: tuple[str, ...] = ()
    # Whether to include child runs.
    with_children: bool = False
    # Of one project; None for all.
    project: str | None = None


class RunFailures(msgspec.Struct, frozen=True):
    """What a run is found by when a round has ended: the codes and the words of its unhandled failures."""

    codes: tuple[str, ...] = ()
    words: str = ""


class OutcomeCount(msgspec.Struct, frozen=True):
    """How many runs of a workflow have a status. A degraded run completed although something failed."""

    workflow: str
    status: str
    degraded: bool
    count: int


class OpenTasks(msgspec.Struct, frozen=True):
    """Tasks of one tree of runs that one worker has, or that are queued (worker ""): the oldest, and how many."""

    root_run_id: int
    run_id: int
    place: str
    attempt: int
    worker: str
    # Their circuit breaker; "" for none.
    breaker: str
    count: int


class OpenTimer(msgspec.Struct, frozen=True):
    """Timers of one kind that a tree of runs waits for: the first that is due, and how many."""

    root_run_id: int
    run_id: int
    kind: str
    place: str
    due: datetime
    count: int


class LeasedTask(msgspec.Struct, frozen=True):
    """A task that a worker has now, and the resources reserved for it."""

    worker: str
    run_id: int
    workflow: str
    place: str
    attempt: int
    cpus: float
    memory: int
    gpus: int
    # None for a task that was leased before stores recorded the time.
    leased_at: datetime | None = None


class QueuedShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """What queued tasks ask for, and how many of them ask for exactly this. Memory in bytes, 0 for any."""

    cpus: float = 1.0
    memory: int = 0
    gpus: int = 0
    nodes: int = 1
    labels: tuple[str, ...] = ()
    # How long a worker must run on: its timeout, or the time that it has shown to need. None if any may have it.
    timeout: float | None = None
    count: int = 0


def attributes(inputs: Mapping[str, Any], labels: Mapping[str, str]) -> list[Attribute]:
    """The attributes of a run: its labels, and its inputs that are single, short values."""
    texts = ((name, attribute_text(value)) for name, value in inputs.items())
    found: list[Attribute] = [("input", name, text) for name, text in texts if text is not None and _is_indexable(name)]
    return found + [("label", name, value) for name, value in labels.items()]


def search_words(texts: Iterable[str]) -> tuple[str, ...]:
    """The words of these texts that a run is found by: letters and digits, in small letters, each once, sorted."""
    found = (word for text in texts for word in _WORD.findall(text.casefold()) if "\0" not in word)
    different = dict.fromkeys(word[:WORD_CHARS_MAX] for word in found)
    return tuple(sorted(islice(different, WORDS_MAX)))


def start_words(workflow: str, starter: str, labels: Mapping[str, str]) -> str:
    """What a run is found by from its start to its end: the words of its workflow's name, its starter and its labels.

    As stores have it: the words with a space between two.
    """
    return " ".join(search_words((workflow, starter, *labels.values())))


def input_words(inputs: Mapping[str, Any]) -> str:
    """The words of the inputs that are single, short values."""
    return attribute_words(attributes(inputs, {}))


def attribute_words(found: Iterable[Attribute]) -> str:
    """The words of the inputs among these attributes."""
    return " ".join(search_words(value for kind, _, value in found if kind == "input"))


def run_failures(unhandled: Iterable[FailureRecord]) -> RunFailures:
    """What a failed run is found by: codes, and the words of steps, codes and messages."""
    records = list(unhandled)
    texts = (text for record in records[:FAILURES_MAX] for text in _failure_texts(record))
    # A step may fail with a code of its own, of any length.
    codes = sorted({record.failure.code for record in records if _is_indexable(record.failure.code)})
    return RunFailures(tuple(codes), " ".join(search_words(texts)))


def _failure_texts(record: FailureRecord) -> Iterator[str]:
    yield from (record.step, record.failure.code, record.failure.message[:MESSAGE_CHARS_MAX])


def corrected_inputs(entries: Iterable[Entry]) -> dict[str, Any] | None:
    """The inputs of a run after these entries; None if no corrected definition changes them."""
    found = None
    for entry in entries:
        if type(entry.fact) is RunRevised:
            found = entry.fact.inputs
    return found


def attribute_text(value: Any) -> str | None:
    """A value as written in a filter (`3`, `true`, `null`, text as it is); None if it is not indexed."""
    if isinstance(value, str):
        text = value
    elif type(value) is int:
        text = str(value)  # the encoder would take ten times as long, for every run that starts
    elif value is None or isinstance(value, int | float):
        text = json.dumps(value)
    else:
        return None
    return text if _is_indexable(text) else None


def _is_indexable(text: str) -> bool:
    """Whether a text can be indexed: it is short, and has no NUL, which PostgreSQL cannot store."""
    return len(text) <= ATTRIBUTE_CHARS_MAX and "\0" not in text


def unhandled_by_records(records: Iterable[FailureRecord]) -> list[FailureRecord]:
    """The failed visits that fail a run, as far as the records alone show, in order.

    `verdict.unhandled` is exact, since it has the state. A remediation that failed has a record; one without a record
    is taken to have completed. If that leaves nothing, every failure that was not allowed counts.
    """
    known = sorted((one for one in records if not one.is_closed and not one.recovered_by), key=lambda one: one.seq)
    by_visit = {(one.step, one.visit): one for one in known}
    found = [one for one in known if not one.is_allowed and one.step != END]
    return [one for one in found if not _is_handled_by_records(one, by_visit)] or found


def _is_handled_by_records(record: FailureRecord, by_visit: Mapping[tuple[str, int], FailureRecord]) -> bool:
    while record.target and not record.is_target_skipped:
        remedy = by_visit.get((record.target, record.target_visit))
        if remedy is None:
            return True
        if remedy.is_allowed:
            return False
        if record.is_caught:
            return True
        record = remedy
    return False
