"""What a new run is found by in a database, and how far a search for words looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mulligan.core.effects.run_lists import Attribute, attribute_words, attributes, start_words
from mulligan.ports import NewRun
from mulligan.store.encoding import micros

NO_LIMIT = 2**63 - 1
# How many of the newest runs are searched for words before the index is asked for all of them.
NEAR_RUNS = 1_000


class NewEntries(msgspec.Struct, frozen=True):
    """What a new run is found by: attributes, words that stay, and words of inputs, which a corrected file changes."""

    attributes: Sequence[Attribute]
    words: str
    input_words: str


def new_entries(run: NewRun) -> NewEntries:
    request = run.request
    found = attributes(request.inputs, request.labels)
    return NewEntries(found, start_words(run.name, request.by, request.labels), attribute_words(found))


def creation_skew(runs: Iterable[NewRun]) -> tuple[int, int]:
    """The earliest creation time of new runs, and how far their order by time differs from their own; microseconds."""
    latest = among = 0
    times = [micros(run.request.at) for run in runs]
    for at in times:
        latest = max(latest, at)
        among = max(among, latest - at)
    return min(times), among
