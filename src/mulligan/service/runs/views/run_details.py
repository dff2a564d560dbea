"""A run in bounded pieces, for faces that stay up: its head without the steps, its events and its story in pages.

However large the run is, each answer is small; a page says where the next one begins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mulligan.core.deciding.conditions import describe_edge, describe_rule
from mulligan.core.effects.snapshot import read_step_statuses
from mulligan.core.model import events as e
from mulligan.core.model.artifacts import Artifact, parse_reference, references
from mulligan.core.model.codec import encode
from mulligan.core.model.workflow import END, Backoff, Command, Rule
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import ArtifactDamaged, InputInvalid, UnknownArtifact
from mulligan.history.evidence import IMAGE_BYTES_MAX
from mulligan.history.phrases import describe_triager
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.stored.artifacts import KeptFile, kept_files
from mulligan.service.runs.stored.run_cache import RunCache
from mulligan.service.runs.stored.run_data import DataEntry, data_entries
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.overview import overview, step_overview, view_head
from mulligan.service.runs.views.run_events import EVENT_TYPES, EventFeed, read_feed
from mulligan.service.runs.views.run_list import RunPage, summarize_runs
from mulligan.service.runs.views.run_reasons import FailureOverview, run_failures
from mulligan.service.runs.views.run_story import run_story, run_waits
from mulligan.service.runs.views.run_timeline import Mosaic, Timeline, make_mosaic, mosaic_of
from mulligan.service.runs.views.run_view import MatrixView, RunView, StepView, status_of

if TYPE_CHECKING:
    from mulligan.service.runs.views.run_comparison import RunComparison
    from mulligan.service.runs.views.run_graph import HrefOf, RunGraph
    from mulligan.service.runs.views.run_grid import GridPage, GridQuery
    from mulligan.service.server.catalogue.catalogue import Catalogue

# How many events or lines one page has at most, and how many events are searched for those of a type.
PAGE_MAX, SEARCHED_MAX = 1_000, 5_000
# A run with more events takes a while to load.
QUICK_EVENTS_MAX = 20_000
# A run with more steps is not shown whole.
WHOLE_STEPS_MAX = 2_000


class EventPage(msgspec.Struct, frozen=True):
    """Events of a run as they are stored, one JSON text each."""

    run_id: int
    lines: list[bytes]
    # The event behind which the next page begins; None if there is nothing behind this one yet.
    next: int | None


class StoryPage(msgspec.Struct, frozen=True):
    """Lines of the story of a run as plain data; the last page ends with what is waited for now."""

    run_id: int
    lines: list[dict[str, Any]]
    # How many lines the pages so far have; None if this is the last page.
    next: int | None


class RuleView(msgspec.Struct, frozen=True):
    """A retry rule of a step. Exactly one of codes, exit_codes, exceptions, pattern and any says what it matches."""

    number: int
    looks_for: str
    codes: tuple[str, ...]
    exit_codes: tuple[int, ...]
    exceptions: tuple[str, ...]
    pattern: str | None
    any: bool
    max_retries: int
    max_attempts: int | None
    # How many retries it has granted in this visit.
    granted: int
    backoff: Backoff
    # What runs before the retry: the text of a shell command, or the kind of the action.
    recovery_script: str | None


class HandlerView(msgspec.Struct, frozen=True):
    """What runs after the retries: its strategy, and the commands as text."""

    strategy: str
    commands: list[str]
    timeout: float | None


class FailureEdgeView(msgspec.Struct, frozen=True):
    """Where a failure of the step is routed."""

    to: str
    on: str
    # For which failures; "" for any.
    looks_for: str
    then: str | None


class FailureHandlers(msgspec.Struct, frozen=True):
    """Everything that deals with a failure of one step, rung by rung, and how far the step has come."""

    run_id: int
    step: str
    status: str
    round: int
    visit: int
    attempts: int
    max_attempts: int | None
    rules: list[RuleView]
    on_failure: HandlerView | None
    # When a failure is parked for a person; None if it never is.
    triage: str | None
    # The agent that is asked before a person, and what it may decide, in words; None if there is none.
    triage_agent: str | None
    edges: list[FailureEdgeView]
    continue_on_error: bool


# What pictures begin with.
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


class ArtifactContent(msgspec.Struct, frozen=True):
    """A file that a run refers to: on this machine, or its bytes."""

    file: str
    size: int
    sha256: str
    path: Path | None
    data: bytes = b""
    # What it is, of a picture.
    media: str = ""


class RunDetails:
    """Reads runs in pieces."""

    def __init__(self, reader: RunReader, cache: RunCache, catalogue: Callable[[], Catalogue]) -> None:
        self._reader, self._cache, self._catalogue = reader, cache, catalogue

    def etag(self, run_id: int) -> str:
        """What changes whenever `head` does: the last event, and whether a process drives the run."""
        record = self._reader.record(run_id)
        is_idle = record.status not in RUN_ENDED and self._reader.driver_of(record) is None
        return f"{record.seq}-idle" if is_idle else str(record.seq)

    def head(self, run_id: int) -> RunView:
        """The run without its steps, its child runs and their files: `RUN_HEAD` of it.

        Failures and waits are the first of them, with their number; steps and matrices are counted.
        """
        return view_head(self._reader, self._reader.record(run_id), self._cache.get(run_id).state)

    def whole(self, run_id: int) -> RunView:
        """The run with all its steps, unless it is too large: everybody else would wait for the answer."""
        count = len(self._cache.get(run_id).state.graph.nodes)
        if count > WHOLE_STEPS_MAX:
            raise InputInvalid(
                f"run {run_id} has {count:,} steps, and at most {WHOLE_STEPS_MAX:,} are shown at once",
                hint="list them in pages: runs/ID/steps",
                run_id=run_id,
            )
        return overview(self._reader, run_id, with_attempts=True)

    def is_of_program(self, run_id: int) -> bool:
        """Whether it is a run of a program, whose steps are known only while it runs."""
        return self._cache.get(run_id).state.graph.program != ""

    def is_quick(self, run_id: int) -> bool:
        """Whether the run can be read in a moment: it is small, or was read before."""
        return self._cache.has(run_id) or self._reader.record(run_id).seq <= QUICK_EVENTS_MAX

    def mosaic(self, run_id: int) -> Mosaic:
        """How all steps stand, in one short answer. It does not wait until a large run is loaded."""
        if self.is_quick(run_id):
            cached = self._cache.get(run_id)
            return mosaic_of(run_id, cached.state)
        self._reader.record(run_id)
        with pause_garbage_collection():
            loaded = self._reader.store.load(run_id)
            statuses = read_step_statuses(loaded.workflow, loaded.rows)
        return make_mosaic(run_id, loaded.record.seq, loaded.record.status, statuses, ())

    def failures(self, run_id: int) -> FailureOverview:
        """What failed and how it was handled, unhandled failures first."""
        return run_failures(self._reader, self._cache.get(run_id).state)

    def timeline(self, run_id: int, *, first: int = 0, limit: int = 50, hide_completed: bool = False) -> Timeline:
        """When the steps ran that started as number `first` and later."""
        state = self._cache.get(run_id).state
        return self._cache.timelines.read(run_id, state, first=first, limit=limit, hide_completed=hide_completed)

    def step(self, run_id: int, name: str) -> StepView | MatrixView:
        """One step with every attempt at it, or a matrix with all its steps, as `show RUN STEP --json` prints it."""
        return step_overview(self._reader, run_id, name, self._cache.get(run_id).state, self._cache.step_events)

    def events(self, run_id: int, *, types: Collection[str] = (), after: int = 0, limit: int = 200) -> EventPage:
        """Events behind `after`, of these types only. A page may be short: many events may be of other types."""
        limit = _checked(limit)
        for name in types:
            if name not in EVENT_TYPES:
                hint = did_you_mean(name, EVENT_TYPES) or f"such as {', '.join(sorted(EVENT_TYPES)[:3])}"
                raise InputInvalid(f"'{name}' is not a type of an event", hint=hint)
        record = self._reader.record(run_id)
        wanted = tuple(EVENT_TYPES[name] for name in types) or e.Fact
        lines: list[bytes] = []
        some = islice(self._reader.events(run_id, after), SEARCHED_MAX) if types else None
        for entry in some if some is not None else self._reader.store.log(run_id, after, limit):
            if isinstance(entry.fact, wanted):
                lines.append(encode(entry))
            after = entry.seq
            if len(lines) == limit:
                break
        return EventPage(run_id, lines, after if after < record.seq else None)

    def story(
        self, run_id: int, step: str = "", *, is_tree: bool = False, after: int = 0, limit: int = PAGE_MAX
    ) -> StoryPage:
        """Lines of the story of a run or of one step behind the first `after` ones."""
        limit = _checked(limit)
        lines = run_story(self._reader, run_id, step, is_tree=is_tree)
        some = [to_json(one) for one in islice(lines, after, after + limit + 1)]
        if len(some) > limit:
            return StoryPage(run_id, some[:limit], after + limit)
        return StoryPage(run_id, [*some, *map(to_json, run_waits(self._reader, run_id, step))], None)

    def feed(
        self,
        run_id: int,
        *,
        groups: Collection[str] = (),
        types: Collection[str] = (),
        step: str = "",
        before: int | None = None,
        limit: int = 100,
    ) -> EventFeed:
        """Events in words, the newest first."""
        return read_feed(self._reader, run_id, groups=groups, types=types, step=step, before=before, limit=limit)

    def graph(self, run_id: int, href: HrefOf, *, step: str = "", is_expanded: bool = False) -> RunGraph:
        """The graph of a run as SVG; around a step, if one is named or the graph is too large."""
        from mulligan.service.runs.views.run_graph import draw_run_graph

        return draw_run_graph(self._cache.get(run_id).state, step, href, is_expanded=is_expanded)

    def grid(self, run_id: int, query: GridQuery) -> GridPage:
        """Steps by rounds and attempts, failures first."""
        from mulligan.service.runs.views.run_grid import read_grid

        return read_grid(self._cache, run_id, query, self._reader.called(run_id))

    def data(self, run_id: int) -> list[DataEntry]:
        """The values that the steps of a run have set, by name."""
        return data_entries(self._cache.get(run_id).state)

    def compare(self, a: int, b: int) -> RunComparison:
        """What differs between two runs."""
        from mulligan.service.runs.views.run_comparison import RunComparer

        return RunComparer(self._reader, self._cache, self._catalogue()).compare(a, b)

    def children(self, run_id: int, *, after: int = 0, limit: int = 50) -> RunPage:
        """The runs that a run called, in the order of the calls: those with a number above `after`."""
        limit = _checked(limit)
        self._reader.record(run_id)
        called = [one.run_id for one in self._reader.store.children(run_id) if one.run_id > after]
        page = called[:limit]
        return RunPage(summarize_runs(self._reader, page), page[-1] if len(called) > limit else None)

    def artifacts(self, run_id: int) -> list[KeptFile]:
        """The files that the attempts of a run kept, in the order in which they ended."""
        store = self._reader.store
        return [kept for entry in self._reader.events(run_id) for kept in kept_files(entry, store.artifacts)]

    def artifact(self, run_id: int, sha256: str) -> ArtifactContent:
        """A file that the run refers to: one that a step kept, or that an output refers to."""
        artifacts = self._reader.store.artifacts
        kept = (one.artifact for one in self.artifacts(run_id))
        found = next((one for one in kept if one.sha256 == sha256), None) or self._referred(run_id, sha256)
        if found is None:
            raise UnknownArtifact(
                f"run {run_id} refers to no file with the SHA-256 '{sha256[:64]}'",
                hint="the list of its files and its outputs have them",
                run_id=run_id,
            )
        file, path = found.name.rpartition("/")[2], artifacts.path(found)
        if path and Path(path).is_file():
            return ArtifactContent(file, found.size, sha256, Path(path))
        return ArtifactContent(file, found.size, sha256, None, artifacts.fetch(found))

    def image(self, run_id: int, sha256: str) -> ArtifactContent:
        """A PNG or JPEG that the run refers to, as bytes that were checked. `UnknownArtifact` for anything else."""
        found = self.artifact(run_id, sha256)
        data = b""
        if found.size <= IMAGE_BYTES_MAX:
            data = found.data if found.path is None else found.path.read_bytes()
        media = next((media for start, media in _IMAGES.items() if data.startswith(start)), "")
        if not media or hashlib.sha256(data).hexdigest() != sha256:
            raise UnknownArtifact(f"'{found.file}' is not a picture that is shown", hint="load it as a file")
        return msgspec.structs.replace(found, data=data, path=None, media=media)

    def _referred(self, run_id: int, sha256: str) -> Artifact | None:
        state = self._reader.state(run_id)
        values = (state.run.outputs, state.run.inputs, *(place.output for place in state.places.values()))
        for reference in (one for value in values for one in references(value)):
            try:
                artifact = parse_reference(reference)
            except ArtifactDamaged:
                continue
            if artifact.sha256 == sha256:
                return artifact
        return None

    def failure_handlers(self, run_id: int, step: str) -> FailureHandlers:
        """Everything that deals with a failure of one step: retry rules, handler, triage, failure edges."""
        self._reader.refuse_unknown(run_id, step)
        self._reader.refuse_removed(run_id, step)
        state = self._reader.state(run_id)
        if step != END and step not in state.graph.nodes:
            step = step.partition(".")[0].partition("[")[0]
        return describe_failure_handlers(state, step)


def describe_failure_handlers(state: State, name: str) -> FailureHandlers:
    """Everything that deals with a failure of one step, as of a state."""
    step, place = state.step(name), state.places.get(name)
    granted = place.climb.retries if place else {}
    # The commands of a map's items have rules of their own; those of a single one are the step's.
    spec: Command = step.do[0] if len(step.do) == 1 and not step.rules else step
    return FailureHandlers(
        run_id=state.run.run_id,
        step=name,
        status=status_of(state, name),
        round=state.run.round,
        visit=place.visit if place else 0,
        attempts=place.attempt if place else 0,
        max_attempts=spec.max_attempts,
        rules=[_rule(index, rule, granted.get(index, 0)) for index, rule in enumerate(spec.rules)],
        on_failure=None
        if (handler := spec.on_failure) is None
        else HandlerView(handler.strategy, [_command_text(one) for one in handler.commands], handler.timeout),
        triage=None if step.triage is None else step.triage.when,
        triage_agent=describe_triager(step.triage.agent) if step.triage and step.triage.agent else None,
        edges=[
            FailureEdgeView(edge.to, edge.on, describe_edge(edge), edge.then)
            for edge in step.edges
            if edge.on in ("failure", "always")
        ],
        continue_on_error=step.continue_on_error,
    )


def _rule(index: int, rule: Rule, granted: int) -> RuleView:
    return RuleView(
        number=index + 1,
        looks_for=describe_rule(rule),
        codes=rule.codes,
        exit_codes=rule.exit_codes,
        exceptions=rule.exceptions,
        pattern=rule.pattern,
        any=rule.any,
        max_retries=rule.max_retries,
        max_attempts=rule.max_attempts,
        granted=granted,
        backoff=rule.backoff,
        recovery_script=None if rule.recovery_script is None else _command_text(rule.recovery_script),
    )


def _command_text(command: Command) -> str:
    action = command.action
    if action is None:
        return ""
    found = action.params.get("text", action.params.get("call"))
    return found if isinstance(found, str) else action.kind


def _checked(limit: int) -> int:
    if limit < 1:
        raise InputInvalid(f"a page has at least 1 entry, not {limit}")
    return min(limit, PAGE_MAX)
