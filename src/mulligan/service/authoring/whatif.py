"""What a changed workflow would have made of the runs of a store.

Runs are read one after another, so that memory does not grow with their number. What other runs say about things that
never happened is needed only where a run goes another way: those runs are read twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from mulligan.analysis.statistics import wilson_bounds
from mulligan.analysis.whatif.knowledge import Draw, Knowledge, Level, Share, Subject
from mulligan.analysis.whatif.played_history import Children, ChildResult, KnowledgeNeeded, PlayedHistory, Undecidable
from mulligan.analysis.whatif.reasons import undecided_reason
from mulligan.analysis.whatif.recording import RecordedAttempt, Recording, record
from mulligan.analysis.whatif.redecide import redecide
from mulligan.analysis.whatif.results import Estimate, RunWhatIf, UndecidedRun, WhatIf
from mulligan.core.deciding.rounds.child_failure import failures_of_child
from mulligan.core.effects.run_lists import RunFilter
from mulligan.core.model.actions import traits_of
from mulligan.core.model.artifacts import Artifact, Format, describe_artifact
from mulligan.core.model.events import RunStarted
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import ChildEnded
from mulligan.core.model.workflow import Workflow, decode, encode, version, with_callers_secrets
from mulligan.core.state.scope import fill_params
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import ExpressionFailed, IllegalTransition, InputInvalid, NotFound, UnknownStep
from mulligan.language.expressions import Cel
from mulligan.language.input_values import check_recorded_inputs
from mulligan.language.readers.workspace_steps import keep_workspace
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports import RunRecord
from mulligan.service.rendering.formatting import quote_names
from mulligan.service.runs.stored.damaged_runs import explain_damage
from mulligan.service.runs.stored.run_reader import RunReader

# How many runs are looked at, unless the caller says otherwise: the newest.
RUNS_MAX = 10_000
# How many runs that go another way, and how many that cannot be decided, the answer lists.
LISTED_MAX = 50
# How many definitions of past runs are kept.
_GRAPHS_MAX = 100
_PAGE = 200


class WhatIfSelection(msgspec.Struct, frozen=True):
    """Which runs are decided again, and how."""

    # The workflow whose runs these are; "" for the name in the definition.
    workflow: str = ""
    # Those created since then; None for all.
    since: datetime | None = None
    # These runs alone; what others say is still learned from all.
    run_ids: tuple[int, ...] = ()
    # Those in which an attempt of this step failed; "" for all.
    step: str = ""
    seed: int = 0
    runs_max: int = RUNS_MAX
    # Stop looking at more runs after this time.
    seconds_max: float | None = None
    listed_max: int = LISTED_MAX
    # The environment variables that expressions may read. A server gives none: a text could find out what they are.
    env: Mapping[str, str] = {}


def whatif(reader: RunReader, workflow: Workflow, selection: WhatIfSelection | None = None) -> WhatIf:
    """What the workflow would have made of the recorded runs of its name."""
    selection = selection or WhatIfSelection()
    if selection.step and selection.step not in {step.name for step in workflow.steps}:
        names = [step.name for step in workflow.steps]
        raise UnknownStep(
            f"'{selection.step}' is not a step of workflow '{workflow.name}'",
            hint=did_you_mean(selection.step, names),
            step=selection.step,
        )
    return _Decider(reader, workflow, selection).decide()


class _Decider:
    def __init__(self, reader: RunReader, workflow: Workflow, selection: WhatIfSelection) -> None:
        self.reader = reader
        self.selection = selection
        # As it is pinned with a run: times of starting are no part of it.
        name = selection.workflow or workflow.name
        self.graph = Graph(decode(encode(msgspec.structs.replace(workflow, name=name, schedules={}))))
        self.framed: dict[str, Graph] = {}
        self.graphs: dict[tuple[str, str], Graph] = {}
        self.knowledge: dict[str, Knowledge] = {name: Knowledge()}
        self.kept: dict[str, bytes] = {}
        self.evaluator: Cel | None = None
        self.sums = _Sums(self.graph.workflow.name, selection)

    def decide(self) -> WhatIf:
        if not self.reader.home.is_there:
            return self.sums.result()
        self.evaluator = Cel(self.selection.env, self._fetch, self._keep)
        until = None if self.selection.seconds_max is None else time.monotonic() + self.selection.seconds_max
        chosen = frozenset(self.selection.run_ids)
        pending: list[RunRecord] = []
        for one in self._records():
            if until is not None and time.monotonic() > until:
                self.sums.is_cut = True
                break
            try:
                recording = self._recording(one)
                self._learn(recording)
            except Exception as error:
                if one.run_id in chosen or explain_damage(self.reader, [one.run_id], error) is None:
                    raise
                continue
            if chosen and one.run_id not in chosen:
                continue
            if self.selection.step and self.selection.step not in recording.failed_steps:
                continue
            self.sums.runs += 1
            if not self._try(one, recording, is_learned=False):
                pending.append(one)
        for one in pending:
            self._try(one, self._recording(one), is_learned=True)
        return self.sums.result()

    def _records(self) -> Iterator[RunRecord]:
        """The runs of the workflow, the newest first; those that were asked for by number are always among them."""
        wanted = RunFilter(workflows=(self.graph.workflow.name,), since=self.selection.since, with_children=True)
        left = set(self.selection.run_ids)
        before, count = None, 0
        while page := self.reader.store.lists.find(wanted, limit=_PAGE, before=before):
            for one in page:
                if count >= self.selection.runs_max:
                    self.sums.is_cut = True
                    break
                count += 1
                left.discard(one.run_id)
                yield one
            else:
                before = page[-1].run_id
                continue
            break
        for run_id in sorted(left):
            yield self.reader.record(run_id)

    def _recording(self, one: RunRecord) -> Recording:
        version = one.project, one.version
        if version not in self.graphs:
            if len(self.graphs) >= _GRAPHS_MAX:
                del self.graphs[next(iter(self.graphs))]
            self.graphs[version] = Graph(decode(self.reader.store.load(one.run_id).workflow))
        return record(self.graphs[version], self.reader.events(one.run_id))

    def _learn(self, recording: Recording) -> None:
        workflow = recording.graph.workflow
        self.knowledge.setdefault(workflow.name, Knowledge()).add(recording)
        if workflow.children and workflow.children != self.graph.workflow.children:
            for child in self.reader.store.children(recording.run_id):
                self._learn(self._recording(child))

    # -- one run -----------------------------------------------------------------------------------------------------

    def _try(self, one: RunRecord, recording: Recording, *, is_learned: bool) -> bool:
        """Decide a run again and sum it up. False if it has to wait for what other runs say."""
        levels: tuple[Level, ...] = ("middle", "low", "high") if is_learned else ("middle",)
        self.kept.clear()
        try:
            if not recording.entries:
                raise Undecidable("not_started")
            first = recording.entries[0].fact
            if isinstance(first, RunStarted) and first.forked_at:
                raise Undecidable("forked", str(first.forked_from))
            results = {level: self._redecide(recording, level, is_learned=is_learned) for level in levels}
            result = results["middle"]
            if result.goes_another_way:
                self._refuse_unreproduced(recording)
        except KnowledgeNeeded:
            return False
        except Undecidable as refusal:
            self.sums.add_undecided(one, recording, refusal.code, undecided_reason(refusal.code, refusal.detail))
        except (IllegalTransition, ExpressionFailed, NotFound) as error:
            self.sums.add_undecided(one, recording, "artifact", error.message)
        else:
            completes = {level: found.status == "completed" for level, found in results.items()}
            self.sums.add(one, recording, result, completes)
        return True

    def _redecide(self, recording: Recording, level: Level, *, is_learned: bool) -> PlayedHistory:
        assert self.evaluator is not None
        graph = self._graph_for(recording)
        return redecide(
            recording,
            graph,
            self.evaluator,
            knowledge=self.knowledge[self.graph.workflow.name] if is_learned else None,
            draw=Draw(self.selection.seed, recording.run_id, level),
            children=self._children(level, is_learned=is_learned),
            inputs=self._inputs(recording, graph.workflow),
        )

    def _graph_for(self, recording: Recording) -> Graph:
        """The new definition for a run: one that worked in a worktree still does."""
        before = recording.graph.workflow
        if before.name != self.graph.workflow.name:
            raise Undecidable("other_workflow", before.name)
        if program := recording.graph.program or self.graph.program:
            raise Undecidable("program", program)
        faked = [step.name for step in before.steps if traits_of(step.action).is_fake]
        if faked:
            raise Undecidable("faked", quote_names(faked))
        if before.workspace is None or self.graph.workflow.workspace is not None:
            return self.graph
        known = version(encode(before))
        if known not in self.framed:
            self.framed[known] = Graph(keep_workspace(self.graph.workflow, before))
        return self.framed[known]

    def _inputs(self, recording: Recording, workflow: Workflow) -> dict[str, Any] | None:
        """The inputs under a definition that declares others; None if they are the same."""
        first = recording.entries[0].fact
        if workflow.inputs == recording.graph.workflow.inputs or not isinstance(first, RunStarted):
            return None
        assert self.evaluator is not None
        try:
            return check_recorded_inputs(workflow, dict(first.inputs), self.evaluator)
        except (InputInvalid, ExpressionFailed) as error:
            raise Undecidable("inputs", error.message) from error

    def _refuse_unreproduced(self, recording: Recording) -> None:
        """A run that goes another way with its own definition too says nothing about the new one."""
        assert self.evaluator is not None
        own = redecide_own(recording, self.evaluator)
        if own.goes_another_way:
            raise Undecidable("not_reproduced", str(own.followed + 1))

    # -- child runs --------------------------------------------------------------------------------------------------

    def _children(self, level: Level, *, is_learned: bool) -> Children:
        def decide_child(state: State, place: Place, recorded: RecordedAttempt) -> ChildResult | None:
            assert place.spec.action is not None and self.evaluator is not None
            name = fill_params(place.spec.action, place.bindings).get("file")
            child = state.workflow.children.get(str(name))
            called = self.reader.called(state.run.run_id).get((recorded.key, recorded.attempt))
            if child is None or called is None:
                return None
            one = self.reader.record(called)
            definition = with_callers_secrets(child, state.workflow)
            recording = self._recording(one)
            if recording.graph.workflow == definition or not recording.entries:
                return None
            if one.round > 1:
                # Each round belongs to an attempt of the caller, which would be decided again between them.
                raise Undecidable("continued", str(called))
            knowledge = self.knowledge.setdefault(definition.name, Knowledge())
            found = redecide(
                recording,
                Graph(definition),
                self.evaluator,
                knowledge=knowledge if is_learned else None,
                draw=Draw(self.selection.seed, called, level),
                children=decide_child,
                inputs=self._inputs(recording, definition),
            )
            return _child_result(found, place, called)

        return decide_child

    # -- large values ------------------------------------------------------------------------------------------------

    def _keep(self, name: str, data: bytes, format: Format) -> Artifact:
        """A large value of a run that is decided again: nothing is written."""
        self.kept[name] = data
        return describe_artifact(name, data, format)

    def _fetch(self, artifact: Artifact) -> bytes:
        kept = self.kept.get(artifact.name)
        is_kept = kept is not None and describe_artifact(artifact.name, kept, artifact.format) == artifact
        return kept if kept is not None and is_kept else self.reader.store.artifacts.fetch(artifact)


def redecide_own(recording: Recording, evaluator: Cel) -> PlayedHistory:
    """Decide a run again with the definition that it had: it must go as recorded."""
    return redecide(recording, recording.graph, evaluator, knowledge=Knowledge(), draw=Draw(0, recording.run_id))


def _child_result(found: PlayedHistory, place: Place, run_id: int) -> ChildResult:
    run = found.state.run
    if run.status not in RUN_ENDED:
        raise Undecidable("nothing_known", f"how run {run_id}, which '{place.key}' called, would have gone on")
    status: Any = run.status
    report = ChildEnded(
        at=run.at,
        place=place.key,
        attempt=place.attempt,
        child_run_id=run_id,
        status=status,
        outputs=run.outputs,
        failures=failures_of_child(found.state),
        usage=run.spent.as_usage,
        reason=run.reason,
    )
    return ChildResult(report, found.counts.seconds, found.by, found.goes_another_way)


# -- the sum ---------------------------------------------------------------------------------------------------------


class _Sums:
    """Sums up runs. It keeps as many of them as the answer lists."""

    def __init__(self, workflow: str, selection: WhatIfSelection) -> None:
        self.workflow = workflow
        self.selection = selection
        self.is_cut = False
        self.runs = self.decided = self.facts = self.unchanged = 0
        self.otherwise: Counter[str] = Counter()
        self.completed_before = 0
        self.completed: Counter[str] = Counter()
        self.decisions = self.decisions_saved = self.decisions_added = 0
        self.attempts, self.seconds = 0, 0.0
        self.recorded = 0
        self.assumed: Counter[str] = Counter()
        self.estimated: Counter[str] = Counter()
        self.changed: list[RunWhatIf] = []
        self.changed_same_end: list[RunWhatIf] = []
        self.changed_total = 0
        self.undecided: list[UndecidedRun] = []
        self.undecided_total = 0
        self.used: Counter[Subject] = Counter()
        self.shares: dict[Subject, Share] = {}

    def add_undecided(self, one: RunRecord, recording: Recording, code: str, reason: str) -> None:
        self.undecided_total += 1
        if len(self.undecided) < self.selection.listed_max:
            self.undecided.append(UndecidedRun(one.run_id, one.created_at, recording.status, code, reason))

    def add(self, one: RunRecord, recording: Recording, result: PlayedHistory, completes: dict[Level, bool]) -> None:
        before, now = recording.counts, result.counts
        by = result.by if result.goes_another_way else "fact"
        both_ended = recording.has_ended and result.status in RUN_ENDED
        run = RunWhatIf(
            run_id=one.run_id,
            created_at=one.created_at,
            was=recording.status,
            would_be=result.status,
            was_degraded=recording.degraded,
            would_be_degraded=result.state.run.degraded,
            step=result.step,
            why=result.why,
            by=by,
            doubts=tuple(sorted({*result.assumed, *result.estimated})) if by != "fact" else (),
            attempts=now.attempts - before.attempts,
            decisions=now.decisions - before.decisions,
            seconds=round(now.seconds - before.seconds, 3) if both_ended else None,
        )
        self.decided += 1
        self.facts += by == "fact"
        self.completed_before += recording.status == "completed"
        for level in ("low", "middle", "high"):
            self.completed[level] += completes.get(level, completes["middle"])
        self.decisions += before.decisions
        self.decisions_saved += max(0, -run.decisions)
        self.decisions_added += max(0, run.decisions)
        if not run.goes_another_way:
            self.unchanged += 1
            return
        self.otherwise[by] += run.ends_otherwise
        self.attempts += run.attempts
        self.seconds += run.seconds or 0.0
        self.recorded += result.facts
        self.assumed.update(result.assumed)
        self.estimated.update(result.estimated)
        self.used.update(result.drawn)
        self.shares.update(result.shares)
        self.changed_total += 1
        listed = self.changed if run.ends_otherwise else self.changed_same_end
        if len(listed) < self.selection.listed_max:
            listed.append(run)

    def result(self) -> WhatIf:
        low, high = sorted((self.completed["low"], self.completed["high"]))
        middle = self.completed["middle"]
        return WhatIf(
            workflow=self.workflow,
            seed=self.selection.seed,
            since=self.selection.since,
            step=self.selection.step,
            runs=self.runs,
            decided=self.decided,
            facts=self.facts,
            unchanged=self.unchanged,
            ends_otherwise=self.otherwise.total(),
            ends_otherwise_by={by: count for by in ("fact", "assumed", "estimate") if (count := self.otherwise[by])},
            completed_before=self.completed_before,
            completed_now=middle,
            completed_low=min(low, middle),
            completed_high=max(high, middle),
            decisions=self.decisions,
            decisions_saved=self.decisions_saved,
            decisions_added=self.decisions_added,
            attempts=self.attempts,
            seconds=round(self.seconds, 3),
            outcomes_recorded=self.recorded,
            outcomes_assumed=dict(sorted(self.assumed.items())),
            outcomes_estimated=dict(sorted(self.estimated.items())),
            changed=tuple((self.changed + self.changed_same_end)[: self.selection.listed_max]),
            changed_total=self.changed_total,
            undecided=tuple(self.undecided),
            undecided_total=self.undecided_total,
            estimates=tuple(self._estimate(subject, count) for subject, count in sorted(self.used.items(), key=_order)),
            is_cut=self.is_cut,
        )

    def _estimate(self, subject: Subject, used: int) -> Estimate:
        share = self.shares[subject]
        low, high = wilson_bounds(share.worked, share.tried)
        return Estimate(
            place=subject.place,
            kind=subject.kind,
            failure="" if subject.failure is None else subject.failure.text,
            worked=share.worked,
            tried=share.tried,
            low=round(low, 4),
            high=round(high, 4),
            used=used,
        )


def _order(one: tuple[Subject, int]) -> tuple[Any, ...]:
    subject, used = one
    return -used, subject.place, subject.kind, subject.failure.text if subject.failure is not None else ""
