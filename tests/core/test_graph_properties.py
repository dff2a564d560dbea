"""Invariants of every graph: random graphs, random outcomes, reported in random order."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.evolve.arrivals import is_met
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Backoff, Edge, Need, Step, Workflow
from mulligan.core.state.state import State
from mulligan.core.state.transitions import ENDED, RUN_ENDED
from mulligan.core.state.verdict import is_handled
from mulligan.core.turn import fold, turn
from mulligan.testing.history import History, edge, retry, step, workflow

TURNS_MAX = 3000
CRITICAL = {"reported": ({"code": "SECURITY_VIOLATION"},)}

bounded = settings(max_examples=examples(12, 50), deadline=None, derandomize=True)


# -- random workflows ------------------------------------------------------------------------------------------------


@st.composite
def acyclic(draw) -> tuple[Workflow, dict[str, str]]:
    """Needs, edges and joins, forward only; with how each step ends. What comes out does not depend on any order."""
    names = [f"s{i}" for i in range(draw(st.integers(1, 8)))]
    ends = {name: draw(st.sampled_from(["ok", "ok", "fail", "skip"])) for name in names}
    joins = {name: draw(st.sampled_from(["any", "all", "first"])) for name in names}
    steps = [_forward_step(draw, names, index, ends, joins) for index in range(len(names))]
    return workflow(*steps, fail_fast="never"), ends


def _forward_step(draw, names: list[str], index: int, ends: dict[str, str], joins: dict[str, str]) -> Step:
    name, before, after = names[index], names[:index], names[index + 1 :]
    needed = draw(st.lists(st.sampled_from(before), unique=True, max_size=2)) if before else []
    needs = [Need(of, draw(st.sampled_from(["success", "success_or_skipped", "always"]))) for of in needed]
    targets = draw(st.lists(st.sampled_from(after), unique=True, max_size=3)) if after else []
    edges = [_forward_edge(draw, to, joins[to]) for to in targets]
    return step(
        name,
        needs=needs,
        next=edges,
        when="no" if ends[name] == "skip" else None,
        join=joins[name],
        take=draw(st.sampled_from(["all", "first"])),
        continue_on_error=draw(st.booleans()),
    )


def _forward_edge(draw, to: str, join: str) -> Edge:
    # Whether a failure is still in time for `join: first` depends on who comes first: left out here.
    on = draw(st.sampled_from(["success", "always"] if join == "first" else ["success", "failure", "always"]))
    if on == "failure":
        return edge(to, on, handles=draw(st.booleans()), codes=draw(st.sampled_from([(), ("TIMEOUT",)])))
    return edge(to, on, when=draw(st.sampled_from([None, "yes", "no"])))


@st.composite
def tangled(draw) -> Workflow:
    """Anything: loops, remediations that rerun and stand in, joins of every kind, groups, retries, delays."""
    names = [f"s{i}" for i in range(draw(st.integers(1, 6)))]
    group = tuple(draw(st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=3)))
    steps = [_tangled_step(draw, names, index, group) for index in range(len(names))]
    policy = draw(st.sampled_from(["never", "on_critical", "always"]))
    return workflow(*steps, groups={"g": group}, fail_fast=policy)


def _tangled_step(draw, names: list[str], index: int, group: tuple[str, ...]) -> Step:
    before = names[:index]
    needed = draw(st.lists(st.sampled_from(before), unique=True, max_size=2)) if before else []
    needs = [Need(of, draw(st.sampled_from(["success", "always"]))) for of in needed]
    if set(group) <= set(before) and draw(st.booleans()):
        needs.append(Need("g", draw(st.sampled_from(["success", "always"])), is_group=True))
    targets = draw(st.lists(st.sampled_from([*names, "end"]), max_size=3))
    return step(
        names[index],
        needs=needs,
        next=[_tangled_edge(draw, to) for to in targets],
        join=draw(st.sampled_from(["any", "all", "first", "each"])),
        take=draw(st.sampled_from(["all", "first"])),
        no_match=draw(st.sampled_from(["record", "record", "fail"])),
        rules=draw(st.sampled_from([(), retry(1), retry(1, delay=5)])),
        continue_on_error=draw(st.booleans()),
        max_visits=draw(st.integers(1, 3)),
    )


def _tangled_edge(draw, to: str) -> Edge:
    on = draw(st.sampled_from(["success", "failure", "failure", "always"]))
    backoff = draw(st.sampled_from([Backoff(), Backoff(delay=3, factor=2, max_delay=10)]))
    if on == "failure":
        then = draw(st.sampled_from([None, "rerun", "continue"])) if to != "end" else None
        return edge(to, on, handles=True if then else draw(st.booleans()), then=then, backoff=backoff)
    return edge(to, on, when=draw(st.sampled_from([None, "yes", "even"])), backoff=backoff)


ANSWERS = {"yes": True, "no": False, "even": lambda names: names["output"] in (0, 2, None)}


# -- running them ----------------------------------------------------------------------------------------------------


class Checked(History):
    """A history that takes every turn back once, and folds every log anew."""

    def __init__(self, definition: Workflow) -> None:
        super().__init__(definition, ANSWERS)
        self.folded = State(definition, self.state.graph)

    def report(self, report: r.Report):
        first = turn(self.state, report, self.evaluator)
        self.state.rollback()
        assert self.state == self.folded, "a turn that was taken back left something behind"

        super().report(report)
        assert self.last == first, "the same report on the same state had other consequences"
        for entry in self.last:
            evolve(self.folded, entry)
        assert self.state == self.folded, "the log describes another state than the live one"
        return self


def played(run: History, choose: Random, end_of) -> History:
    """Report the tasks in any order until the run has ended."""
    run.start()
    for _ in range(TURNS_MAX):
        if run.status in RUN_ENDED:
            return run
        if not run.queued:
            assert run.timers, f"nothing is queued, nothing is due, and the run is {run.status}: {run.statuses}"
            run.wait(1000)
            continue
        key = choose.choice(run.queued)
        end_of(run, key)
    raise AssertionError(f"not over after {TURNS_MAX} turns: {run.statuses}")


def any_end(choose: Random):
    def end(run: History, key: str) -> None:
        roll = choose.random()
        if roll < 0.5:
            run.ok(key, output=choose.randrange(4))
        elif roll < 0.95:
            run.fail(key)
        else:
            run.fail(key, **CRITICAL)

    return end


def given_end(ends: dict[str, str]):
    def end(run: History, key: str) -> None:
        if ends[key] == "ok":
            run.ok(key)
        else:
            run.fail(key)

    return end


# -- the reference: the rules for graphs without loops and remediations that bring back ------------------


class Reference:
    """Final statuses, worked out step by step in the order of the file, with no events at all."""

    def __init__(self, definition: Workflow, ends: dict[str, str]) -> None:
        self.steps = {one.name: one for one in definition.steps}
        self.ends = ends
        self.status: dict[str, str] = {}
        self.arrivals: dict[str, list[bool]] = {name: [] for name in self.steps}
        self.route: dict[str, str] = {}
        for name in self.steps:
            self._decide(name)

    def _decide(self, name: str) -> None:
        taken: set[int] = set()
        if not self._runs(name) or self.ends[name] == "skip":
            self.status[name] = "skipped"
        elif self.ends[name] == "ok":
            self.status[name], taken = "completed", self._success(name)
        else:
            self.status[name], taken = "failed", self._failure(name)
        for one in self.steps[name].edges:
            self.arrivals[one.to].append(one.index in taken)

    def _runs(self, name: str) -> bool:
        one, arrived = self.steps[name], self.arrivals[name]
        needs = all(self._is_met(need) for need in one.needs)
        return needs and (not arrived or (all(arrived) if one.join == "all" else any(arrived)))

    def _is_met(self, need: Need) -> bool:
        status = self.status[need.of]
        is_allowed = status == "failed" and self.steps[need.of].continue_on_error and need.of not in self.route
        good = status == "completed" or is_allowed
        return need.on == "always" or good or (need.on == "success_or_skipped" and status == "skipped")

    def _holds(self, one: Edge) -> bool:
        return one.when is None or one.when.source == "yes"

    def _success(self, name: str) -> set[int]:
        edges = [one for one in self.steps[name].edges if self._holds(one)]
        success = [one.index for one in edges if one.on == "success"]
        always = {one.index for one in edges if one.on == "always"}
        return {*(success[:1] if self.steps[name].take == "first" else success), *always}

    def _failure(self, name: str) -> set[int]:
        edges = [one for one in self.steps[name].edges if one.on == "failure" and not one.codes]
        alerts = {one.index for one in edges if not one.handles}
        chosen = next((one for one in edges if one.handles), None)
        always = {one.index for one in self.steps[name].edges if one.on == "always" and self._holds(one)}
        if chosen is not None:
            self.route[name] = chosen.to
            return {chosen.index, *alerts, *always}
        return {*alerts, *(self._success(name) if self.steps[name].continue_on_error else always)}

    def is_handled(self, name: str) -> bool:
        target = self.route.get(name)
        if target is None or self.status[target] == "skipped":
            return False
        if self.status[target] == "failed":
            return not self.steps[target].continue_on_error and self.is_handled(target)
        return True

    @property
    def run_status(self) -> str:
        failed = [n for n, s in self.status.items() if s == "failed" and not self.steps[n].continue_on_error]
        return "completed" if all(map(self.is_handled, failed)) else "failed"


# -- graphs without loops --------------------------------------------------------------------------------------------


@bounded
@given(acyclic(), st.randoms(use_true_random=False))
def test_a_run_ends_as_the_rules_say_whatever_the_order_of_the_reports(case, choose):
    definition, ends = case
    expected = Reference(definition, ends)

    run = played(History(definition, ANSWERS), choose, given_end(ends))

    assert run.statuses == expected.status
    assert run.status == expected.run_status


@bounded
@given(acyclic(), st.randoms(use_true_random=False))
def test_the_order_of_steps_in_the_file_does_not_change_how_they_end(case, choose):
    definition, ends = case
    shuffled = list(definition.steps)
    choose.shuffle(shuffled)

    one = played(History(definition, ANSWERS), choose, given_end(ends))
    other = played(History(workflow(*shuffled, fail_fast="never"), ANSWERS), choose, given_end(ends))

    assert other.statuses == one.statuses
    assert other.status == one.status


@bounded
@given(acyclic(), st.randoms(use_true_random=False))
def test_no_step_is_entered_before_its_needs_are_met_or_while_an_edge_that_its_join_waits_for_is_open(case, choose):
    definition, ends = case
    run = played(History(definition, ANSWERS), choose, given_end(ends))
    state = State(definition, run.state.graph)

    for entry in run.log:
        if isinstance(entry.fact, e.StepEntered) and entry.fact.step != "end":
            node = state.graph.nodes[entry.fact.step]
            assert all(is_met(on, state.places[of].settled) for of, on in node.needs)
            sources = [state.places[arc.source].has_ended for arc in node.arrivals]
            assert all(sources) or (node.step.join == "first" and any(sources))
        evolve(state, entry)


@bounded
@given(acyclic(), st.randoms(use_true_random=False))
def test_without_loops_every_step_is_visited_at_most_once(case, choose):
    definition, ends = case

    run = played(History(definition, ANSWERS), choose, given_end(ends))

    entered = [fact.step for fact in run.facts(e.StepEntered)]
    assert len(entered) == len(set(entered))
    assert run.facts(e.StepPutBack) == []


# -- every graph -----------------------------------------------------------------------------------------------------


@bounded
@given(tangled(), st.randoms(use_true_random=False))
def test_every_run_ends_once_with_every_step_at_rest(definition, choose):
    run = played(History(definition, ANSWERS), choose, any_end(choose))

    assert set(run.statuses.values()) <= ENDED
    assert len(run.facts(e.RunCompleted, e.RunFailed, e.RunCancelled)) == 1
    assert len([f for f in run.facts(e.StepEntered) if f.step == "end"]) == 1
    assert run.state.run.active == run.state.run.waiting == 0
    assert run.queued == []


@bounded
@given(tangled(), st.randoms(use_true_random=False))
def test_a_run_that_was_not_stopped_leaves_nothing_open(definition, choose):
    run = played(History(msgspec.structs.replace(definition, fail_fast="never"), ANSWERS), choose, any_end(choose))

    assert all(place.settled and not place.queue for place in run.state.steps())
    assert all(is_handled(run.state, record) is not None for record in run.state.failures)
    assert run.state.run.loops == {}


@bounded
@given(tangled(), st.randoms(use_true_random=False))
def test_after_every_turn_the_log_folds_to_the_state_and_a_turn_can_be_taken_back(definition, choose):
    run = played(Checked(definition), choose, any_end(choose))

    assert fold(definition, run.log) == run.state


@bounded
@given(tangled(), st.randoms(use_true_random=False))
def test_the_log_is_numbered_without_gaps_never_goes_back_in_time_and_names_earlier_causes(definition, choose):
    run = played(History(definition, ANSWERS), choose, any_end(choose))

    assert [entry.seq for entry in run.log] == list(range(1, len(run.log) + 1))
    assert all(before.at <= after.at for before, after in pairwise(run.log))
    assert all(0 <= entry.caused_by < entry.seq for entry in run.log)


@bounded
@given(tangled(), st.randoms(use_true_random=False))
def test_visits_are_numbered_never_overlap_and_exceed_max_visits_by_one_at_most(definition, choose):
    run = played(History(definition, ANSWERS), choose, any_end(choose))
    steps = {one.name: one for one in definition.steps}
    visits = dict.fromkeys(steps, 0)
    is_open = dict.fromkeys(steps, False)

    for fact in run.facts(e.StepEntered, e.StepCompleted, e.StepFailed, e.StepCancelled):
        if fact.step not in steps:
            continue
        if isinstance(fact, e.StepEntered):
            assert not is_open[fact.step]
            assert fact.visit == visits[fact.step] + 1
            visits[fact.step] += 1
        is_open[fact.step] = isinstance(fact, e.StepEntered)

    assert all(visits[name] <= one.max_visits + 1 for name, one in steps.items())


@bounded
@given(tangled(), st.randoms(use_true_random=False))
def test_every_loop_that_fires_was_taken_and_found_its_region_at_rest(definition, choose):
    run = played(History(definition, ANSWERS), choose, any_end(choose))
    state = State(definition, run.state.graph)

    for entry in run.log:
        if isinstance(entry.fact, e.LoopFired):
            taken = state.run.loops[state.graph.arc(entry.fact.step, entry.fact.edge).key]
            assert taken.due <= entry.at
            assert not any(state.places[name].is_active for name in state.graph.region(entry.fact.to))
        evolve(state, entry)


@bounded
@given(tangled(), st.randoms(use_true_random=False))
def test_what_a_waiting_step_has_counted_is_what_a_recount_would_find(definition, choose):
    run = History(definition, ANSWERS)

    def end(told_run: History, key: str) -> None:
        any_end(choose)(told_run, key)
        for place in told_run.state.steps():
            if place.status == "waiting":
                node = told_run.state.graph.nodes[place.key]
                unsettled = [of for of, _ in node.needs if not told_run.state.places[of].settled]
                closed = [barrier for barrier in node.waits if told_run.state.barriers[barrier.key][0]]
                arcs = [told_run.state.arcs.get(arc.key) for arc in node.arrivals]
                assert place.open_needs == len(unsettled) + len(closed), place.key
                assert place.open_arrivals == sum(arc in (None, "arrived") for arc in arcs), place.key

    played(run, choose, end)
