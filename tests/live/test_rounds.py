"""What people do to runs, seen from outside and on both stores: rounds, rounds for items, rounds that give more, forks,
pauses, and orders that come twice."""

from __future__ import annotations

import math
import os

import pytest
from tests.support.runner import Live, Terminal

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Adjusted
from mulligan.errors import Refused
from mulligan.language import load

MIB = 1 << 20
# An item completes once a file of its name is there.
CHECKED = """
    name: checked
    steps:
      - step: check
        map: {over: "${['a', 'b', 'c']}", as: one, on_item_failure: collect}
        do: [{shell: 'echo "${one}" >> trace; test -e "${one}" || exit 3; echo "${one} is there"'}]
        undo: {shell: echo undone >> trace}
      - {step: report, needs: [check], shell: "echo ${steps.check.output.failed} failed"}
      - {step: aside, shell: echo aside >> trace}
    outputs: {said: "${steps.report.output}", results: "${steps.check.output.results}"}
"""


def statuses(live: Live, run_id: int) -> list[str]:
    return [item.status for item in live.service.runs.list_items(run_id, "check")]


# -- items -----------------------------------------------------------------------------------------------------------


def test_failed_items_of_a_run_that_completed_get_a_round_of_their_own(live: Live):
    live.write("a")
    first = live.run(CHECKED)
    assert (first.status, first.shown["outputs"]["said"]) == ("completed", "2 failed")
    live.write("trace")
    live.write("b")

    planned = live.service.changes.retry(first.run_id, from_step="check", items=(), dry_run=True)
    live.service.changes.retry(first.run_id, from_step="check", items=(), reason="b came")
    second = live.resume(first.run_id)

    assert (planned.steps, planned.items, planned.kept) == (("check", "report"), {"check": (1, 2)}, ("aside",))
    assert sorted(live.lines("trace")) == ["b", "c"]
    assert second.shown["outputs"] == {"said": "1 failed", "results": ["a is there", "b is there", None]}
    assert statuses(live, first.run_id) == ["completed", "completed", "failed"]


def test_a_third_round_takes_up_where_the_second_left_off(live: Live):
    live.write("a")
    first = live.run(CHECKED)
    for name in ("b", "c"):
        live.write(name)
        live.service.changes.retry(first.run_id, from_step="check", items=())
        last = live.resume(first.run_id)

    assert (last.shown["round"], last.shown["degraded"]) == (3, False)
    assert [one.attempts for one in live.service.runs.list_items(first.run_id, "check")] == [1, 2, 3]
    tried = live.service.runs.item_history(first.run_id, "check", 2).history
    assert [(one.round, one.status) for one in tried] == [(1, "failed"), (2, "failed"), (3, "succeeded")]


def test_a_round_for_items_that_is_cancelled_leaves_them_for_the_next(live: Live):
    live.write("a")
    first = live.run(CHECKED)
    live.service.changes.retry(first.run_id, from_step="check", items=())
    live.service.changes.cancel(first.run_id)
    assert live.resume(first.run_id).status == "cancelled"
    live.write("trace")
    live.write("b")
    live.write("c")

    live.service.changes.retry(first.run_id)
    last = live.resume(first.run_id)

    assert last.shown["outputs"]["said"] == "0 failed"


# -- more of what ran out ----------------------------------------------------------------------------------------------


def test_a_round_gives_more_time_to_the_commands_of_items_that_were_late(live: Live):
    os.mkfifo(live.folder / "never")
    first = live.run("""
        name: late
        steps:
          - step: check
            timeout: 1s
            map: {over: "${[0, 1]}", as: n}
            do: [{shell: 'test "${n}" = 0 || test -e quick || read -r < never'}]
    """)
    live.write("quick")

    planned = live.service.changes.retry(first.run_id, adjust=True)
    second = live.resume(first.run_id)

    assert planned.adjusted == {"check": Adjusted(timeout=2.0)}
    assert planned.adjustments == {"check": ["timeout 1s -> 2s, because it timed out"]}
    [scheduled] = second.facts(e.AttemptScheduled, place="check[1].0", attempt=2)
    assert (scheduled.adjusted, second.status) == (Adjusted(timeout=2.0), "completed")


def test_a_round_gives_more_memory_to_what_ran_out_of_it(live: Live):
    first = live.run("""
        name: hungry
        steps:
          - step: solve
            shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || { head -c 100000000 /dev/zero; sleep 60; } | tail -n 1'
            resources: {memory: 24MiB}
    """)
    assert first.steps["solve"]["failure"]["code"] == "OUT_OF_MEMORY"

    planned = live.service.changes.retry(first.run_id, adjust=True)
    second = live.resume(first.run_id)

    [failed] = first.facts(e.AttemptFailed)
    used = max(24 * MIB, failed.failure.details["peak_memory"])
    assert planned.adjusted == {"solve": Adjusted(memory=math.ceil(used * 1.5 / MIB) * MIB)}
    [scheduled] = second.facts(e.AttemptScheduled, place="solve", attempt=2)
    assert (scheduled.adjusted, second.status) == (planned.adjusted["solve"], "completed")


# -- from a step, and forks --------------------------------------------------------------------------------------------

