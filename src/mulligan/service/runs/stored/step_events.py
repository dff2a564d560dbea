"""The events of single steps, found in the log by the store: quick in a run of any size, and nothing is read ahead."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.place_keys import step_name
from mulligan.service.runs.stored.attempts import Cost, Costs
from mulligan.service.runs.stored.remembered import ReadsRuns, forget_oldest
from mulligan.service.runs.stored.run_reader import RunReader

# How many steps are remembered, and how many events all of them together have at most; the last one always stays.
STEPS_MAX, ENTRIES_MAX = 200, 50_000
# In place of the index of an item: the step itself.
NO_ITEM = -1
# In place of the name of a step: the run itself. No step is called so.
_RUN = ""


class _Found(msgspec.Struct):
    """The events of a step, of one of its items or of the run itself, up to an event of the log."""

    seq: int = 0
    entries: list[e.Entry] = []


class StepEvents(ReadsRuns):
    """The events of steps that are looked at again and again: only what the log has got since is searched."""

    def __init__(self, reader: RunReader) -> None:
        super().__init__(reader)
        self._found: OrderedDict[tuple[int, str, int], _Found] = OrderedDict()
        # What the items of a step cost: there may be many of them, so that their events are not kept.
        self._costs: OrderedDict[tuple[int, str], tuple[int, Costs]] = OrderedDict()

    def entries(self, run_id: int, step: str, item: int = NO_ITEM) -> list[e.Entry]:
        """The events of a step and its commands without those of its items, or of one item, in their order."""
        return list(self._read(run_id, step, item).entries)

    def entries_with_run(self, run_id: int, step: str, item: int = NO_ITEM) -> list[e.Entry]:
        """The same with the events of the run as a whole; for an item also with those of its step."""
        parts = [self._read(run_id, _RUN, NO_ITEM), self._read(run_id, step, NO_ITEM)]
        if item != NO_ITEM:
            parts.append(self._read(run_id, step, item))
        return sorted((entry for part in parts for entry in part.entries), key=lambda entry: entry.seq)

    def cost_of_items(self, run_id: int, step: str) -> Cost | None:
        """What the attempts at the items of a step cost together; None if nothing was measured."""
        last = self._reader.record(run_id).seq
        seq, costs = self._costs.pop((run_id, step), (0, Costs()))
        if seq < last:
            for entry in self._reader.store.search_log(run_id, (_value(f"{step}["),), seq, also='"usage":{'):
                if _belongs(entry, step, None):
                    costs.see(entry)
                    last = max(last, entry.seq)
        self._costs[run_id, step] = last, costs
        forget_oldest(self._costs, STEPS_MAX)
        return costs.by_step.get(step)

    def _read(self, run_id: int, step: str, item: int) -> _Found:
        # Before the search, which may see later events too.
        last = self._reader.record(run_id).seq
        key = (run_id, step, item)
        found = self._found.pop(key, None) or _Found()
        if found.seq < last:
            some = self._reader.store.search_log(run_id, _texts(step, item), found.seq)
            found.entries += [entry for entry in some if _belongs(entry, step, item)]
            found.seq = max(last, found.entries[-1].seq if found.entries else 0)
        self._found[key] = found
        forget_oldest(self._found, STEPS_MAX, ENTRIES_MAX, lambda one: len(one.entries))
        return found


def _texts(step: str, item: int) -> tuple[str, ...]:
    """What the stored JSON of such an event contains. Others may contain it too."""
    if not step:
        return ('"type":"run.',)
    name = step if item == NO_ITEM else f"{step}[{item}]"
    return _value(f"{name}") + '"', _value(f"{name}.")


def _value(beginning: str) -> str:
    """A value of a field that begins like this, as it is stored."""
    return f'":{msgspec.json.encode(beginning).decode()[:-1]}'


def _belongs(entry: e.Entry, step: str, item: int | None) -> bool:
    """Whether an event is about the step itself, about this item of it, or (None) about any item of it."""
    place = place_of(entry)
    found = _item_of(place)
    return step_name(place) == step and (found != NO_ITEM if item is None else found == item)


def place_of(entry: e.Entry) -> str:
    """The place that an event is about; "" for one about the whole run."""
    fact = entry.fact
    return getattr(fact, "place", "") or getattr(fact, "step", "")


def _item_of(place: str) -> int:
    _, bracket, rest = place.partition(".")[0].partition("[")
    index = rest.rstrip("]")
    return int(index) if bracket and index.isdecimal() else NO_ITEM
