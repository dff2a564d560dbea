"""`workspace`: a run that works in a Git worktree, and what its steps read of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.run_json import run_json

from mulligan.core.deciding.rounds.fork import plan_fork, run_reasons, worktree_origin
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model.kept_history import pack_history
from mulligan.core.state.workspace import folder_of, workspace_view
from mulligan.core.turn import fold
from mulligan.errors import InputInvalid
from mulligan.history.story import story
from mulligan.language.readers.workspace_steps import keep_workspace, with_default_workspace
from mulligan.testing.history import History

from .writing import run_of, written

WORK = {
    "folder": "/runs/worktrees/run-1",
    "worktree": "/runs/worktrees/run-1",
    "branch": "mulligan/1",
    "target": "main",
}
CLOSED = {"branch": "mulligan/1", "merged_into": "main", "commits": 2, "kept": []}


def plain(merge: str = "merge", steps: str = "", end: str = "{shell: report}") -> History:
    steps = steps or "[{step: a, shell: make}, {step: b, needs: [a], shell: make, cwd: sub}]"
    return run_of(f"{{name: w, workspace: {{git: worktree, merge: {merge}}}, steps: {steps}, end: {end}}}")


def home(run: History, key: str) -> str:
    return make_task(run.state, key).home


def test_the_worktree_is_opened_first_and_merged_last_and_the_steps_between_work_in_it():
    run = plain()
    first = run.queued
    opening = make_task(run.state, "workspace")

    run.ok("workspace", output=WORK)
    folders = [home(run, "a")]
    called_from = make_task(run.state, "a").called_from
    run.ok("a")
    folders.append(home(run, "b"))
    run.ok("b")
    merging = make_task(run.state, "workspace_merge")
    run.ok("workspace_merge", output=CLOSED)

    assert (first, opening.home, opening.params["branch"]) == (["workspace"], run.state.run.cwd, "mulligan/1")
    assert (folders, called_from) == ([WORK["folder"]] * 2, run.state.run.cwd)
    assert (merging.home, merging.params["work"], merging.params["merge"]) == (run.state.run.cwd, WORK, "merge")
    assert home(run, "end") == run.state.run.cwd
    assert run.ok("end").status == "completed"
    assert fold(run.state.workflow, run.log).run == run.state.run


def test_a_run_that_fails_or_is_cancelled_is_not_merged_and_a_retry_continues_in_its_worktree():
    run = plain().ok("workspace", output=WORK).fail("a")
    at_end = home(run, "end")
    run.ok("end")
    skipped = (run.status, run.statuses["workspace_merge"])
    run.retry()
    again = (run.queued, home(run, "a"))
    run.ok("a", "b", "workspace_merge", "end")
    cancelled = plain().ok("workspace", output=WORK).cancel()

    assert at_end == WORK["folder"]
    assert (skipped, again) == (("failed", "skipped"), (["a"], WORK["folder"]))
    assert run.status == "completed"
    assert cancelled.statuses["workspace_merge"] == "cancelled"


def test_a_failure_that_was_handled_does_not_keep_the_work_from_being_merged():
    steps = "[{step: a, shell: make, next: {to: fix, on: failure}}, {step: fix, shell: mend}]"
    run = plain(steps=steps).ok("workspace", output=WORK).fail("a").ok("fix")

    assert run.queued == ["workspace_merge"]


def test_a_conflict_is_a_failure_that_a_handler_in_the_worktree_may_resolve():
    text = """
    name: w
    workspace:
      git: worktree
      merge: merge
      on_failure: {shell: 'git merge ${run.workspace.target} && resolve', rerun: 1}
    steps: [{step: a, shell: make}]
    """
    run = run_of(text).ok("workspace", output=WORK).ok("a")

    run.fail("workspace_merge", reported={"code": "MERGE_CONFLICT", "message": "both changed", "retryable": False})
    [handler] = run.queued
    folder = home(run, handler)
    run.ok(handler)

    assert folder == WORK["folder"]
    assert run.queued == ["workspace_merge"] and run.ok("workspace_merge", output=CLOSED).status == "completed"


def test_a_merge_that_fails_fails_the_run_and_a_retry_merges_again():
    run = plain().ok("workspace", output=WORK).ok("a", "b").fail("workspace_merge").ok("end")

    failed = run.status
    run.retry()

    assert (failed, run.queued) == ("failed", ["workspace_merge"])


def test_without_a_merge_the_work_is_committed_and_kept():
    run = plain("none").ok("workspace", output={**WORK, "uncommitted": 2}).ok("a", "b")

    assert make_task(run.state, "workspace_commit").params["merge"] == "none"
    run.ok("workspace_commit", output={**CLOSED, "merged_into": ""}).ok("end")

    lines = [line.text for line in story(iter(run.log), run.state.workflow)]
    assert lines[0].startswith(
        "completed: works in /runs/worktrees/run-1 on branch 'mulligan/1'; without 2 uncommitted"
    )
    assert "completed: 2 commits on branch 'mulligan/1'; to merge: git merge mulligan/1" in lines
    assert run_json(run.state)["workspace"] == {**WORK, "checkout": None, "merge": "none", "merged": False}


def test_a_child_run_works_in_the_worktree_of_its_caller():
    run = plain(steps="[{step: g, group: {steps: [{step: x, shell: make}]}}]").ok("workspace", output=WORK)

    assert folder_of(run.state, run.state.places["g"]) == WORK["folder"]


def test_the_context_of_an_agent_does_not_speak_of_the_worktree():
    run = plain(steps="[{step: a, agent: look around}]").ok("workspace", output=WORK)

    context = make_task(run.state, "a").agent_context
    assert context is not None and context.outputs == ()


# -- items -------------------------------------------------------------------------------------------------------------


MAPPED = """
name: w
workspace: {git: worktree}
steps:
  - step: m
    map: {over: '["x", "y"]'}
    workspace: {git: worktree}
    do:
      - echo ${item}
      - {shell: 'echo "${output} ${outputs[0]}"'}
