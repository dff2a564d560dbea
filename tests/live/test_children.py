"""Sub-workflows, live: each attempt is a run of its own, and what is done to the parent goes down the tree."""

from __future__ import annotations

import pytest
from tests.support.runner import Live, Ran, Terminal

from mulligan.core.model import events as e
from mulligan.errors import MulliganError
from mulligan.language import load
from mulligan.service.runs.changes.corrections import CorrectedWorkflow

# A child that says that it runs, and ends when the folder has `go`.
HELD = """
name: held
inputs: {name: string}
steps:
  - step: hold
    shell: 'touch up-${inputs.name}; until test -e go; do sleep 0.01; done; echo ${inputs.name} done'
    on_failure: {shell: 'echo "cleanup ${inputs.name}" >> trace', strategy: cleanup}
end: {shell: 'echo "end ${inputs.name}" >> trace'}
outputs: {said: "${steps.hold.output}"}
"""
# A child that fails until the folder has `mended`.
FLAKY = """
name: flaky
steps: [{step: work, shell: 'echo "work $MULLIGAN_RUN_ID" >> trace; test -e mended'}]
end: {shell: echo end >> trace}
"""


# A child whose second step fails until the folder has `mended`.
TWO = """
name: two
steps:
  - {step: one, shell: echo one >> trace}
  - {step: two, needs: [one], shell: echo two >> trace; test -e mended}
"""


def held(there: Terminal, *names: str) -> None:
    """Wait until these children hold."""
    for name in names:
        there.wait_until((there.folder / f"up-{name}").exists, f"'{name}' never began")


def children(live: Live, run_id: int) -> list[str]:
    """The statuses of its child runs, in the order in which they began."""
    return [child.status for child in live.children(run_id)]


# -- how they end ----------------------------------------------------------------------------------------------------


def test_children_run_one_after_the_other_with_inputs_and_give_their_outputs(live: Live):
    live.write("held.yaml", HELD)
    live.write("go")

    ran = live.run("""
        name: sequence
        steps:
          - {step: a, workflow: {file: held.yaml, inputs: {name: east}}}
          - {step: b, needs: [a], workflow: {file: held.yaml, inputs: {name: "after ${steps.a.output.said}"}}}
    """)

    assert (ran.status, ran.steps["b"]["output"]) == ("completed", {"said": "after east done done"})
    assert children(live, ran.run_id) == ["completed", "completed"]
    assert live.lines("trace") == ["end east", "end after east done"]


@pytest.mark.postgres
def test_children_run_at_the_same_time(live: Live):
    """Each ends only when both have begun."""

    def let_go(there: Terminal) -> None:
        held(there, "east", "west")
        (there.folder / "go").touch()

    live.write("held.yaml", HELD)

    ran = live.run(
        """
        name: parallel
        steps:
          - {step: a, workflow: {file: held.yaml, inputs: {name: east}}}
          - {step: b, workflow: {file: held.yaml, inputs: {name: west}}}
        """,
        meanwhile=let_go,
    )

    assert (ran.status, children(live, ran.run_id)) == ("completed", ["completed"] * 2)


def test_a_failing_child_climbs_its_parents_ladder_and_each_attempt_is_a_further_round(live: Live):
    live.write("flaky.yaml", FLAKY)

    ran = live.run("""
        name: parent
        steps: [{step: call, workflow: {file: flaky.yaml}, retry: 1, on_failure: {shell: touch mended, rerun: 1}}]
    """)

    assert ran.status == "completed"
    assert [(one.status, one.round) for one in live.service.reader.store.children(ran.run_id)] == [("completed", 3)]
    assert live.lines("trace") == ["work 2", "end"] * 3
    failed = ran.facts(e.AttemptFailed, place="call")
    assert [(fact.failure.code, fact.failure.cause[0].code) for fact in failed] == [
        ("CHILD_FAILED", "EXIT_NONZERO"),
        ("CHILD_FAILED", "EXIT_NONZERO"),
    ]


def test_another_round_of_the_parent_continues_its_child(live: Live):
    live.write("two.yaml", TWO)
    first = live.run("name: parent\nsteps: [{step: call, workflow: {file: two.yaml}}]")
    live.write("mended")

    live.service.changes.retry(first.run_id)
    second = live.resume(first.run_id)

    assert (second.status, [(one.run_id, one.status) for one in live.children(first.run_id)]) == (
        "completed",
        [(2, "completed")],
    )
    assert live.lines("trace") == ["one", "two", "two"]


