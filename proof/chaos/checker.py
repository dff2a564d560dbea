"""What must hold when the faults are over and everything has ended. Each check yields its findings."""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import psycopg

from mulligan.core.model import events as e
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import is_handled
from mulligan.errors import MulliganError
from mulligan.ports import RunRecord
from mulligan.service.service import Service
from proof.chaos.faults import Outage
from proof.chaos.flows import FLOWS
from proof.chaos.journal import Line
from proof.chaos.sender import EVENT, EVENTS_EACH, SENDERS, Accepted, Sent
from proof.invariants.run_invariants import check
from proof.invariants.store_contents import StoreContents, read_tables
from proof.invariants.store_invariants import (
    STORE_PROMISES,
    StoreHistory,
    promise_7_dead_workers_are_expired,
    promise_7_no_worker_holds_a_finished_run,
    promise_10_every_message_is_answered,
)

Findings = Iterator[str]
PAGE = 1000
# Of what is found too often to read it all.
TOLD_MAX = 20
EVENTS_PER_RUN = SENDERS * EVENTS_EACH


class Totals(msgspec.Struct):
    """What the logs say was done."""

    runs: int = 0
    events: int = 0
    attempts: int = 0
    lost: int = 0
    reruns: int = 0
    retries: int = 0
    rounds: int = 0
    results: int = 0
    refused_reports: int = 0
    sent: int = 0
    endings: Counter[str] = msgspec.field(default_factory=Counter)


def all_runs(service: Service) -> list[RunRecord]:
    """Every run, the oldest first."""
    found: list[RunRecord] = []
    while page := service.reader.store.runs(limit=PAGE, before=found[-1].run_id if found else None):
        found += page
    return found[::-1]


# -- starts ----------------------------------------------------------------------------------------------------------


def check_starts(numbers: range, acknowledged: Mapping[int, int], started: Mapping[int, Sequence[int]]) -> Findings:
    """Every requested run exists, once. `started`: the top-level runs by their number."""
    for n in numbers:
        found = started.get(n, ())
        if n not in acknowledged:
            yield f"start {n} was never answered"
        elif list(found) != [acknowledged[n]]:
            yield f"start {n} was answered with run {acknowledged[n]}, and the store has {list(found)}"


# -- one run ---------------------------------------------------------------------------------------------------------


def check_run(service: Service, record: RunRecord, totals: Totals) -> tuple[list[str], list[e.Entry]]:
    """What is wrong with one run, and its log."""
    log = list(service.reader.events(record.run_id))
    _count(totals, record, log)
    return [f"run {record.run_id} ({record.workflow}): {found}" for found in _of_run(service, record, log)], log


def _of_run(service: Service, record: RunRecord, log: list[e.Entry]) -> Findings:
    if record.status not in RUN_ENDED:
        yield f"it is still {record.status}"
        return
    state = service.reader.state(record.run_id)
    try:
        check(log, state)
    except AssertionError as broken:
        yield str(broken)
    differing = service.runs.replay(record.run_id).differing
    if differing:
        yield f"its log and its tables differ: {', '.join(differing)}"
    if not any(sentence.line.text for sentence in service.runs.story(record.run_id)):
        yield "nothing explains it"
    yield from _unexpected_failures(service, record, state)


def _unexpected_failures(service: Service, record: RunRecord, state: State) -> Findings:
    """A run fails for what its steps do, for what an operator said, or for workers that were lost too often."""
    if record.status != "failed":
        return
    flow = FLOWS.get(record.workflow)
    allowed = {"WORKER_LOST", *(flow.may_fail_with if flow is not None else ())}
    if any(child.status == "failed" for child in service.reader.store.children(record.run_id)):
        allowed.add("CHILD_FAILED")
    for found in state.failures:
        codes = set(_codes(found.failure))
        if not is_handled(state, found) and not codes & allowed:
            yield f"step '{found.step}' failed with {found.failure.code}: {found.failure.message}"