"""


def test_each_item_opens_a_worktree_works_in_it_and_is_merged_with_its_result():
    run = run_of(MAPPED).ok("workspace", output=WORK)
    item = {"folder": "/runs/worktrees/run-1-item-0", "branch": "mulligan/run-1-item-0"}
    opening = make_task(run.state, "m[0].0")

    run.ok("m[0].0", output=item)
    first = make_task(run.state, "m[0].1")
    run.ok("m[0].1", output="one")
    second = make_task(run.state, "m[0].2")
    run.ok("m[0].2", output="two")
    merging = make_task(run.state, "m[0].3")
    run.ok("m[0].3", output="two")

    assert opening.params == {"verb": "open_item", "run": WORK, "index": 0}
    assert (first.home, second.home) == (item["folder"],) * 2
    assert sorted(second.env.values()) == ["one", "one"]
    assert (merging.params["item"], merging.params["result"]) == (item, "two")
    assert run.state.places["m[0]"].status == "completed"


def test_the_view_is_null_before_it_is_open_and_without_a_workspace():
    assert workspace_view(plain().state) is None
    assert workspace_view(run_of("{name: w, steps: [{step: a, shell: make}]}").state) is None
    assert written("{name: w, steps: [{step: a, shell: make}]}").workspace is None


# -- files without one -------------------------------------------------------------------------------------------------


def test_a_run_can_be_started_in_a_worktree_whatever_the_file_says_and_stays_there_when_the_file_is_corrected():
    file = written("{name: w, steps: [{step: a, shell: make}, {step: b, needs: [a], shell: make}]}")
    corrected = written("{name: w, steps: [{step: a, shell: make}, {step: b, needs: [a], shell: make all}]}")

    started = with_default_workspace(file)
    kept = keep_workspace(corrected, started)

    assert [step.name for step in started.steps] == ["workspace", "a", "b", "workspace_commit"]
    assert with_default_workspace(started) is started and keep_workspace(corrected, file) is corrected
    assert (kept.workspace, kept.steps[0], kept.steps[3]) == (started.workspace, started.steps[0], started.steps[3])
    with pytest.raises(InputInvalid, match="the step 'workspace' is added"):
        with_default_workspace(written("{name: w, steps: [{step: workspace, shell: make}]}"))


# -- forks -------------------------------------------------------------------------------------------------------------

OTHER = {"folder": "/runs/worktrees/run-2", "worktree": "/runs/worktrees/run-2", "branch": "mulligan/2", "items": {}}
LOOSE = (
    "[{step: a, shell: make}, {step: b, needs: [a], shell: make}, {step: c, needs: [{step: a, on: always}], shell: x}]"
)


def forked(run: History, from_step: str) -> History:
    planned = plan_fork(run.state, run.state.graph, from_step)
    return History(run.state.workflow, evaluator=run.evaluator).start(
        run_id=2, forked_from=1, kept=planned.kept, worktree=planned.worktree
    )


def forked_here(run: History, **more: Any) -> History:
    """A fork that goes on from the last event of a run."""
    seq, history = run.state.run.seq, pack_history(run.log)
    origin = worktree_origin(run.state)
    return History(run.state.workflow, evaluator=run.evaluator).start(
        run_id=2, forked_from=1, forked_at=seq, history=history, worktree=origin, **more
    )


def test_a_fork_opens_its_own_worktree_as_a_copy_before_any_of_its_steps_runs():
    failed = plain().ok("workspace", output=WORK).ok("a").fail("b").ok("end")

    fork = forked(failed, "b")
    first, opening, view = fork.queued, make_task(fork.state, "workspace"), workspace_view(fork.state)
    fork.ok("workspace", output=OTHER)

    assert (first, fork.statuses["a"], view) == (["workspace"], "completed", None)
    assert opening.params["run"] == 2 and opening.params["origin"] == {"work": WORK, "commit": "", "items": []}
    assert (fork.queued, home(fork, "b")) == (["b"], OTHER["folder"])
    fork.ok("b")
    assert make_task(fork.state, "workspace_merge").params["work"] == OTHER
    assert fold(fork.state.workflow, fork.log).run == fork.state.run


def test_a_fork_from_the_step_that_opens_the_worktree_copies_nothing():
    fork = forked(plain().ok("workspace", output=WORK).fail("a").ok("end"), "workspace")

    assert "origin" not in make_task(fork.state, "workspace").params


def test_a_fork_of_a_fork_that_has_no_worktree_yet_copies_the_same_one():
    first = forked(plain().ok("workspace", output=WORK).ok("a").fail("b").ok("end"), "b")

    second = forked(first, "b")

    assert make_task(second.state, "workspace").params["origin"]["work"] == WORK


def test_a_fork_at_an_event_opens_its_worktree_first_and_then_runs_what_ran_and_what_was_queued():
    run = plain(steps="[{step: a, shell: make}, {step: b, shell: make}]").ok("workspace", output=WORK).started("a")

    fork = forked_here(run)
    first, opening = fork.queued, make_task(fork.state, "workspace")
    fork.ok("workspace", output=OTHER)

    assert first == ["workspace"] and opening.params["origin"]["work"] == WORK
    assert (fork.queued, home(fork, "a"), home(fork, "b")) == (["a", "b"], *[OTHER["folder"]] * 2)
    assert [fork.state.places[name].attempt for name in "ab"] == [2, 2]
    fork.ok("a", "b")
    assert make_task(fork.state, "workspace_merge").params["work"] == OTHER


def test_items_of_a_fork_at_an_event_go_on_in_copies_of_their_worktrees():
    item = {"folder": "/runs/worktrees/run-1-item-0", "worktree": "/runs/worktrees/run-1-item-0"}
    copy = {"folder": "/runs/worktrees/run-2-item-0", "worktree": "/runs/worktrees/run-2-item-0"}
    run = run_of(MAPPED).ok("workspace", output=WORK).ok("m[0].0", output=item)

    fork = forked_here(run)
    copied = make_task(fork.state, "workspace").params["origin"]["items"]
    fork.ok("workspace", output={**OTHER, "items": {item["worktree"]: copy}})

    assert copied == [item] and home(fork, "m[0].1") == copy["folder"]


@pytest.mark.parametrize("is_at_event", [False, True])
def test_a_fork_whose_worktree_cannot_be_opened_runs_nothing_in_the_checkout_and_a_retry_opens_it(is_at_event: bool):
    steps = "[{step: a, shell: make, on_failure: {shell: git reset, strategy: cleanup}}, {step: b, shell: make}]"
    run = plain(steps=steps).ok("workspace", output=WORK).ok("b").started("a")
    fork = forked_here(run) if is_at_event else forked(run.fail("a").ok("a.on_failure@1.0").ok("end"), "a")

    fork.fail("workspace")
    after = (fork.queued, fork.statuses["a"])
    failed = fork.ok("end").status
    fork.retry()
    again = fork.queued
    fork.ok("workspace", output=OTHER)

    assert (after, failed, again) == ((["end"], "cancelled"), "failed", ["workspace"])
    assert (fork.queued, home(fork, "a")) == (["a"], OTHER["folder"])


@pytest.mark.parametrize("now", [False, True])
def test_a_fork_that_is_cancelled_before_its_worktree_is_open_runs_nothing_but_its_end(now: bool):
    steps = "[{step: a, shell: make, on_failure: {shell: git reset, strategy: cleanup}}, {step: b, shell: make}]"
    fork = forked_here(plain(steps=steps).ok("workspace", output=WORK).started("a"))

    fork.cancel(now=now)

    assert (fork.queued, fork.statuses["a"], fork.statuses["b"]) == (["end"], "cancelled", "cancelled")


def test_where_no_worktree_could_be_opened_no_step_runs_in_the_checkout_instead():
    run = plain(steps=LOOSE).fail("workspace")

    assert (run.queued, run.statuses["c"]) == (["end"], "cancelled")
    assert run.ok("end").status == "failed"


def test_a_queued_attempt_of_a_fork_at_an_event_has_the_number_of_the_fork():
    run = plain()

    fork = forked_here(run)

    assert fork.queued == ["workspace"]
    assert make_task(fork.state, "workspace").params["run"] == 2


def test_a_plan_of_a_fork_says_why_the_workspace_is_opened_again() -> None:
    run = plain().ok("workspace", output=WORK).fail("a")
    graph = run.state.graph

    planned = plan_fork(run.state, graph, "a")

    why = run_reasons(run.state, graph, "a", planned)
    assert (why["workspace"], why["a"]) == ("each fork has a worktree of its own", "the fork starts here")
    assert set(why) == set(planned.runs)


def test_a_fork_made_while_the_worktree_is_opened_once_more_does_not_work_in_the_other_one() -> None:
    run = plain().ok("workspace", output=WORK).fail("a").ok("end").retry("workspace").started("workspace")

    fork = forked_here(run)

    assert (run.state.run.workspace, fork.state.run.workspace) == (WORK["folder"], "")
    fork.ok("workspace", output=OTHER)
    assert fork.state.run.workspace == OTHER["folder"]


def test_a_fork_at_an_event_of_the_end_goes_on_with_it_once_though_its_worktree_cannot_be_opened():
    run = plain(steps="[{step: a, shell: make}]").ok("workspace", output=WORK).fail("a")
    assert run.queued == ["end"]

    fork = forked_here(run)
    fork.fail("workspace")
    once = [fact for fact in fork.facts(e.AttemptInterrupted) if fact.place == "end"]
    fork.started("end").cancel(now=True)

    assert (len(once), len(fork.facts(e.AttemptInterrupted))) == (1, 1)
    assert fork.ok("end").status in ("failed", "cancelled")


def approved_while_the_worktree_is_opened() -> History:
    """A fork at the moment at which `end` waits for a person, who approves before the worktree of the fork is open."""
    run = plain("none", steps="[{step: a, shell: make}]", end="{approve: go on?}").ok("workspace", output=WORK).ok("a")
    run.ok("workspace_commit", output=CLOSED)
    return forked_here(run).started("workspace").approve("end")


def test_a_fork_whose_end_is_approved_before_its_worktree_is_open_ends_after_both():
    fork = approved_while_the_worktree_is_opened()

    assert fork.status == "running"
    assert fork.ok("workspace", output=OTHER).status == "completed"


def test_a_fork_whose_end_is_approved_ends_too_if_its_worktree_cannot_be_opened_or_the_run_is_cancelled():
    assert approved_while_the_worktree_is_opened().fail("workspace").status == "failed"
    assert approved_while_the_worktree_is_opened().cancel().lose("workspace").status == "cancelled"
    paused = approved_while_the_worktree_is_opened().pause().ok("workspace", output=OTHER)
    assert (paused.status, paused.resume().status) == ("paused", "completed")


def test_a_fork_whose_worktree_cannot_be_opened_waits_for_its_end_no_longer_than_the_other_run():
    end = "{approve: go on?, timeout: 60s}"
    run = plain("none", steps="[{step: a, shell: make}]", end=end).ok("workspace", output=WORK).ok("a")
    run.ok("workspace_commit", output=CLOSED)

    fork = forked_here(run).fail("workspace")

    assert (fork.status, fork.wait(61).status) == ("running", "failed")