def test_a_retry_of_the_child_run_does_the_same_from_below(live: Live):
    live.write("two.yaml", TWO)
    live.write("middle.yaml", "name: middle\nsteps: [{step: inner, workflow: two.yaml}]\n")
    first = live.run("name: parent\nsteps: [{step: call, workflow: {file: middle.yaml}}]")
    live.write("mended")

    planned = live.service.changes.retry(3, from_step="one")
    second = live.resume(first.run_id)

    assert (planned.run_id, planned.round, planned.root_run_id, planned.steps) == (3, 2, 1, ("one", "two"))
    assert (second.status, family_statuses(live, 1)) == ("completed", ["completed"] * 3)
    assert live.lines("trace") == ["one", "two", "one", "two"]


@pytest.mark.parametrize("run_id", [1, 2])
def test_from_start_a_new_child_run_starts(live: Live, run_id: int):
    live.write("two.yaml", TWO)
    first = live.run("name: parent\nsteps: [{step: call, workflow: {file: two.yaml}}]")
    live.write("mended")

    live.service.changes.retry(run_id, from_start=True)
    second = live.resume(first.run_id)

    assert (second.status, children(live, first.run_id)) == ("completed", ["failed", "completed"])
    assert live.lines("trace") == ["one", "two", "one", "two"]


def test_a_corrected_file_of_a_child_keeps_what_the_child_has_completed(live: Live):
    live.write("two.yaml", TWO)
    parent = "name: parent\nsteps: [{step: call, workflow: {file: two.yaml}}]"
    first = live.run(parent)
    live.write("two.yaml", TWO.replace("test -e mended", "true"))

    live.service.changes.retry(
        first.run_id, corrected=CorrectedWorkflow(load(live.write("parent.yaml", parent)), {}, "")
    )
    second = live.resume(first.run_id)

    assert (second.status, children(live, first.run_id)) == ("completed", ["completed"])
    assert live.lines("trace") == ["one", "two", "two"]


def test_children_nest_and_the_innermost_failure_is_the_cause_of_the_cause(live: Live):
    live.write("inner.yaml", "name: inner\nsteps: [{step: deep, shell: exit 42}]\n")
    live.write("middle.yaml", "name: middle\nsteps: [{step: call, workflow: {file: inner.yaml}}]\n")

    ran = live.run("name: outer\nsteps: [{step: call, workflow: {file: middle.yaml}}]")

    failure = ran.steps["call"]["failure"]
    inner = failure["cause"][0]["cause"][0]
    assert (ran.status, inner["step"], inner["exit_code"]) == ("failed", "deep", 42)
    assert [child.status for child in live.children(ran.run_id)] == ["failed"]


def test_a_child_with_inputs_that_do_not_fit_is_a_failure_that_is_not_retried(live: Live):
    live.write("held.yaml", HELD.replace("name: string", "name: integer"))

    ran = live.run("""
        name: parent
        inputs: {word: {default: east}}
        steps: [{step: call, workflow: {file: held.yaml, inputs: {name: "${inputs.word}"}}, retry: 3}]
    """)

    found = ran.steps["call"]["failure"]
    assert (ran.status, found["code"], ran.steps["call"]["attempts"]) == ("failed", "INPUT_INVALID", 1)
    assert live.children(ran.run_id) == []


def test_a_file_that_calls_itself_is_refused(live_file: Live):
    live_file.write("loop.yaml", "name: loop\nsteps: [{step: again, workflow: {file: loop.yaml}}]\n")

    with pytest.raises(MulliganError, match="loop"):
        live_file.run(live_file.folder / "loop.yaml")


def test_a_child_runs_the_file_as_it_was_when_its_parent_started(live: Live):
    live.write("held.yaml", HELD)
    live.write("go")

    ran = live.run("""
        name: pinned
        steps:
          - {step: change, shell: 'echo "not a workflow" > held.yaml'}
          - {step: call, needs: [change], workflow: {file: held.yaml, inputs: {name: east}}}
    """)

    assert (ran.status, ran.steps["call"]["output"]) == ("completed", {"said": "east done"})


# -- what is done to the parent --------------------------------------------------------------------------------------

PARENT = """
name: parent
cancel_grace: 0s
TIMEOUT
steps:
  - {step: call, workflow: {file: middle.yaml}, CALL}
  - {step: other, when: false, shell: 'true'}
end: {shell: echo end parent >> trace}
"""
MIDDLE = """
name: middle
cancel_grace: 0s
steps:
  - {step: book, shell: 'true', undo: echo undo middle >> trace}
  - {step: call, needs: [book], workflow: {file: held.yaml, inputs: {name: inner}}}
end: {shell: echo end middle >> trace}
"""