def _codes(failure: object) -> Iterator[str]:
    """Its code, and those of what was behind it."""
    while failure is not None:
        yield str(getattr(failure, "code", ""))
        failure = getattr(failure, "cause", None)


def _count(totals: Totals, record: RunRecord, log: list[e.Entry]) -> None:
    kinds = Counter(type(entry.fact) for entry in log)
    totals.runs += 1
    totals.events += len(log)
    totals.attempts += kinds[e.AttemptStarted]
    totals.lost += kinds[e.AttemptLost]
    totals.reruns += sum(isinstance(x.fact, e.AttemptScheduled) and x.fact.cause == "lost" for x in log)
    totals.retries += kinds[e.RetryScheduled]
    totals.rounds += kinds[e.RunReopened]
    totals.refused_reports += kinds[e.ReportRefused]
    totals.endings[record.status] += 1


# -- what was done, against what the logs say ------------------------------------------------------------------------


def check_work(lines: Iterable[Line], logs: Mapping[int, Sequence[e.Entry]], totals: Totals) -> Findings:
    """Every result was made under the lease that it names; no lease was used twice; no two attempts overlapped."""
    begun: dict[int, Line] = {}
    ended: dict[int, Line] = {}
    last: dict[tuple[int, str], Line] = {}
    for line in lines:
        if line.verb == "start":
            if line.fence in begun:
                yield f"lease {line.fence} was begun twice: {begun[line.fence]} and {line}"
            begun[line.fence] = last[line.run_id, line.place] = line
        else:
            ended[line.fence] = line
            newer = last[line.run_id, line.place]
            if newer.fence != line.fence:
                yield f"two attempts overlapped: {newer} began before {line}"
    yield from _check_results(ended, logs, totals)
    yield from _check_counts(begun.values(), logs)


def _check_results(ended: Mapping[int, Line], logs: Mapping[int, Sequence[e.Entry]], totals: Totals) -> Findings:
    used: set[int] = set()
    for run_id, log in logs.items():
        for fact in (entry.fact for entry in log if isinstance(entry.fact, e.AttemptSucceeded)):
            if not str(fact.output).isdigit():
                continue
            totals.results += 1
            fence = int(fact.output)
            line = ended.get(fence)
            if line is None or (line.run_id, line.place) != (run_id, fact.place):
                yield f"run {run_id}: '{fact.place}' gave lease {fence}, and the journal has {line} for it"
            if fence in used:
                yield f"run {run_id}: the result of lease {fence} was taken twice"
            used.add(fence)


def _check_counts(begun: Iterable[Line], logs: Mapping[int, Sequence[e.Entry]]) -> Findings:
    """No command ran more often than its log says it was started, or that its start came too late to count."""
    ran = Counter((line.run_id, line.place) for line in begun)
    started: Counter[tuple[int, str]] = Counter()
    for run_id, log in logs.items():
        facts = (entry.fact for entry in log)
        started.update((run_id, fact.place) for fact in facts if isinstance(fact, e.AttemptStarted | e.ReportRefused))
    for (run_id, place), times in ran.items():
        if times > started[run_id, place]:
            yield f"run {run_id}: '{place}' ran {times} times, and was started {started[run_id, place]} times"


# -- events from outside ---------------------------------------------------------------------------------------------


def check_events(
    sent: Iterable[Accepted], logs: Mapping[int, Sequence[e.Entry]], must_take: Collection[int], totals: Totals
) -> Findings:
    """What was accepted is in the log of its run; no event is there twice, or before one that was sent before it.

    Runs in `must_take` have completed, and with that each of their steps has taken another of the events sent to them.
    """
    received: set[Accepted] = set()
    for run_id, log in logs.items():
        last: dict[tuple[int, int], int] = {}
        for fact in (entry.fact for entry in log if isinstance(entry.fact, e.EventReceived)):
            event = Accepted(Sent(**fact.value), run_id)
            sender, n, number = event.sent
            if event in received:
                yield f"run {run_id}: {event.sent} is there twice"
            elif number <= last.get((sender, n), -1):
                yield f"run {run_id}: {event.sent} came after event {last[sender, n]} of its sender"
            received.add(event)
            last[sender, n] = number
            if n not in (-1, _number(log)):
                yield f"run {run_id}: {event.sent} is for another run"
        yield from _check_taken(run_id, log, is_all=run_id in must_take)
    totals.sent += len(received)
    for event in (one for one in sent if one not in received):
        yield f"run {event.run_id}: {event.sent} was accepted, and is not there"