BUILT = """
    name: built
    steps:
      - {step: fetch, shell: echo fetch >> trace; echo fetched}
      - {step: build, needs: [fetch], shell: echo build >> trace; echo built}
      - {step: side, needs: [fetch], shell: echo side >> trace}
      - {step: deploy, needs: [build], shell: echo deploy >> trace; test -e key}
"""


CORRECTED = """
    name: built
    steps:
      - {step: fetch, shell: echo fetch >> trace; echo fetched}
      - {step: build, needs: [fetch], shell: echo build >> trace; echo built}
      - {step: check, needs: [fetch], shell: echo check >> trace}
      - {step: side, needs: [check], shell: echo side >> trace}
      - {step: deploy, needs: [build], shell: echo deploy >> trace}
"""


def test_from_a_step_everything_behind_it_runs_again_and_the_rest_is_kept(live: Live):
    first = live.run(BUILT)
    live.write("trace")
    live.write("key")

    planned = live.service.changes.retry(first.run_id, from_step="build")
    second = live.resume(first.run_id)

    assert (planned.steps, planned.kept) == (("build", "deploy"), ("fetch", "side"))
    assert (second.status, live.lines("trace")) == ("completed", ["build", "deploy"])


def test_a_fork_with_a_corrected_file_keeps_what_is_not_touched(live: Live):
    first = live.run(BUILT)
    live.write("trace")
    corrected = load(live.write("corrected.yaml", CORRECTED))

    planned = live.service.changes.fork(first.run_id, "deploy", {}, corrected, dry_run=True)
    second = live.resume(live.service.changes.fork(first.run_id, "deploy", {}, corrected).fork_run_id)

    assert (planned.kept, planned.steps) == (("fetch", "build"), ("check", "side", "deploy"))
    assert second.status == "completed"
    assert sorted(live.lines("trace")) == ["check", "deploy", "side"]


@pytest.mark.parametrize("verb", ["retry", "items", "fork"])
def test_a_plan_leaves_no_trace_in_the_store(live: Live, verb: str):
    live.write("a")
    first = live.run(CHECKED if verb == "items" else BUILT)
    before = live.service.reader.store.load(first.run_id)

    if verb == "fork":
        live.service.changes.fork(first.run_id, "deploy", {}, dry_run=True)
    else:
        chosen = {"from_step": "check", "items": ()} if verb == "items" else {}
        live.service.changes.retry(first.run_id, adjust=True, **chosen, dry_run=True)

    assert live.service.reader.store.load(first.run_id) == before
    assert live.service.reader.store.inbox([first.run_id]) == []
    assert [record.run_id for record in live.service.reader.runs()] == [first.run_id]


# -- pauses, and orders that come twice --------------------------------------------------------------------------------

HELD = """
    name: held
    steps:
      - step: hold
        shell: read -r word < down
        on_failure: {shell: read -r word < cleaned, strategy: cleanup}
      - {step: after, needs: [hold], shell: echo after >> trace}
"""


def test_a_pause_says_how_many_commands_still_run_and_is_refused_a_second_time(live: Live):
    os.mkfifo(live.folder / "down")
    said: list[object] = []

    def pause(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="hold")
        said.append(there.service.changes.pause(there.run_id).still_running)
        with pytest.raises(Refused) as refused:
            there.service.changes.pause(there.run_id)
        said.append(refused.value.render())
        (there.folder / "down").write_text("go\n")

    ran = live.run(HELD, meanwhile=pause)

    assert said == [["hold"], "error[refused]: run 1 is already paused\n  to continue it: mulligan resume 1"]
    assert (ran.status, ran.steps["hold"]["status"], ran.steps["after"]["status"]) == ("paused", "completed", "ready")
    live.service.changes.resume(ran.run_id)
    assert live.resume(ran.run_id).status == "completed"


def test_a_second_cancel_is_refused_unless_it_says_now(live: Live):
    for name in ("down", "cleaned"):
        os.mkfifo(live.folder / name)
    said: list[str] = []

    def cancel(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="hold")
        there.service.changes.cancel(there.run_id)
        there.wait_for(e.AttemptStarted, place="hold.on_failure@1.0")
        with pytest.raises(Refused) as refused:
            there.service.changes.cancel(there.run_id)
        said.append(refused.value.render())
        there.service.changes.cancel(there.run_id, now=True)

    ran = live.run(HELD, meanwhile=cancel)

    assert said == [
        "error[refused]: run 1 is already being cancelled\n  to skip cleanup and undo: mulligan cancel 1 --now"
    ]
    assert (ran.status, [fact.now for fact in ran.facts(e.RunStopping)]) == ("cancelled", [False, True])


def test_paused_time_does_not_count_against_the_timeout_of_the_run(live: Live):
    text = "name: timed\ntimeout: 1h\nsteps:\n  - {step: gate, approve: 'go?'}\n"
    first = live.run(text)
    live.service.changes.pause(first.run_id)
    live.service.changes.resume(first.run_id)

    state, log = live.service.reader.state(first.run_id), list(live.service.reader.events(first.run_id))

    at = {type(entry.fact): entry.at for entry in log}
    started = next(entry.fact for entry in log if isinstance(entry.fact, e.RunStarted))
    assert isinstance(started, e.RunStarted) and started.due is not None
    assert state.run.due == started.due + (at[e.RunResumed] - at[e.RunPaused])
