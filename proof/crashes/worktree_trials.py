"""A worker dies while two forks of a run and a retry of it work beside each other in Git worktrees; another goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from mulligan.service.service import Service
from proof.crashes.faults import Fault
from proof.crashes.forked_processes import ForkedProcesses
from proof.crashes.outcome_checks import TrialOutcome, complaints, every_result_was_worked_for
from proof.crashes.served import ServedStage, expire_the_dead, has_ended
from proof.crashes.server_trials import LAWS as SERVER_LAWS
from proof.stage import Stage

FLOW = """
name: edit
inputs: {word: {type: string, default: ""}}
workspace: {git: worktree, merge: merge}
steps:
  - {step: edit, shell: 'sh $ACT edit; echo edited > edited.txt; mkdir -p built; echo built > built/out'}
  - step: finish
    needs: [edit]
    shell: 'sh $ACT finish; cat built/out > "by-${inputs.word}.txt"; test -n "${inputs.word}"'
"""
# What opens and merges a worktree writes no journal.
LAWS = tuple(law for law in SERVER_LAWS if law is not every_result_was_worked_for)
ORIGIN, FORKS = 1, {2: "left", 3: "right"}
MERGED = ["base.txt", "by-.txt", "by-left.txt", "by-right.txt", "edited.txt"]


class WorktreeTrial:
    """A failed run, two forks of it that are merged, and a retry of it that fails again and is not."""

    def __init__(self, stage: Stage, processes: ForkedProcesses) -> None:
        self._served = ServedStage(stage, processes)
        self._stage = stage

    def held(self, fault: Fault | None) -> tuple[bool, list[str]]:
        served = self._served
        self._make_repository()
        self._stage.start("run", self._stage.workflow(FLOW)).communicate()
        try:
            with self._stage.service() as service:
                for word in FORKS.values():
                    service.changes.fork(ORIGIN, "finish", {"word": word})
                service.changes.retry(ORIGIN)
                served.start("worker", "worker", "--parallel", "3", fault=fault)
                served.wait_until(
                    lambda: all(has_ended(service, run_id) for run_id in (ORIGIN, *FORKS)),
                    lambda: f"not all has ended: {service.reader.runs(limit=9)}",
                )
                wrong = served.end()
                expire_the_dead(service)
                wrong += complaints(TrialOutcome(self._stage, service, {}, {}), LAWS)
                wrong += self._wrong_worktrees(service)
        finally:
            served.kill()
        return served.has_happened, wrong

    def _make_repository(self) -> None:
        self._git("init", "-q", "-b", "main")
        self._git("config", "user.name", "Trial")
        self._git("config", "user.email", "trial@example.org")
        (self._stage.folder / ".git/info/exclude").write_text("*\n!*.txt\n")
        (self._stage.folder / "base.txt").write_text("base\n")
        self._git("add", "base.txt")
        self._git("commit", "-q", "-m", "base")

    def _wrong_worktrees(self, service: Service) -> Iterator[str]:
        for run_id in (ORIGIN, *FORKS):
            status = service.reader.record(run_id).status
            if status != ("failed" if run_id == ORIGIN else "completed"):
                yield f"every_fork_is_merged: run {run_id} is {status}"
        merged = self._git("ls-tree", "--name-only", "-r", "main").split()
        if merged != MERGED:
            yield f"what_each_run_did_is_merged_by_it: {merged} are in 'main', and not {MERGED}"
        refs = self._git("for-each-ref", "--format=%(refname)").split()
        worktrees = sorted(path.name for path in (self._stage.home.folder / "worktrees").glob("run-*"))
        if (refs, worktrees) != (["refs/heads/main", "refs/heads/mulligan/1"], ["run-1"]):
            yield f"only_what_was_not_merged_is_kept: {worktrees} and {refs} are there"

    def _git(self, *words: str) -> str:
        command = ["git", *words]
        return subprocess.run(command, cwd=self._stage.folder, check=True, capture_output=True, text=True).stdout