def _number(log: Sequence[e.Entry]) -> int:
    fact = log[0].fact
    assert isinstance(fact, e.RunStarted)
    return int(fact.inputs["n"])


def _check_taken(run_id: int, log: Sequence[e.Entry], *, is_all: bool) -> Findings:
    """No event is taken twice in a round, and none by two steps that both keep it."""
    waiting = {entry.seq for entry in log if isinstance(entry.fact, e.EventReceived) and entry.fact.name == EVENT}
    taken: set[int] = set()
    holders: dict[str, int] = {}
    for fact in (entry.fact for entry in log):
        if isinstance(fact, e.RunReopened):
            taken.clear()
        elif isinstance(fact, e.EventDelivered):
            if fact.event in taken:
                yield f"run {run_id}: event {fact.event} was taken twice, at last by '{fact.place}'"
            taken.add(fact.event)
            holders[fact.place] = fact.event
    if is_all and (sorted(holders.values()) != sorted(waiting) or len(waiting) != EVENTS_PER_RUN):
        yield f"run {run_id}: it has completed with {holders}, and the events {sorted(waiting)}"


# -- outages ---------------------------------------------------------------------------------------------------------


def check_outages(outages: Iterable[tuple[Outage, Sequence[Line]]], logs: Mapping[int, Sequence[e.Entry]]) -> Findings:
    """An outage of the server loses nothing: no attempt counts as lost, and what ended meanwhile is not done again.

    With each outage comes what the steps wrote while it lasted: nothing could be reported then.
    """
    last_starts = _last_starts(logs.values())
    for outage, lines in outages:
        ended = {(line.run_id, line.place) for line in lines if line.verb == "end"}
        for run_id, log in logs.items():
            for entry in log:
                if outage.began <= entry.at <= outage.ended:
                    yield from _of_outage(outage, run_id, entry, ended, last_starts)


def _last_starts(logs: Iterable[Sequence[e.Entry]]) -> dict[str, datetime]:
    """When each worker started its last task."""
    found: dict[str, datetime] = {}
    for entry in (entry for log in logs for entry in log if isinstance(entry.fact, e.AttemptStarted)):
        worker = entry.fact.worker  # type: ignore[union-attr]
        found[worker] = max(entry.at, found.get(worker, entry.at))
    return found


def _of_outage(
    outage: Outage,
    run_id: int,
    entry: e.Entry,
    ended: Collection[tuple[int, str]],
    last_starts: Mapping[str, datetime],
) -> Findings:
    fact = entry.fact
    if isinstance(fact, e.AttemptLost):
        last = last_starts.get(fact.worker)
        fate = "lived on" if last is not None and last > entry.at else "started nothing more under this name"
        since = f"{(entry.at - outage.began).total_seconds():.1f}s after it began at {outage.began:%H:%M:%S.%f}"
        where = f"run {run_id}: attempt {fact.attempt} of '{fact.place}'"
        # The file `heartbeats` has what the store knew of this worker then.
        yield f"{where} was lost to an outage ({outage.how}), {since}; its worker {fact.worker} {fate}"
    elif isinstance(fact, e.AttemptInterrupted) and (run_id, fact.place) in ended:
        yield f"run {run_id}: attempt {fact.attempt} of '{fact.place}' ended in an outage ({outage.how}), and ran again"


# -- the store -------------------------------------------------------------------------------------------------------


