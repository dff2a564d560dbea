"""`workspace`, live: steps, items and child workflows work in worktrees, and the checkout only gets what is merged."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.runner import Live, Terminal

from mulligan.core.deciding.rounds.fork import plan_fork
from mulligan.core.model import events as e
from mulligan.core.model.event_types import Kept, WorktreeOrigin
from mulligan.core.model.reports import RunRequested
from mulligan.errors import Refused
from mulligan.ports import NewRun
from mulligan.service.host.gc import RunRetention
from mulligan.service.runs.changes.run_worktrees import note_removal
from mulligan.service.server.store_calls import StoreCalls

FLOW = """
name: edit
workspace: {git: worktree, branch: 'agents/${run.id}', merge: squash}
steps:
  - {step: change, shell: 'echo working; echo 2 >> base; pwd > where; test -e ready', logs: {stdout: change.log}}
  - step: files
    needs: [change]
    map: {over: '["x", "y"]'}
    workspace: {git: worktree}
    do: ['echo ${item} > ${item}.txt', 'cat base ${item}.txt']
  - {step: group, needs: [files], group: {steps: [{step: in_group, shell: cat x.txt y.txt > both}]}}
end: {shell: pwd > end}
outputs: {files: '${steps.files.output.results}'}
"""


def git(live: Live, *words: str) -> str:
    found = subprocess.run(["git", *words], cwd=live.folder, check=True, capture_output=True, text=True)
    return found.stdout.strip()


def repository(live: Live) -> None:
    git(live, "init", "-q", "-b", "main")
    git(live, "config", "user.name", "Tester")
    git(live, "config", "user.email", "tester@example.org")
    live.write(".git/info/exclude", "*\n!base\n!both\n!*.txt\n")
    live.write("base", "1\n")
    git(live, "add", "base")
    git(live, "commit", "-q", "-m", "base")


def test_a_run_works_beside_the_checkout_and_is_merged_as_one_commit_when_it_succeeds(live_file: Live):
    live = live_file
    repository(live)

    failed = live.run(FLOW)
    untouched = (live.read("base"), git(live, "status", "--porcelain"), git(live, "branch", "--show-current"))
    work = live.service.runs.show(1)["workspace"]
    live.write(f"{work['worktree']}/ready")
    live.service.changes.retry(1)
    ran = live.resume(1)

    assert (failed.status, failed.steps["workspace_merge"]["status"]) == ("failed", "skipped")
    assert untouched == ("1\n", "", "main") and work["branch"] == "agents/1"
    assert (ran.status, ran.steps["workspace_merge"]["status"]) == ("completed", "completed")
    assert live.service.runs.show(1)["outputs"]["files"] == ["1\n2\n2\nx", "1\n2\n2\ny"]
    assert git(live, "log", "--format=%s").splitlines() == ["Work of agents/1", "base"]
    assert (live.read("both"), live.lines("end")) == ("x\ny\n", [str(live.folder)])
    assert git(live, "for-each-ref", "--format=%(refname:short)", "refs/heads/") == "main"
    assert (live.folder / "change.log").is_symlink()


# -- forks -------------------------------------------------------------------------------------------------------------

FORKED = """
name: forked
inputs: {t: {type: string, default: ""}}
workspace: {git: worktree, merge: merge}
steps:
  - {step: edit, shell: 'echo edited > edited.txt; echo ignored > ignored'}
  - {step: check, needs: [edit], shell: 'echo "${inputs.t}" > "by-${inputs.t}.txt"; cat ignored; test -n "${inputs.t}"'}
