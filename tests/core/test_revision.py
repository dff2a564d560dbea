"""A corrected definition in the same run: what runs again, what is kept, and what the log says of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.core.deciding.rounds.fork import plan_fork
from mulligan.core.effects.snapshot import changes, restore
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.evolve.revision import compare_definitions, lost_undos, plain_from_json
from mulligan.core.model import events as e
from mulligan.core.model.codec import decode_log, encode_log
from mulligan.core.model.file_records import StaleFile
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import Revised, TaskEnded
from mulligan.core.model.workflow import Action, Budget, Map, Need, Resources, Step, Workflow, encode, version
from mulligan.core.turn import fold, turn
from mulligan.errors import NothingToRetry, Refused, RunNotFinished, UnknownStep
from mulligan.history.story import story
from mulligan.testing.history import History, command, edge, expression, handler, retry, shell, step, workflow
from proof.invariants.run_invariants import check

CHAIN = (step("fetch"), step("load", needs=["fetch"]), step("tell", needs=["load"]))


def failed_at_load(*steps: Any, **fields: Any) -> History:
    return History(workflow(*(steps or CHAIN), **fields)).start().ok("fetch", output=7).fail("load")


def put_back(run: History) -> tuple[str, ...]:
    steps: tuple[str, ...] = run.facts(e.RunReopened)[-1].put_back
    return steps


def is_sound(run: History, first: Workflow) -> bool:
    """The log alone, from the first definition on, gives the same state, also after it was written down."""
    check(run.log, run.state, first)
    return fold(first, decode_log(encode_log(run.log))) == run.state


def test_a_group_that_is_another_is_called_a_group() -> None:
    def with_group(inner: str) -> Workflow:
        group = Action("workflow", {"file": "flow.yaml#g", "group": True})
        inside = workflow(step("one", action=shell(inner)))
        return workflow(step("g", action=group), step("load"), children={"flow.yaml#g": inside})

    found = compare_definitions(Graph(with_group("a")), Graph(with_group("b")))

    assert found.changed == {"g": ("group",)}


def test_a_run_that_completed_keeps_its_definition_also_where_a_file_of_it_is_gone() -> None:
    run = History(workflow(step("fetch", writes=("out",)))).start().ok("fetch")
    gone = (StaleFile("fetch", "out", "gone"),)

    data = encode(workflow(step("fetch", writes=("out",), action=shell("x"))))
    with pytest.raises(Refused) as refused:
        run.retry(stale=gone, revised=Revised(version(data), plain_from_json(data), {}))

    assert "mulligan fork 1 --from STEP --file FILE" in refused.value.hint
    assert run.status == "completed"


def test_the_version_of_a_corrected_definition_is_computed_and_not_believed() -> None:
    run = History(workflow(step("load"))).start().fail("load")
    data = encode(workflow(step("load", action=shell("x"))))

    run.retry(revised=Revised("0" * 16, plain_from_json(data), {}))

    assert run.facts(e.RunRevised)[-1].version == run.state.run.present_version == version(data)


def test_what_was_undone_is_no_result_for_later_runs_when_its_step_is_gone() -> None:
    run = History(workflow(step("fetch", undo=command("undo")), step("load", needs=["fetch"]))).start()
    run.report(TaskEnded(run.clock, "fetch", 1, fingerprint="f" * 32)).fail("load").ok("fetch.undo@1")
    assert (run["fetch"].is_undone, run["fetch"].fingerprint) == (True, "f" * 32)

    run.retry_with(workflow(step("load")))

    assert (run["fetch"].is_undone, run["fetch"].fingerprint) == (False, "")


# -- what runs again -------------------------------------------------------------------------------------------------


def test_the_corrected_step_runs_again_with_what_waits_for_it_and_the_rest_keeps_its_results() -> None:
    first = workflow(*CHAIN)
    run = failed_at_load()

    run.retry_with(workflow(CHAIN[0], step("load", needs=["fetch"], action=shell("load --fixed")), CHAIN[2]))
    assert (put_back(run), run.queued) == (("load", "tell"), ["load"])
    assert run["load"].spec.action == shell("load --fixed")
    run.ok("load", "tell")

    assert (run.status, run["fetch"].visit, run["fetch"].output, run["load"].visit) == ("completed", 1, 7, 2)
    assert run.state.run.round == 2
    assert is_sound(run, first)


def test_the_log_says_which_definition_holds_and_what_is_another_in_it() -> None:
    run = failed_at_load(step("fetch"), step("load", needs=["fetch"]), step("old", needs=["load"]))
    fixed = workflow(step("fetch"), step("load", needs=["fetch"], action=shell("x"), timeout=3.0), step("new"))

    run.retry_with(fixed, file="/flow.yaml", digest="d")

    (fact,) = run.facts(e.RunRevised)
    assert (fact.added, fact.removed, fact.changed) == (("new",), ("old",), {"load": ("shell", "timeout")})
    assert (fact.renewed, fact.by, fact.file) == (("load",), "someone", "/flow.yaml")
    assert fact.version == run.state.run.present_version != run.state.run.version
    assert [type(one) for one in run.follows][:2] == [e.RunRevised, e.RunReopened]


def test_a_completed_step_whose_result_would_be_another_runs_again_with_all_behind_it() -> None:
    run = failed_at_load()

    run.retry_with(workflow(step("fetch", action=shell("fetch --all")), *CHAIN[1:]))

    assert (put_back(run), run.queued) == (("fetch", "load", "tell"), ["fetch"])
    run.ok("fetch", "load", "tell")
    assert run.status == "completed"
    assert is_sound(run, workflow(*CHAIN))


@pytest.mark.parametrize(
    "policy",
    [
        {"timeout": 9.0},
        {"deadline": 9.0},
        {"rules": retry(3)},
        {"resources": Resources(memory=1)},
        {"on_failure": handler()},
        {"undo": command("undo")},
        {"max_visits": 3},
        {"cache": True},
        {"budget": Budget(calls=3)},
    ],
    ids=lambda policy: next(iter(policy)),
)
def test_a_completed_step_is_kept_where_only_its_limits_and_its_remedies_are_others(policy: dict[str, Any]) -> None:
    run = failed_at_load()

    run.retry_with(workflow(step("fetch", **policy), *CHAIN[1:])).ok("load", "tell")

    assert put_back(run) == ("load", "tell")
    assert list(run.facts(e.RunRevised)[0].changed) == ["fetch"]
    assert (run.status, run["fetch"].visit) == ("completed", 1)
    assert is_sound(run, workflow(*CHAIN))


def test_the_policy_of_a_failed_step_holds_when_it_runs_again() -> None:
    run = failed_at_load()

    run.retry_with(workflow(CHAIN[0], step("load", needs=["fetch"], rules=retry(1)), CHAIN[2])).fail("load")

    assert (run["load"].status, run["load"].attempt) == ("ready", 3)


def test_a_handled_failure_runs_again_if_its_step_was_corrected_and_else_is_kept() -> None:
    steps = (step("flaky", next=[edge("fix", "failure", then="continue")]), step("fix"), step("bad"))
    corrected = step("flaky", next=steps[0].edges, action=shell("firm"))

    def ended() -> History:
        return History(workflow(*steps)).start().fail("flaky").ok("fix").fail("bad")

    kept = ended().retry_with(workflow(*steps[:2], step("bad", action=shell("good"))))
    again = ended().retry_with(workflow(corrected, *steps[1:]))

    assert (put_back(kept), put_back(again)) == (("bad",), ("flaky", "fix", "bad"))
    kept.ok("bad")
    again.ok("flaky", "bad")
    assert (kept.status, again.status) == ("completed", "completed")
    assert is_sound(kept, workflow(*steps)) and is_sound(again, workflow(*steps))


def test_a_step_that_needs_a_step_that_runs_again_and_did_not_before_runs_again() -> None:
    first = workflow(step("bad"), step("good"), step("last", needs=["good"]))
    run = History(first).start().ok("good", "last").fail("bad")

    run.retry_with(workflow(step("bad"), step("good", needs=["bad"]), step("last", needs=["good"])))

    assert (put_back(run), run.queued) == (("bad", "good", "last"), ["bad"])
    run.ok("bad", "good", "last")
    assert run.status == "completed"
    assert is_sound(run, first)


def test_a_step_that_needs_another_completed_step_now_keeps_its_result() -> None:
    first = workflow(step("a"), step("b"), step("bad"))
    run = History(first).start().ok("a", "b").fail("bad")

    run.retry_with(workflow(step("a"), step("b", needs=["a"]), step("bad"))).ok("bad")

    assert (put_back(run), run.status) == (("bad",), "completed")
    assert is_sound(run, first)


def test_a_step_whose_edges_lead_elsewhere_runs_again() -> None:
    first = workflow(step("a", next=["b"]), step("b"), step("bad"))
    run = History(first).start().ok("a", "b").fail("bad")

    run.retry_with(workflow(step("a", next=["c"]), step("b"), step("c"), step("bad")))

    assert put_back(run) == ("a", "c", "bad")
    run.ok("a", "c", "bad")
    assert (run.status, run.statuses["b"], run["b"].visit) == ("completed", "completed", 1)
    assert is_sound(run, first)


def test_what_completed_keeps_its_result_where_that_is_asked_for() -> None:
    first = workflow(*CHAIN)
    run = failed_at_load()
    others = [msgspec.structs.replace(one, action=shell(f"{one.name} --fixed")) for one in CHAIN]

    run.retry_with(workflow(*others), keeps_completed=True)

    assert (put_back(run), run.queued) == (("load", "tell"), ["load"])
    run.ok("load", "tell")
    assert (run.status, run["fetch"].visit, run["fetch"].spec.action) == ("completed", 1, shell("fetch --fixed"))
    assert is_sound(run, first)


def test_a_completed_step_whose_edges_lead_elsewhere_runs_again_in_any_case() -> None:
    run = History(workflow(step("a", next=["b"]), step("b"), step("bad"))).start().ok("a", "b").fail("bad")

    run.retry_with(workflow(step("a", next=["c"]), step("b"), step("c"), step("bad")), keeps_completed=True)

    assert put_back(run) == ("a", "c", "bad")


# -- steps that come and go ------------------------------------------------------------------------------------------


def test_a_new_step_runs_and_so_does_what_needs_it() -> None:
    run = failed_at_load()

    run.retry_with(workflow(*CHAIN[:2], step("check", needs=["fetch"]), step("tell", needs=["load", "check"])))

    assert (put_back(run), run.queued) == (("load", "check", "tell"), ["check", "load"])
    run.ok("load", "check", "tell")
    assert run.ended == e.RunCompleted(round=2, total_steps=4)
    assert is_sound(run, workflow(*CHAIN))


def test_the_failure_of_a_step_that_is_gone_fails_nothing_any_more() -> None:
    first = workflow(step("good"), step("bad"), step("after", needs=["good", "bad"]))
    run = History(first).start().ok("good").fail("bad")

    run.retry_with(workflow(step("good"), step("after", needs=["good"]))).ok("after")

    assert (run.status, run.state.run.degraded, run.statuses) == (
        "completed",
        False,
        {"good": "completed", "after": "completed"},
    )
    assert is_sound(run, first)


def test_a_step_that_comes_back_goes_on_with_its_numbers() -> None:
    first = workflow(step("a"), step("b"), step("bad"))
    run = History(first).start().ok("a", "b").fail("bad")
    run.retry_with(workflow(step("b"), step("bad"))).fail("bad")
    assert run.statuses == {"b": "completed", "bad": "failed"}

    run.retry_with(first).ok("a", "bad")

    assert (run.status, run["a"].attempt, run["a"].visit) == ("completed", 2, 2)
    assert run.state.past["a", 1].status == "completed"
    assert is_sound(run, first)


def test_what_a_step_that_is_gone_had_to_undo_is_lost_and_can_be_said_before() -> None:
    first = workflow(step("a", undo=command("undo a")), step("b", undo=command("undo b")), step("bad"))
    run = History(first).start().ok("a", "b").cancel(now=True).fail("bad", signal=15)
    fixed = workflow(step("b", undo=command("undo b better")), step("bad"))
    assert lost_undos(run.state, Graph(fixed)) == ("a",)

    run.retry_with(fixed).fail("bad")

    assert run.queued == ["b.undo@1"]
    assert run["b.undo@1"].spec.action == shell("undo b better")
    run.ok("b.undo@1")
    assert run.status == "failed"
    assert is_sound(run, first)


def test_a_group_with_another_member_is_waited_for_as_it_is_now() -> None:
    def swept(*members: str) -> Workflow:
        need = Need("sim", is_group=True)
        return workflow(*map(step, members), Step(name="sum", needs=(need,)), groups={"sim": members})

    first = swept("s1", "s2")
    run = History(first).start().ok("s1").fail("s2")

    run.retry_with(swept("s1", "s3"))

    assert (put_back(run), run.queued) == (("s3", "sum"), ["s3"])
    run.ok("s3")
    assert (run.status, run.statuses["sum"]) == ("completed", "completed")
    assert is_sound(run, first)


def test_the_end_of_the_run_is_that_of_the_corrected_definition() -> None:
    first = workflow(step("a"), end=step("end", action=shell("old")))
    run = History(first).start().fail("a").ok("end")

    run.retry_with(workflow(step("a"), end=step("end", action=shell("new")))).ok("a")

    assert (run.queued, run["end"].spec.action) == (["end"], shell("new"))
    run.ok("end")
    assert (run.status, run.facts(e.RunRevised)[0].settings) == ("completed", ("end",))
    assert is_sound(run, first)


# -- maps ------------------------------------------------------------------------------------------------------------


def mapped(text: str = "x", **fields: Any) -> Any:
    return step("each", map=Map(over=expression("items")), do=(command(text, **fields),))


def test_a_map_whose_commands_are_others_starts_over_and_one_with_another_limit_keeps_its_items() -> None:
    answers = {"items": [1, 2]}

    def ended() -> History:
        return History(workflow(mapped()), answers).start().ok("each[0].0").fail("each[1].0")

    over = ended().retry_with(workflow(mapped("y")))
    on = ended().retry_with(workflow(mapped(timeout=5.0)))
    kept = ended().retry_with(workflow(mapped("y")), keeps_completed=True)

    assert (over.queued, on.queued, kept.queued) == (["each[0].0", "each[1].0"], ["each[1].0"], ["each[1].0"])
    assert kept["each[1].0"].spec.action == shell("y")
    over.ok("each[0].0", "each[1].0")
    on.ok("each[1].0")
    assert (over.status, on.status) == ("completed", "completed")
    assert is_sound(over, workflow(mapped())) and is_sound(on, workflow(mapped()))


def test_a_map_that_is_gone_leaves_no_item_behind_that_counts() -> None:
    run = History(workflow(mapped(), step("a")), {"items": [1]}).start().ok("a").fail("each[0].0")

    run.retry_with(workflow(step("a")))

    assert (run.status, run.state.run.degraded) == ("completed", False)
    assert is_sound(run, workflow(mapped(), step("a")))


# -- what is refused -------------------------------------------------------------------------------------------------


def test_the_same_definition_is_another_round_and_nothing_else() -> None:
    run = failed_at_load()

    run.retry_with(workflow(*CHAIN))

    assert run.facts(e.RunRevised) == []
    assert put_back(run) == ("load", "tell")


def test_new_inputs_alone_are_a_revision() -> None:
    run = failed_at_load()

    run.retry_with(workflow(*CHAIN), inputs={"n": 3})

    assert run.state.run.inputs == {"n": 3}
    assert is_sound(run, workflow(*CHAIN))


def test_a_workflow_of_another_name_is_refused_unless_that_is_meant() -> None:
    run = failed_at_load()
    other = msgspec.structs.replace(workflow(step("fetch"), step("load", needs=["fetch"])), name="other")
    before = list(run.log)

    with pytest.raises(Refused):
        run.retry_with(other)
    assert run.log == before

    run.retry_with(other, may_rename=True).ok("load")
    assert (run.status, run.state.workflow.name) == ("completed", "other")


def test_a_run_that_goes_on_or_has_completed_is_refused() -> None:
    fixed = workflow(step("a", action=shell("b")))

    with pytest.raises(RunNotFinished):
        History(workflow(step("a"))).start().retry_with(fixed)
    with pytest.raises(NothingToRetry):
        History(workflow(step("a"))).start().ok("a").retry_with(fixed)


def test_a_round_may_start_at_a_step_that_is_new_and_not_at_one_that_is_gone() -> None:
    fixed = workflow(step("fetch"), step("more", needs=["fetch"]), step("load", needs=["fetch"]))

    with pytest.raises(UnknownStep):
        failed_at_load().retry_with(fixed, from_step="tell")
    run = failed_at_load().retry_with(fixed, from_step="more")

    assert put_back(run) == ("more", "load")


# -- the state -------------------------------------------------------------------------------------------------------


class Kept(History):
    """A history whose tables are kept as a store would keep them."""

    rows: list[Any]

    def report_once(self, report: Any) -> Kept:
        self.last = turn(self.state, report, self.evaluator)
        self.rows = [*getattr(self, "rows", []), *changes(self.state)]
        self.state.commit()
        self.log.extend(self.last)
        return self


FIXED = workflow(step("load", action=shell("x"), needs=["new"]), step("new"))


def test_the_tables_hold_the_definition_that_the_run_goes_by() -> None:
    first = workflow(*CHAIN)
    run = Kept(first).start()
    run.ok("fetch").fail("load")
    run.retry_with(FIXED).ok("new")

    restored = restore(first, run.rows)

    assert restored == run.state
    assert (restored.workflow, restored.places["fetch"].spec) == (FIXED, run["fetch"].spec)
    assert restored.graph.nodes.keys() == {"load", "new"}


def test_a_turn_with_a_revision_is_taken_back_whole() -> None:
    run, twin = failed_at_load(), failed_at_load().retry_with(FIXED)
    before, graph = fold(run.state.workflow, run.log), run.state.graph

    run.state.begin()
    for entry in twin.last:
        evolve(run.state, entry)
    assert run.state == twin.state
    run.state.rollback()

    assert (run.state, run.state.workflow) == (before, workflow(*CHAIN))
    assert run.state.graph is graph


def test_a_fork_of_the_run_takes_over_what_it_has_under_the_definition_that_it_goes_by() -> None:
    run = failed_at_load().retry_with(FIXED).ok("new").ok("load")

    fork = plan_fork(run.state, run.state.graph, "load")
    back = plan_fork(run.state, Graph(workflow(*CHAIN)), "load")

    assert ([one.step for one in fork.kept], fork.runs) == (["new"], ("load",))
    # What the run had forgotten is no result of it.
    assert ([one.step for one in back.kept], back.runs) == ([], ("fetch", "load", "tell"))


def test_the_story_tells_each_round_by_the_definition_that_held_then() -> None:
    first = workflow(CHAIN[0], step("load", needs=["fetch"], rules=retry(1)), CHAIN[2])
    run = History(first).start().ok("fetch").fail("load").fail("load")
    run.retry_with(workflow(CHAIN[0], step("load", needs=["fetch"], rules=retry(5), action=shell("x")))).fail("load")

    told = [line.text for line in story(run.log, first)]

    granted = [text for text in told if "retry 1 of" in text]
    assert ["of 1" in granted[0], "of 5" in granted[1]] == [True, True]
    assert any(text.startswith("workflow corrected to version") and "removed 'tell'" in text for text in told)
    assert any(text == "changed: shell, retry" for text in told)


# -- comparing -------------------------------------------------------------------------------------------------------


def changed(old: Any, new: Any, **fields: Any) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    found = compare_definitions(Graph(workflow(old)), Graph(workflow(new, **fields)))
    return found.changed, found.renewed


def test_a_step_is_another_if_a_file_it_uses_is_elsewhere_or_a_workflow_it_calls_is_another() -> None:
    reads = step("a", reads=("mesh",))
    calls = step("a", action=msgspec.structs.replace(shell(), kind="workflow", params={"file": "east.yaml"}))

    assert changed(reads, reads, files={"mesh": "b.vtk"}) == ({"a": ("files",)}, ("a",))
    assert changed(reads, reads, files={"other": "b.vtk"}) == ({}, ())
    assert changed(calls, calls, children={"east.yaml": workflow(step("x"))}) == ({"a": ("workflow",)}, ("a",))


def test_what_of_the_workflow_itself_is_another_is_named() -> None:
    found = compare_definitions(Graph(workflow(step("a"))), Graph(workflow(step("a"), timeout=3.0, max_parallel=1)))

    assert (found.settings, found.changed) == (("timeout", "max_parallel"), {})


def test_a_removed_step_whose_failure_was_routed_on_does_not_stop_the_run():
    fails = step("a", next=[edge("fix", "failure")])
    run = History(workflow(fails, step("fix"), fail_fast="never")).start().fail("a").fail("fix")

    run.retry_with(workflow(step("fix"), fail_fast="never")).fail("fix")

    assert (run.status, run.facts(e.RunStopping)) == ("failed", [])


@pytest.mark.parametrize("then", ["rerun", "continue"])
@pytest.mark.parametrize("end", ["ok", "fail"])
def test_the_remediation_of_a_step_that_is_gone_ends_like_any_other_step(then: Any, end: str):
    fails = step("a", next=[edge("fix", "failure", then=then)])
    others = step("b", next=[edge("fix")]), step("fix", join="each")
    first = workflow(fails, *others, fail_fast="never")
    # The failure is routed to the second visit, which does not begin in this round.
    run = History(first).start().ok("b").fail("a").cancel(now=True).fail("fix")

    run.retry_with(workflow(*others, fail_fast="never"))
    getattr(run, end)("fix")

    assert (run["fix"].visit, run.status) == (2, {"ok": "completed", "fail": "failed"}[end])
    assert run.facts(e.StepSettled, e.StepPutBack, e.StepReplaced) == []
    assert is_sound(run, first)


def test_a_step_is_not_visited_again_for_a_step_that_is_gone():
    others = step("b", next=[edge("gather")]), step("gather", join="each")
    first = workflow(step("a", next=[edge("gather")]), *others)
    run = History(first).start().ok("a").ok("b").cancel(now=True).fail("gather")

    run.retry_with(workflow(*others)).ok("gather")

    assert (run["gather"].visit, run.status) == (2, "completed")
    assert is_sound(run, first)


def test_a_skipped_step_that_a_removed_step_led_to_starts() -> None:
    run = History(workflow(step("a", next=["b"]), step("b"), step("c", needs=["b"]))).start().fail("a")
    assert run.statuses["b"] == "skipped"

    run.retry_with(workflow(step("b"), step("c", needs=["b"])))

    assert (put_back(run), run.queued) == (("b", "c"), ["b"])


def test_a_skipped_step_that_still_cannot_start_stays_skipped() -> None:
    steps = (step("a", next=[edge("b", "failure")]), step("b"), step("c", needs=[Need("b", "always")]))
    run = History(workflow(*steps, step("bad"))).start().ok("a").ok("c").fail("bad")

    run.retry_with(workflow(*steps))

    assert (put_back(run), run.status) == ((), "completed")