def family(live: Live, timeout: str = "", call: str = "retry: 0") -> str:
    live.write("held.yaml", HELD + "cancel_grace: 0s\n")
    live.write("middle.yaml", MIDDLE)
    return PARENT.replace("TIMEOUT", timeout).replace("CALL", call)


def family_statuses(live: Live, run_id: int) -> list[str]:
    """Of the run, its child, and its child's child."""
    [middle] = live.children(run_id)
    [inner] = live.children(middle.run_id)
    return [live.look(run_id).status, middle.status, inner.status]


def has_inner(live: Live, ran: Ran) -> bool:
    return any(live.children(middle.run_id) for middle in live.children(ran.run_id))


@pytest.mark.parametrize("now", [False, True])
def test_a_cancel_goes_down_the_tree_and_each_cleans_up_and_ends_before_its_parent(live: Live, now: bool):
    def cancel(there: Terminal) -> None:
        held(there, "inner")
        there.service.changes.cancel(there.run_id, now=now)

    ran = live.run(family(live), meanwhile=cancel)

    ends = ["end inner", "end middle", "end parent"]
    assert family_statuses(live, ran.run_id) == ["cancelled"] * 3
    assert live.lines("trace") == (ends if now else ["cleanup inner", "end inner", "undo middle", *ends[1:]])


def test_a_parent_whose_time_is_up_stops_the_tree(live: Live):
    ran = live.run_within(family(live, timeout="timeout: LIMIT"), 1500, lambda ran: has_inner(live, ran))

    assert family_statuses(live, ran.run_id) == ["failed", "cancelled", "cancelled"]
    assert live.lines("trace")[-1] == "end parent"


def test_a_step_whose_child_takes_too_long_is_a_timeout_and_may_be_routed(live: Live):
    text = family(live, call="timeout: LIMIT, next: {to: other, on: failure, codes: [TIMEOUT]}")

    ran = live.run_within(text.replace("when: false, ", ""), 1500, lambda ran: has_inner(live, ran))

    assert (ran.status, ran.steps["call"]["failure"]["code"]) == ("completed", "TIMEOUT")
    assert family_statuses(live, ran.run_id) == ["completed", "cancelled", "cancelled"]


@pytest.mark.postgres
def test_a_pause_goes_down_the_tree_and_so_does_resume(live: Live):
    def pause(there: Terminal) -> None:
        held(there, "inner")
        there.service.changes.pause(there.run_id)
        # It goes down run by run: what has ended before it is there has ended.
        there.wait_until(lambda: {run.status for run in there.service.reader.store.runs()} == {"paused"})
        (there.folder / "go").touch()

    paused = live.run(family(live), meanwhile=pause)

    assert (paused.ending, paused.exit_code) == ("waiting", 4)
    assert family_statuses(live, paused.run_id) == ["paused"] * 3
    assert live.lines("trace") == []

    live.service.changes.resume(paused.run_id)
    ran = live.resume(paused.run_id)

    assert family_statuses(live, ran.run_id) == ["completed"] * 3
    assert live.lines("trace") == ["end inner", "end middle", "end parent"]


def test_a_parked_child_makes_its_parent_wait_and_goes_on_when_it_is_classified(live: Live):
    live.write("child.yaml", "name: child\nsteps: [{step: work, shell: test -e mended, triage: true}]\n")
    waiting = live.run("name: parent\nsteps: [{step: call, workflow: {file: child.yaml}}]")
    [child] = live.children(waiting.run_id)
    live.write("mended")

    live.service.changes.classify(child.run_id, "work", "retry", "mended")
    ran = live.resume(waiting.run_id)

    assert (waiting.ending, waiting.exit_code, child.steps["work"]["status"]) == ("waiting", 4, "pending_failed")
    assert (ran.status, children(live, ran.run_id)) == ("completed", ["completed"])


def test_a_child_is_not_resumed_by_itself(live_file: Live):
    live_file.write("flaky.yaml", FLAKY)
    ran = live_file.run("name: parent\nsteps: [{step: call, workflow: {file: flaky.yaml}}]")

    with pytest.raises(MulliganError) as refused:
        live_file.service.changes.resume(2)

    assert ran.status == "failed"
    assert refused.value.message == "run 2 failed, so there is nothing to resume"