"""


def names(live: Live) -> list[str]:
    return git(live, "ls-tree", "--name-only", "-r", "main").splitlines()


def worktrees(live: Live) -> Path:
    return live.service.home.folder / "worktrees"


def branches(live: Live) -> list[str]:
    return git(live, "for-each-ref", "--format=%(refname:short)", "refs/heads/", "refs/mulligan/").splitlines()


@pytest.mark.nightly
def test_forks_and_a_retry_of_their_origin_work_beside_each_other_and_merge_only_what_is_theirs(live_file: Live):
    live = live_file
    repository(live)
    live.run(FORKED)
    service = live.service
    forks = [service.changes.fork(1, "check", {"t": word}).fork_run_id for word in ("x", "y")]

    first = live.resume(forks[0])
    after_first = names(live)
    open_ = service.runs.show(1)["workspace"]
    live.write(f"{open_['worktree']}/by-retry.txt")
    second = live.resume(forks[1])
    service.changes.retry(1)
    third = live.resume(1)

    assert (first.status, second.status, third.status) == ("completed", "completed", "failed")
    assert after_first == ["base", "by-.txt", "by-x.txt", "edited.txt"]
    assert names(live) == ["base", "by-.txt", "by-x.txt", "by-y.txt", "edited.txt"]
    assert open_["worktree_exists"] and branches(live) == ["main", "mulligan/1"]


def test_a_fork_at_an_event_has_a_worktree_of_its_own(live_file: Live):
    live = live_file
    repository(live)
    ran = live.run(FORKED)
    at = next(
        entry.seq for entry in ran.log if isinstance(entry.fact, e.AttemptStarted) and entry.fact.place == "check"
    )
    forks = live.service.event_forks

    started = forks.fork(1, at, inputs={"t": "z"})
    fork = live.resume(started.fork_run_id or 0)

    assert started.again == ["check: attempt 2"]
    assert fork.status == "completed" and "by-z.txt" in names(live)
    assert branches(live) == ["main", "mulligan/1"] and live.service.runs.show(1)["workspace"]["worktree_exists"]


@pytest.mark.nightly
def test_a_fork_has_what_was_there_when_it_was_made_though_its_origin_goes_on_first(live_file: Live):
    live = live_file
    repository(live)
    live.run(FORKED.replace('test -n "${inputs.t}"', "test -e ready"))
    work = live.service.runs.show(1)["workspace"]["worktree"]
    fork = live.service.changes.fork(1, "check", {"t": "x"}).fork_run_id

    live.write(f"{work}/ready")
    live.write(f"{work}/later.txt")
    live.service.changes.retry(1)
    merged = live.resume(1)
    forked = live.resume(fork)

    folder = worktrees(live) / f"run-{fork}"
    assert (merged.status, forked.status) == ("completed", "failed")
    assert not (folder / "later.txt").exists()
    assert (folder / "edited.txt").exists()


def test_a_worktree_that_is_gone_is_said_and_the_hint_restores_it_or_there_is_none(live_file: Live):
    live = live_file
    repository(live)
    live.run(FORKED)
    work = live.service.runs.show(1)["workspace"]
    git(live, "worktree", "remove", "--force", work["worktree"])

    with pytest.raises(Refused) as refused:
        live.service.changes.retry(1)
    command = str(refused.value.hint).removeprefix("restore it: ")
    subprocess.run(command, shell=True, check=True, cwd="/", capture_output=True)
    live.service.changes.retry(1, dry_run=True)
    git(live, "worktree", "remove", "--force", work["worktree"])
    git(live, "branch", "-D", work["branch"])
    seen = live.service.runs.show(1)["workspace"]
    with pytest.raises(Refused) as again:
        live.service.changes.fork(1, "check", {})

    assert (seen["worktree_exists"], seen["branch_exists"]) == (False, False)
    assert "git worktree" not in str(again.value.hint)
    assert live.service.changes.fork(1, "workspace", {}, dry_run=True).kept == ()


def test_gc_removes_the_worktrees_and_branches_of_removed_runs_and_no_others(live_file: Live):
    live = live_file
    repository(live)
    for _ in range(2):
        live.run(FORKED)

    planned = live.service.machine.collect_garbage(RunRetention(keep=1), is_dry=True)
    removed = live.service.machine.collect_garbage(RunRetention(keep=1))

    assert [one.name for one in removed.worktrees] == [one.name for one in planned.worktrees] == ["run-1"]
    assert branches(live) == ["main", "mulligan/2"]
    assert [path.name for path in worktrees(live).glob("run-*")] == ["run-2"]


def test_gc_continues_a_removal_that_was_killed_and_leaves_worktrees_of_runs_that_it_never_had(live_file: Live):
    live = live_file
    repository(live)
    for _ in range(2):
        live.run(FORKED)
    folder = worktrees(live)
    note_removal(folder, {1: live.service.reader.state(1).run.uid})
    live.service.reader.store.remove([1, 2])

    live.service.machine.collect_garbage(RunRetention())

    assert [path.name for path in folder.glob("run-*")] == ["run-2"] and branches(live) == ["main", "mulligan/2"]


def test_a_child_run_in_the_worktree_of_its_caller_cannot_be_forked_alone(live_file: Live):
    live = live_file
    repository(live)
    text = "{name: g, workspace: {git: worktree}, steps: [{step: g, group: {steps: [{step: x, shell: 'exit 1'}]}}]}"
    live.run(text)

    with pytest.raises(Refused) as refused:
        live.service.changes.fork(2, "x", {})

    assert refused.value.hint == "fork that one: mulligan fork 1 --from STEP"


@pytest.mark.nightly
def test_items_of_two_maps_at_the_same_time_have_worktrees_of_their_own(live_file: Live):
    live = live_file
    repository(live)
    steps = "\n".join(
        f"  - step: {name}\n    map: {{over: '[1]'}}\n    workspace: {{git: worktree}}\n"
        f"    do: ['echo {name} > {name}.txt; basename $(pwd)']"
        for name in ("left", "right")
    )

    ran = live.run(f"name: maps\nworkspace: {{git: worktree, merge: merge}}\nsteps:\n{steps}\n")

    assert ran.status == "completed" and names(live) == ["base", "left.txt", "right.txt"]
    assert [ran.steps[name]["output"]["results"] for name in ("left", "right")] == [
        ["run-1-item-left-0"],
        ["run-1-item-right-0"],
    ]


@pytest.mark.parametrize("is_older", [False, True])
def test_a_server_gives_a_fork_over_http_the_worktree_that_its_own_log_names(live_file: Live, is_older: bool):
    live = live_file
    repository(live)
    live.run(FORKED)
    old = live.service.reader.state(1)
    planned = plan_fork(old, old.graph, "check")
    # An older client keeps what the step returned that opened the worktree; a hostile one names any folder.
    opened = Kept("workspace", "completed", old.places["workspace"].output)
    sent: dict[str, Any] = (
        {"kept": (opened, *planned.kept)} if is_older else {"worktree": WorktreeOrigin({"worktree": "/etc"})}
    )
    loaded = live.service.reader.store.load(1)
    request = RunRequested(datetime.now(UTC), 0, {"t": "x"}, loaded.record.version, forked_from=1, uid="u1")
    request = msgspec.structs.replace(request, kept=planned.kept)
    new = NewRun(loaded.workflow, loaded.record.version, "forked", msgspec.structs.replace(request, **sent))

    (turn,) = StoreCalls(live.service.changes)._create([new])
    fork = live.resume(turn.run_id)

    assert fork.status == "completed" and "by-x.txt" in names(live)
    assert branches(live) == ["main", "mulligan/1"] and live.service.runs.show(1)["workspace"]["worktree_exists"]


def test_a_run_is_not_forked_while_its_commands_change_the_files_that_a_fork_copies(live_file: Live):
    live = live_file
    repository(live)
    text = "{name: w, workspace: {git: worktree}, steps: [{step: a, shell: 'until test -e go; do sleep 0.01; done'}]}"
    refusals = []

    def fork(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="a")
        work = there.service.runs.show(there.run_id)["workspace"]
        for pause in (lambda: None, lambda: there.service.changes.pause(there.run_id)):
            pause()
            for plan in (
                lambda: there.service.changes.fork(there.run_id, "a", {}, dry_run=True),
                lambda: there.service.event_forks.fork(there.run_id, 8, dry_run=True),
            ):
                with pytest.raises(Refused) as refused:
                    plan()
                refusals.append(str(refused.value.hint).partition(":")[0])
        # While the command runs, the driver is there to answer; it leaves a paused run in which nothing runs.
        there.service.changes.resume(there.run_id)
        live.write(f"{work['worktree']}/go")

    ran = live.run(text, meanwhile=fork)

    assert refusals[1:] == ["pause it first", *["wait until its commands have ended"] * 2]
    assert ran.status == "completed"