class InvariantChecker:
    """Looks into the tables now and then while all goes on, and asks what must hold at any moment."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known = StoreHistory()

    def look(self) -> list[str]:
        """What is broken now; nothing where the server is away."""
        try:
            held = read_store_contents(self._url)
        except psycopg.OperationalError:
            return []
        # Operators are cut off while they wait: answers that they have fetched are not told apart.
        self._known.fetched |= self._known.asked
        found = [said for promise in STORE_PROMISES for said in _asked(partial(promise, self._known, held))]
        self._known.record(held)
        return found


class HeartbeatJournal:
    """Notes again and again how old the heartbeat of each worker is, and how busy the machine, while the block lasts.

    Whether an attempt was lost because its worker was silent, or for another reason, nothing else can tell afterwards.
    """

    def __init__(self, url: str, path: Path, seconds: float) -> None:
        self._url = url
        self._path = path
        self._seconds = seconds
        self._is_over = threading.Event()
        # Beside everything else: a server that is frozen does not answer for a while.
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> HeartbeatJournal:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _go_on(self) -> None:
        with self._path.open("a") as noted:
            while not self._is_over.wait(self._seconds):
                said = f"load {os.getloadavg()[0]:.1f} {self._ages()}"
                print(f"{datetime.now(UTC):%H:%M:%S.%f} {said}", file=noted, flush=True)

    def _ages(self) -> str:
        try:
            # The shortest that there is: two seconds.
            with psycopg.connect(self._url, connect_timeout=2) as connection:
                rows = connection.execute(_AGES).fetchall()
        except psycopg.Error as error:
            return f"no answer: {type(error).__name__}"
        return " ".join(f"{name}={float(age) / 1e6:.2f}s" for name, age in rows)


# Not by `now_micros()`, which answers only processes that say which schema they know.
_AGES = "SELECT name, extract(epoch FROM clock_timestamp()) * 1000000 - beat_at FROM workers ORDER BY name"


def read_store_contents(url: str) -> StoreContents:
    """The tables at one moment."""
    with psycopg.connect(url, connect_timeout=5) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return read_tables(connection)


def check_rest(held: StoreContents) -> Findings:
    """Nothing is left when all processes have gone."""
    yield from _asked(lambda: promise_10_every_message_is_answered(held))
    yield from _asked(lambda: promise_7_no_worker_holds_a_finished_run(held))
    yield from _asked(lambda: promise_7_dead_workers_are_expired(held, ()))
    if held.tasks:
        yield f"{len(held.tasks)} tasks are left: {', '.join(map(str, held.tasks[:TOLD_MAX]))}"
    if held.timers:
        yield f"{len(held.timers)} timers are left: {list(held.timers)[:TOLD_MAX]}"
    probed = [breaker.name for breaker in held.breakers if breaker.probe is not None]
    if probed:
        yield f"breakers are still probed: {', '.join(probed)}"


def _asked(promise: Callable[[], None]) -> Findings:
    try:
        promise()
    except AssertionError as broken:
        yield str(broken)


# -- all of it -------------------------------------------------------------------------------------------------------


def check_all(
    service: Service,
    numbers: range,
    acknowledged: Mapping[int, int],
    lines: Iterable[Line],
    totals: Totals,
    outages: Iterable[tuple[Outage, Sequence[Line]]] = (),
    sent: Iterable[Accepted] = (),
) -> Findings:
    logs: dict[int, list[e.Entry]] = {}
    must_take: set[int] = set()
    started: dict[int, list[int]] = defaultdict(list)
    for record in all_runs(service):
        try:
            found, log = check_run(service, record, totals)
        except (MulliganError, AssertionError) as error:
            found, log = [f"run {record.run_id} cannot be looked at: {error}"], []
        yield from found
        logs[record.run_id] = log
        flow = FLOWS.get(record.workflow)
        if flow is not None and flow.awaits == "all" and record.status == "completed":
            must_take.add(record.run_id)
        if record.parent_run_id is None and log and isinstance(log[0].fact, e.RunStarted):
            started[log[0].fact.inputs["n"]].append(record.run_id)
    yield from check_starts(numbers, acknowledged, started)
    yield from check_work(lines, logs, totals)
    yield from check_outages(outages, logs)
    yield from check_events(sent, logs, must_take, totals)
