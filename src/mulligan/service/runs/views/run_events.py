"""The events of a run for people: the newest first, each in a sentence where the story has one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.codec import encode
from mulligan.core.model.place_keys import step_name
from mulligan.errors import InputInvalid
from mulligan.history.called_steps import where_text
from mulligan.history.story import StoryWriter, Tone
from mulligan.history.story_memory import StoryMemory
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.runs.stored.run_reader import RunReader

# How many events one page has at most, how many are searched for those of a type, and how many are read before a page
# so that its sentences know what led to them.
LIMIT_MAX, SEARCHED_MAX, MEMORY = 500, 20_000, 2_000


def _fact_types(fact: type[e.Fact]) -> Iterator[tuple[str, type[e.Fact]]]:
    for below in fact.__subclasses__():
        yield from _fact_types(below)
        if not below.__name__.startswith("_"):
            yield str(below.__struct_config__.tag), below


# The types of events by their names in the log, such as `attempt.failed`.
EVENT_TYPES: dict[str, type[e.Fact]] = dict(_fact_types(e.Fact))

EventGroup = Literal["failures", "recovery", "people", "steps", "attempts", "items", "run"]
_FAILED = (
    "attempt.failed result.rejected attempt.lost step.failed item.failed command.failed handler.failed undo.failed"
)
GROUPS: dict[EventGroup, frozenset[str]] = {
    "failures": frozenset(f"{_FAILED} run.failed warning.recorded report.refused".split()),
    "recovery": frozenset(
        "rung.passed retry.scheduled handler.started handler.succeeded handler.failed step.parked step.classified "
        "triage.suggested step.put_back step.stood_in undo.started undo.completed undo.failed loop.taken "
        "loop.fired".split()
    ),
    "people": frozenset(
        "run.started run.forked run.paused run.resumed run.stopping run.reopened run.revised step.paused step.resumed "
        "step.classified".split()
    ),
    "steps": frozenset(name for name in EVENT_TYPES if name.startswith("step.")),
    "attempts": frozenset(name for name in EVENT_TYPES if name.startswith(("attempt.", "result."))),
    "items": frozenset(name for name in EVENT_TYPES if name.startswith(("item.", "map.", "command."))),
    "run": frozenset(name for name in EVENT_TYPES if name.startswith("run.")),
}


class EventLine(msgspec.Struct, frozen=True):
    """An event: its type, the step and the place that it is about, a sentence, and all of it as JSON."""

    seq: int
    at: datetime
    type: str
    step: str
    place: str
    text: str
    tone: Tone
    # Whether it is a sentence of the story; otherwise a few words about the event.
    is_story: bool
    # The last lines that a failed attempt wrote.
    tail: tuple[str, ...]
    # The run that was called here; 0 if none was.
    child_run_id: int
    json: str
    # The display name of the place: `load[west]`.
    name: str = ""

    @property
    def shown_place(self) -> str:
        return self.name or self.place


class EventFeed(msgspec.Struct, frozen=True):
    """Some events, the newest first. `before`: what the page with older ones is asked for with; None at the start."""

    run_id: int
    events: list[EventLine]
    before: int | None
    seq: int


def read_feed(
    reader: RunReader,
    run_id: int,
    *,
    groups: Collection[str] = (),
    types: Collection[str] = (),
    step: str = "",
    before: int | None = None,
    limit: int = 100,
) -> EventFeed:
    """The newest events before number `before`, of these groups or types, about this step."""
    wanted = _wanted(groups, types)
    last = reader.record(run_id).seq
    newest = last if before is None else min(before - 1, last)
    limit = min(max(1, limit), LIMIT_MAX)
    found: list[e.Entry] = []
    position, lowest = newest, max(0, newest - SEARCHED_MAX)
    size = limit if not wanted and not step else max(limit, 1_000)
    while position > lowest and len(found) < limit:
        start = max(lowest, position - size)
        some = reader.store.log(run_id, start, position - start)
        kept = [
            one for one in some if (not wanted or _type(one.fact) in wanted) and (not step or _step(one.fact) == step)
        ]
        found = [*kept[-(limit - len(found)) :], *found]
        position = start
    oldest = found[0].seq if len(found) == limit else position + 1
    return EventFeed(run_id, _lines(reader, run_id, found), oldest if oldest > 1 else None, last)


def _wanted(groups: Collection[str], types: Collection[str]) -> frozenset[str]:
    for name in groups:
        if name not in GROUPS:
            raise InputInvalid(f"'{name}' is not a group of events", hint=f"one of {', '.join(GROUPS)}")
    for name in types:
        if name not in EVENT_TYPES:
            raise InputInvalid(f"'{name}' is not a type of an event", hint=did_you_mean(name, EVENT_TYPES))
    return frozenset(types).union(*(GROUPS[name] for name in groups))  # type: ignore[index]


def _type(fact: e.Fact) -> str:
    return str(type(fact).__struct_config__.tag)


def _step(fact: e.Fact) -> str:
    return str(getattr(fact, "step", "")) or step_name(getattr(fact, "place", ""))


def _lines(reader: RunReader, run_id: int, found: list[e.Entry]) -> list[EventLine]:
    """The events in words, the newest first."""
    if not found:
        return []
    shown = {entry.seq: entry for entry in found}
    first = max(0, found[0].seq - 1 - MEMORY)
    writer = StoryWriter(reader.first_workflow(run_id), reader.called(run_id))
    lines = []
    for entry in reader.store.log(run_id, first, found[-1].seq - first):
        sentences = writer.lines_for(entry)
        if entry.seq in shown:
            said = [one for one in sentences if not one.is_detail] or sentences
            lines.append(event_line(entry, said, writer.memory))
    return lines[::-1]


def event_line(entry: e.Entry, said: Iterable[Any], memory: StoryMemory) -> EventLine:
    """An event with the sentences that the story has about it, or with a few words.

    `memory`: of the writer of the sentences, which knows the names of items.
    """
    fact, sentences = entry.fact, list(said)
    name, place = _type(fact), str(getattr(entry.fact, "place", "")) or _step(entry.fact)
    return EventLine(
        seq=entry.seq,
        at=entry.at,
        type=name,
        step=_step(fact),
        place=place,
        text="; ".join(one.text for one in sentences) or " ".join(filter(None, _plain_words(fact, name))),
        tone=sentences[0].tone if sentences else "plain",
        is_story=bool(sentences),
        tail=sentences[0].tail if sentences else (),
        child_run_id=next((one.child_run_id for one in sentences if one.child_run_id), 0),
        json=encode(entry).decode("utf-8", "replace"),
        name=memory.name_of(place),
    )


def _plain_words(fact: e.Fact, name: str) -> Iterator[str]:
    """A few words for an event that no sentence is about."""
    if isinstance(fact, e.RungPassed):
        yield f"{fact.rung.replace('_', ' ')} did not help: {fact.reason.replace('_', ' ')}"
        return
    if (words := _PROGRAM_WORDS.get(type(fact))) is not None:
        yield words(fact)
        return
    yield name.partition(".")[2].replace("_", " ")
    if attempt := getattr(fact, "attempt", 0):
        yield f"(attempt {attempt})"
    elif visit := getattr(fact, "visit", 0):
        yield f"(visit {visit})" if visit > 1 else ""


def _at(where: str) -> str:
    return f" ({where})" if where else ""


# Of programs: the story says how their calls have ended, and not each of their turns.
_PROGRAM_WORDS: dict[type[e.Fact], Callable[[Any], str]] = {
    e.StepDefined: lambda fact: f"is going to call '{fact.definition.name}'",
    e.StepAdded: lambda fact: f"called{_at(where_text(fact))}",
    e.ValueRecorded: lambda fact: f"got a value of {fact.name}",
    e.CallCancelled: lambda fact: "not wanted any more",
    e.TurnStarted: lambda fact: f"turn {fact.turn} started",
    e.ProgramWaiting: lambda fact: f"waits for its calls{_at(fact.at)}",
    e.ProgramResumed: lambda fact: f"turn {fact.turn} is due",
    e.ProgramEnded: lambda fact: fact.how,
}
