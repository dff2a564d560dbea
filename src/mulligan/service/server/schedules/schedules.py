"""Schedules in the store: putting them there, pausing them, and starting what is due.

A schedule is a document, and so is what it did so far; both are changed only if nobody changed them meanwhile. Starting
what is due has two steps, each of which may be repeated by any server: a decision is written, then it is carried out
(see `core.schedules.deciding`). A run has the instant as its key, so it is started once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Protocol

import msgspec

from mulligan.core.model.schedule import Overlap, Schedule, catch_up_text
from mulligan.core.model.workflow import Workflow
from mulligan.core.schedules.deciding import (
    WAITING_MAX,
    Firing,
    Pause,
    RunResult,
    ScheduleState,
    Skip,
    decide,
    pause_if_failing,
    paused,
    resumed,
    settle,
    with_backfill,
)
from mulligan.errors import (
    InputInvalid,
    KeyUsed,
    MulliganError,
    NotFound,
    Refused,
    RevisionMismatch,
    StoreUnavailable,
)
from mulligan.history.notice_text import NoticeBody
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports import RunRecord
from mulligan.ports.fault_points import fault_point
from mulligan.ports.server_records import Document, NoticeRecord, ServerRecords
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.catalogue.catalogue import Catalogue
from mulligan.service.server.catalogue.texts import check_name, is_name
from mulligan.service.server.combined_structs import combine
from mulligan.service.server.schedules.forms import ScheduleForm, check_timing, instant_text, instants, read_schedule
from mulligan.service.server.schedules.instant_inputs import check_inputs_of_next, inputs_at, inputs_by_instant
from mulligan.service.server.schedules.past_instants import (
    PAST_MAX,
    PastInstants,
    instant_labels,
    instants_of,
    judge_instants,
    match_runs,
    read_runs,
)

SCHEDULE, STATE = "schedule", "schedule_state"
# How many instants to come are shown.
SHOWN_NEXT = 10
BACKFILL_MAX = WAITING_MAX
# Before this nobody has had a schedule. Times near the first one of all cannot be computed with.
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
# How many of the newest runs of a schedule a backfill looks at.
_RUNS_SEEN_MAX = 10_000
# How soon to look again: for schedules that somebody put meanwhile, for a run that others wait for, for failures.
# A look at schedules that have nothing to do is two queries.
LOOK_SECONDS = 1.0
# How many decisions of one schedule are carried out before the next schedule has its turn.
_ROUNDS_MAX = 20
# How often a change is tried again that another process came before.
_TRIES = 20


class UnknownSchedule(NotFound):
    """There is no schedule of this name."""

    code = "schedule.unknown"


class RunRows(Protocol):
    """What a schedule needs of `Service.runs`."""

    def records(self, run_ids: Iterable[int]) -> list[RunRecord]: ...


class ProjectService(Protocol):
    """What a schedule needs of the service of its project."""

    @property
    def catalogue(self) -> Catalogue: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def runs(self) -> RunRows: ...


class StoredSchedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a schedule."""

    schedule: Schedule
    # Since when it has these instants: earlier ones were never its own.
    since: datetime
    # Whether it belongs to the text of its workflow, and is changed by publishing that.
    is_from_file: bool = False


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule: what it says, what it did, what comes next."""

    name: str
    workflow: str
    version: int | None
    cron: str | None
    timezone: str | None
    every: float | None
    anchor: datetime | None
    inputs: dict[str, Any]
    labels: dict[str, str]
    catch_up: str
    overlap: Overlap
    pause_after: int | None
    is_from_file: bool
    is_paused: bool
    pause: Pause | None
    # The next instants; none while it is paused.
    next: tuple[datetime, ...]
    last: Firing | None
    # Runs that have not ended, as far as it has looked.
    active: tuple[Firing, ...]
    # How many instants wait to be started, of a queue, of catching up or of a backfill.
    waiting: int
    failures: int
    skips: tuple[Skip, ...]
    updated_at: datetime
    updated_by: str
    revision: int
    dry_run: bool = False
    # For each of `next` the inputs that depend on the instant; empty if none do.
    next_inputs: tuple[dict[str, Any], ...] = ()


class Backfill(msgspec.Struct, frozen=True):
    """What a backfill starts."""

    name: str
    # Those that have no run yet.
    instants: tuple[datetime, ...]
    # The schedule is paused: they are started once it is resumed.
    is_paused: bool
    dry_run: bool = False
    # For each of `instants` the inputs that depend on it; empty if none do.
    inputs: tuple[dict[str, Any], ...] = ()
    # How many other instants of the range have a run.
    with_run: int = 0


class Schedules:
    """The schedules of one project, in the name of `by`."""

    def __init__(
        self,
        reader: RunReader,
        by: str,
        project: str,
        now: Callable[[], datetime],
        in_project: Callable[[str, str], ProjectService],
    ) -> None:
        self._reader = reader
        self._by = by
        self._project = project
        self._now = now
        # The service of a project in a name.
        self._in_project = in_project
        # What was said of the schedules that cannot be followed.
        self._reported: dict[str, str] = {}

    # -- looking -----------------------------------------------------------------------------------------------------

    def all(self) -> list[ScheduleView]:
        """All schedules, by name."""
        if not self._is_there:
            return []
        states = {one.name: one for one in self._records.documents(STATE, self._project)}
        return [
            self._view(document, _state(states.get(document.name)))
            for document in self._records.documents(SCHEDULE, self._project)
        ]

    def show(self, name: str) -> ScheduleView:
        """One schedule. `UnknownSchedule`."""
        return self._view(self._document(name), self._state_of(name))

    def past(self, name: str, *, limit: int = 200) -> PastInstants:
        """What came of the newest past instants of a schedule. `UnknownSchedule`."""
        if not 1 <= limit <= PAST_MAX:
            raise InputInvalid(f"a list has 1 to {PAST_MAX:,} instants, not {limit:,}")
        stored = _stored(self._document(name))
        schedule = stored.schedule
        # Earlier ones were never its own, unless a backfill has started them.
        newest = takewhile(lambda one: one > stored.since, instants(schedule, self._now(), backwards=True))
        expected = list(islice(newest, limit + 1))
        runs, labels = read_runs(self._reader.store, name, self._project, limit + 1)
        state = self._state_of(name)
        judged = judge_instants(expected, match_runs(expected, runs, labels), state)
        zone = schedule.timezone if schedule.cron else "UTC"
        return PastInstants(name, zone, judged[:limit], is_cut=len(judged) > limit)

    # -- changing ----------------------------------------------------------------------------------------------------

    def put(self, name: str, form: ScheduleForm, *, expected: int | None = None, dry_run: bool = False) -> ScheduleView:
        """Create or change a schedule. What it did so far, and whether it is paused, stays.

        `RevisionMismatch` unless the stored one is at `expected`: 0 for none, None for any.
        """
        check_name(name, "schedule")
        old = self._records.document(self._project, SCHEDULE, name) if self._is_there else None
        if old is not None:
            self._refuse_of_file(name, old, "change")
        schedule = read_schedule(form, self._now())
        # Its workflow is published, and would start with these inputs.
        workflow = self._in_project(self._by, self._project).catalogue.load(schedule.workflow, schedule.version)
        check_inputs_of_next(name, schedule, workflow, self._now())
        return self._put(name, schedule, old, expected=expected, dry_run=dry_run)

    def check_of_file(self, name: str, schedule: Schedule, workflow: Workflow) -> None:
        """Refuse a time that cannot be read or never comes, and inputs with which the workflow would not start."""
        now = self._now()
        check_timing(schedule, now)
        check_inputs_of_next(name, schedule, workflow, now)

    def delete(self, name: str) -> None:
        """Remove a schedule. Its runs stay."""
        self._refuse_of_file(name, self._document(name), "delete")
        self._delete(name)

    def refuse_taken(self, workflow: str, names: Iterable[str]) -> None:
        """Refuse names of schedules of a text that others have."""
        for name in (f"{workflow}.{one}" for one in names):
            check_name(name, "schedule")
            old = self._records.document(self._project, SCHEDULE, name) if self._is_there else None
            if old is None:
                continue
            stored = _stored(old)
            if not stored.is_from_file:
                hint = f"delete that one: mulligan schedule delete {name}; or name the one in the file differently"
                raise Refused(f"there is a schedule '{name}' that was not made by a file", hint=hint)
            if (owner := stored.schedule.workflow) != workflow:
                # `night.east` of `sales`, and `east` of `sales.night`.
                raise Refused(
                    f"the schedule '{name}' belongs to '{owner}'", hint="name the one in the file differently"
                )

    def take_over(self, workflow: str, schedules: Mapping[str, Schedule]) -> tuple[list[str], list[str]]:
        """Make these the schedules of the text of a workflow; those that it had before are removed.

        The names of those in force, and of those that were removed. A pause survives.
        """
        names = {f"{workflow}.{name}": one for name, one in schedules.items()}
        stored = {one.name: one for one in self._records.documents(SCHEDULE, self._project)}
        for name, schedule in names.items():
            self._put(name, schedule, stored.get(name), is_from_file=True)
        gone = [
            name
            for name, one in stored.items()
            if name not in names and (of := _stored(one)).is_from_file and of.schedule.workflow == workflow
        ]
        for name in gone:
            self._delete(name)
        return sorted(names), gone

    def pause(self, name: str, reason: str = "") -> ScheduleView:
        """Start nothing more until somebody resumes it. Runs that are there go on."""
        self._document(name)

        def change(state: ScheduleState) -> ScheduleState:
            if state.pause is not None and not state.pause.is_automatic:
                hint = f"to go on: mulligan schedule resume {name}"
                raise Refused(f"schedule '{name}' is already paused, by {state.pause.by}", hint=hint)
            return paused(state, Pause(self._now(), self._by, reason))

        self._change(name, change)
        return self.show(name)

    def resume(self, name: str, reason: str = "") -> ScheduleView:
        """Go on with the next instant. What passed during the pause is not made up for: that is a backfill."""
        self._document(name)

        def change(state: ScheduleState) -> ScheduleState:
            if state.pause is None:
                raise Refused(f"schedule '{name}' is not paused")
            return resumed(state, self._now())

        self._change(name, change)
        return self.show(name)

    def backfill(self, name: str, begin: datetime, end: datetime, *, dry_run: bool = False) -> Backfill:
        """Start the instants of a range that have no run yet, one after another unless they may overlap."""
        schedule = _stored(self._document(name)).schedule
        now = self._now()
        if end <= begin:
            raise InputInvalid(
                "the range of the backfill is empty",
                hint="its end (now, if none is given) must be later than its beginning",
            )
        if end > now:
            raise InputInvalid("a backfill is about the past", hint=f"end at {instant_text(now)} or before")
        after = max(begin, _FIRST) - timedelta(microseconds=1)
        found = tuple(islice(takewhile(lambda one: one <= end, instants(schedule, after)), BACKFILL_MAX + 1))
        if len(found) > BACKFILL_MAX:
            hint = f"take a shorter range; the first {BACKFILL_MAX:,} end at {instant_text(found[-2])}"
            raise InputInvalid(f"the range has more than {BACKFILL_MAX:,} instants", hint=hint)
        missing = self._without_run(name, found)
        is_paused = self._state_of(name).pause is not None
        if missing and not dry_run:
            self._change(name, lambda state: self._queued(state, missing))
        inputs = inputs_by_instant(name, schedule, missing)
        return Backfill(name, missing, is_paused, dry_run, inputs, with_run=len(found) - len(missing))

    def _without_run(self, name: str, found: tuple[datetime, ...]) -> tuple[datetime, ...]:
        """Those of past instants that have no run, as far as labels say it: the key of a run decides in the end."""
        if not found:
            return found
        # No run is created before its instant.
        _, labels = read_runs(self._reader.store, name, self._project, _RUNS_SEEN_MAX, since=found[0])
        with_run = instants_of(labels)
        return tuple(one for one in found if one not in with_run)

    # -- starting what is due ----------------------------------------------------------------------------------------

    def fire_due(self, now: datetime) -> datetime | None:
        """Start what is due in all projects, and say when to ask again. Any number of servers may do so at once.

        A schedule that cannot be followed keeps no other from starting. Its error is raised in the end, and once: who
        hears of it asks less often from then on, and the others would be late.
        """
        if not self._is_there:
            return None
        moments = [now + timedelta(seconds=LOOK_SECONDS)]
        schedules = self._records.documents(SCHEDULE)
        # A store without schedules is asked one question.
        stored = self._records.documents(STATE) if schedules else ()
        states = {(one.project, one.name): one for one in stored}
        errors: dict[str, str] = {}
        for document in schedules:
            try:
                moments.append(self._advance(document, states.get((document.project, document.name)), now))
            except StoreUnavailable:
                raise
            except (MulliganError, msgspec.MsgspecError) as error:
                errors[f"{document.project}/{document.name}"] = (
                    f"schedule '{document.name}' cannot be followed: {error}"
                )
        news = [text for name, text in errors.items() if self._reported.get(name) != text]
        self._reported = errors
        if news:
            raise Refused("; ".join(news))
        return min(moments)

    def _advance(self, document: Document, found: Document | None, now: datetime) -> datetime:
        """Decide about one schedule and carry it out, until nothing is to be done. When to look again."""
        stored = _stored(document)
        schedule = stored.schedule
        for _ in range(_ROUNDS_MAX):
            state = _state(found)
            if state.has_work:
                changed = self._carry_out(document, schedule, state, now)
            else:
                due = instants(schedule, now, backwards=True)
                changed = decide(schedule, state, now, due, self._results(document, state), stored.since)
            if changed == state:
                return self._look_again(schedule, state, now)
            if changed.pause is not None and state.pause is None:
                self._announce(document, schedule, changed, changed.pause)
            try:
                found = self._write(document.project, document.name, changed, found)
            except RevisionMismatch:
                # Another server was faster: go on from where it is.
                found = self._records.document(document.project, STATE, document.name)
                continue
            if changed.has_work:
                fault_point("after_schedule_decision")
        return now

    def _carry_out(self, document: Document, schedule: Schedule, state: ScheduleState, now: datetime) -> ScheduleState:
        """Do what was decided. Whoever does it again does nothing new."""
        service = self._in_project(f"schedule {document.name}", document.project)
        for run_id in state.cancelling:
            self._cancel(service, run_id, document.name)
        started, skips = [], []
        for instant in state.starting:
            try:
                started.append(Firing(instant, self._start(service, document, schedule, instant)))
            except StoreUnavailable:
                raise
            except MulliganError as refused:
                skips.append(Skip(instant, f"the run could not be started: {refused.message}"))
            fault_point("after_schedule_start")
        settled = settle(state, started, skips, failures=len(skips))
        return pause_if_failing(schedule, settled, now) if skips else settled

    def _announce(self, document: Document, schedule: Schedule, state: ScheduleState, pause: Pause) -> None:
        """Notify those whom the workflow notifies when a person is needed: nobody else lifts the pause.

        Before the pause is written, so that it is not lost. The key is the same for every server that is here.
        """
        try:
            workflow = self._in_project(self._by, document.project).catalogue.load(schedule.workflow, schedule.version)
        except StoreUnavailable:
            raise
        except MulliganError:
            return  # it does not load any more, so nobody is known
        decided = instant_text(state.decided_until) if state.decided_until else ""
        about = f"{document.project}/{document.name} {document.revision} {decided} {state.last}"
        run_id = state.last.run_id if state.last else 0
        body = NoticeBody(
            event="needs_person",
            title=f"schedule '{document.name}' of {schedule.workflow} has paused itself: {pause.reason}",
            at=pause.at,
            run_id=run_id,
            status="failed" if run_id else "",
            workflow=schedule.workflow,
            details=(f"nothing more is started until somebody types: mulligan schedule resume {document.name}",),
        )
        targets = dict.fromkeys(target for rule in workflow.notify if "needs_person" in rule.on for target in rule.to)
        notices = [
            NoticeRecord(
                key=f"schedule_{hashlib.sha256(f'{about} {target}'.encode()).hexdigest()[:32]}",
                target=target,
                body=msgspec.json.encode(body),
                created_at=pause.at,
                project=document.project,
                due_at=pause.at,
            )
            for target in targets
        ]
        if notices:
            self._records.put_notices(notices)

    def _start(self, service: ProjectService, document: Document, schedule: Schedule, instant: datetime) -> int:
        labels = {**schedule.labels, **instant_labels(document.name, instant)}
        inputs = inputs_at(document.name, schedule, instant)
        prepared = service.catalogue.prepare(schedule.workflow, schedule.version, inputs, labels)
        try:
            return service.changes.start_once(prepared, schedule_key(document.project, document.name, instant))[0]
        except KeyUsed as used:
            # Another server started it with another version of the workflow, or the schedule was changed since.
            return used.run_id

    def _cancel(self, service: ProjectService, run_id: int, name: str) -> None:
        try:
            service.changes.cancel(run_id, reason=f"schedule '{name}' starts the next run")
        except StoreUnavailable:
            raise
        except MulliganError:
            return  # it has ended, or is being cancelled

    def _results(self, document: Document, state: ScheduleState) -> dict[int, RunResult]:
        """How the active runs stand. One that was removed from the store has ended."""
        if not state.active:
            return {}
        service = self._in_project(f"schedule {document.name}", document.project)
        rows = {one.run_id: one.status for one in service.runs.records(one.run_id for one in state.active)}
        return {one.run_id: _RESULTS.get(rows.get(one.run_id, "cancelled"), "active") for one in state.active}

    def _look_again(self, schedule: Schedule, state: ScheduleState, now: datetime) -> datetime:
        later = now + timedelta(seconds=LOOK_SECONDS)
        return later if state.pause is not None else min(later, next(instants(schedule, now), later))

    # -- behind it ---------------------------------------------------------------------------------------------------

    @property
    def _records(self) -> ServerRecords:
        return self._reader.store.server_records

    def _document(self, name: str) -> Document:
        is_possible = self._is_there and is_name(name)
        found = self._records.document(self._project, SCHEDULE, name) if is_possible else None
        if found is None:
            known = [one.name for one in self._records.documents(SCHEDULE, self._project)] if self._is_there else []
            hint = did_you_mean(name, known) or "list them: mulligan schedule list"
            raise UnknownSchedule(f"there is no schedule '{name[:100]}'", hint=hint, schedule=name)
        return found

    def _state_of(self, name: str) -> ScheduleState:
        return _state(self._records.document(self._project, STATE, name))

    @property
    def _is_there(self) -> bool:
        return self._reader.home.is_there

    def _put(
        self,
        name: str,
        schedule: Schedule,
        old: Document | None,
        *,
        expected: int | None = None,
        is_from_file: bool = False,
        dry_run: bool = False,
    ) -> ScheduleView:
        before = _stored(old) if old is not None else None
        now = self._now()
        is_same = before is not None and before.schedule.timing == schedule.timing
        since = before.since if before is not None and is_same else now
        data = msgspec.json.encode(StoredSchedule(schedule, since, is_from_file))
        document = Document(SCHEDULE, name, data, now, self._by, project=self._project)
        if dry_run:
            document = msgspec.structs.replace(document, revision=(old.revision if old else 0) + 1)
            state = self._state_of(name) if self._is_there else ScheduleState()
            return msgspec.structs.replace(self._view(document, state), dry_run=True)
        document = (
            old if old is not None and old.data == data else self._records.put_document(document, expected=expected)
        )
        return self._view(document, self._state_of(name))

    def _delete(self, name: str) -> None:
        self._records.delete_document(self._project, SCHEDULE, name)
        self._records.delete_document(self._project, STATE, name)

    def _refuse_of_file(self, name: str, document: Document, verb: str) -> None:
        stored = _stored(document)
        if stored.is_from_file:
            workflow = stored.schedule.workflow
            raise Refused(
                f"schedule '{name}' belongs to the text of workflow '{workflow}', so you cannot {verb} it here",
                hint=f"publish '{workflow}' with other 'schedules:'; or stop it: mulligan schedule pause {name}",
            )

    def _queued(self, state: ScheduleState, found: tuple[datetime, ...]) -> ScheduleState:
        changed = with_backfill(state, found)
        if len(changed.waiting) > WAITING_MAX:
            hint = "wait until some of them have run, or take a shorter range"
            raise Refused(f"{len(state.waiting):,} scheduled times are waiting; that is the limit", hint=hint)
        return changed

    def _change(self, name: str, change: Callable[[ScheduleState], ScheduleState]) -> None:
        """Change the state of a schedule, also while servers change it."""
        for attempt in range(_TRIES):
            found = self._records.document(self._project, STATE, name)
            try:
                self._write(self._project, name, change(_state(found)), found)
                return
            except RevisionMismatch:
                if attempt == _TRIES - 1:
                    raise

    def _write(self, project: str, name: str, state: ScheduleState, old: Document | None) -> Document:
        document = Document(STATE, name, msgspec.json.encode(state), self._now(), self._by, project=project)
        return self._records.put_document(document, expected=old.revision if old else 0)

    def _view(self, document: Document, state: ScheduleState) -> ScheduleView:
        stored = _stored(document)
        schedule = stored.schedule
        is_paused = state.pause is not None
        following = () if is_paused else tuple(islice(instants(schedule, self._now()), SHOWN_NEXT))
        return combine(
            ScheduleView,
            document,
            stored,
            schedule,
            state,
            cron=schedule.cron or None,
            timezone=schedule.timezone if schedule.cron else None,
            catch_up=catch_up_text(schedule),
            is_paused=is_paused,
            next=following,
            waiting=len(state.waiting) + len(state.starting),
            next_inputs=inputs_by_instant(document.name, schedule, following),
        )


def schedule_key(project: str, name: str, instant: datetime) -> str:
    """The key of the run of an instant: no second run can have it."""
    return f"schedule:{f'{project}/' if project else ''}{name}:{instant_text(instant)}"


_RESULTS: dict[str, RunResult] = {"completed": "succeeded", "failed": "failed", "cancelled": "cancelled"}


def _stored(document: Document) -> StoredSchedule:
    return msgspec.json.decode(document.data, type=StoredSchedule)


def _state(document: Document | None) -> ScheduleState:
    return msgspec.json.decode(document.data, type=ScheduleState) if document is not None else ScheduleState()
