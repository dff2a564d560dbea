"""`workspace`, live: steps, items and child workflows work in worktrees, and the checkout only gets what is merged."""

from __future__ import annotations

import subprocess

from .runner import Live

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
    work = live.service.show(1)["workspace"]
    live.write(f"{work['worktree']}/ready")
    live.service.retry(1)
    ran = live.resume(1)

    assert (failed.status, failed.steps["workspace_merge"]["status"]) == ("failed", "skipped")
    assert untouched == ("1\n", "", "main") and work["branch"] == "agents/1"
    assert (ran.status, ran.steps["workspace_merge"]["status"]) == ("completed", "completed")
    assert live.service.show(1)["outputs"]["files"] == ["1\n2\n2\nx", "1\n2\n2\ny"]
    assert git(live, "log", "--format=%s").splitlines() == ["Work of agents/1", "base"]
    assert (live.read("both"), live.lines("end")) == ("x\ny\n", [str(live.folder)])
    assert git(live, "for-each-ref", "--format=%(refname:short)", "refs/heads/") == "main"
    assert (live.folder / "change.log").is_symlink()
