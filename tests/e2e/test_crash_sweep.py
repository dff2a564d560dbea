"""kill -9 at the first, the second, … pass of a fault point, then `resume`: the same outcome as undisturbed.

Each trial is two or more real processes: one that dies, and those that go on where it stopped.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mulligan.core import events as e

from .stage import HERE, PIPE, Stage, outcome

# Retries with a script and a delay, a handler, a map with a bad item, a python step, a failure edge that leads back.
EVERYTHING = """
name: everything
steps:
  - step: fetch
    shell: 'sh $ACT fetch; test -e cleared || exit 7; echo fetched'
    retry: {rules: [{exit_codes: [7], max_retries: 1, delay: 5ms, recovery_script: 'sh $ACT clear; touch cleared'}]}
  - step: build
    needs: [fetch]
    shell: 'sh $ACT build; exit 2'
    on_failure: ['sh $ACT clean', 'sh $ACT rebuild; echo built']
  - step: check
    needs: [build]
    map: {over: '${[1, 2, 3]}', as: n, on_item_failure: collect, max_parallel: 2}
    do:
      - shell: 'sh $ACT check 0.01; test "$MULLIGAN_ITEM" != 1 || exit 5'
      - shell: 'sh $ACT seal; echo sealed ${n}'
  - step: count
    needs: [fetch]
    python: |
      import os

      def main(word):
          with open(os.environ["JOURNAL"], "a") as journal:
              for verb in ("start", "end"):
                  names = ("RUN_ID", "STEP", "VISIT", "ATTEMPT", "FENCE")
                  run_id, step, *numbers = (os.environ["MULLIGAN_" + name] for name in names)
                  print(verb, "count", run_id, step, "-", *numbers, os.getpid(), file=journal, flush=True)
          return len(word)
    args: {word: '${steps.fetch.output}'}
  - step: deploy
    needs: [check, count]
    shell: 'sh $ACT deploy; test -e repaired || exit 9; echo deployed'
    next: [{to: repair, on: failure, then: rerun}]
  - {step: repair, shell: 'sh $ACT repair; touch repaired'}
end: {shell: 'sh $ACT end'}
outputs: {letters: '${steps.count.output}', deployed: '${steps.deploy.output}'}
"""

# What an undisturbed run does: command, item, visit.
DONE_ONCE = Counter(
    {
        ("fetch", "-", 1): 2,
        **dict.fromkeys([("clear", "-", 1), ("build", "-", 1), ("clean", "-", 1), ("rebuild", "-", 1)], 1),
        **dict.fromkeys([("check", "0", 1), ("check", "1", 1), ("check", "2", 1), ("seal", "0", 1)], 1),
        **dict.fromkeys([("seal", "2", 1), ("count", "-", 1), ("deploy", "-", 1), ("repair", "-", 1)], 1),
        **dict.fromkeys([("deploy", "-", 2), ("end", "-", 1)], 1),
    }
)
POINTS = ("before_commit", "after_commit", "after_lease", "before_report")
DEATHS_MAX = 100


class Ended(NamedTuple):
    """How a process ended: -9 is kill -9."""

    code: int
    shown: dict[str, Any]
    said: str


class Mortals:
    """Runs command lines in processes that may be told where to die."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        self._process = process
        self._out, self._err = scratch / "out", scratch / "err"

    def run(self, stage: Stage, *words: str, point: str = "", nth: int = 0) -> Ended:
        order = {
            "words": words,
            "folder": str(stage.folder),
            "environment": stage.environment,
            "out": str(self._out),
            "err": str(self._err),
            "point": point,
            "nth": nth,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        out = self._out.read_text()
        return Ended(code, json.loads(out) if out else {}, self._err.read_text())


@contextmanager
def mortals(stage: Stage, scratch: Path) -> Iterator[Mortals]:
    with stage.start_program(HERE / "dying.py", stdin=PIPE, stderr=None) as process:
        yield Mortals(process, scratch)


def undisturbed(mortals: Mortals, folder: Path, store_url: str) -> dict[str, Any]:
    folder.mkdir()
    stage = Stage(folder, store_url)
    ended = mortals.run(stage, "run", stage.workflow(EVERYTHING), "--json")
    assert (ended.code, done(stage)) == (0, DONE_ONCE), ended.said
    return outcome(ended.shown)


def done(stage: Stage) -> Counter[tuple[str, str, int]]:
    """How often each thing was begun."""
    return Counter((line.name, line.item, line.visit) for line in stage.lines() if line.verb == "start")


def expect_at_most_what_was_in_flight(stage: Stage, log: list[e.Entry]) -> None:
    """Only what was lost with the process was done again, and that once."""
    lost = [entry.fact for entry in log if isinstance(entry.fact, e.AttemptLost)]
    again = done(stage) - DONE_ONCE

    assert not DONE_ONCE - done(stage), "something was never done"
    assert again.total() <= len(lost), f"done again: {again}, lost: {lost}"
    assert len({line.fence for line in stage.lines() if line.verb == "start"}) == done(stage).total()


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_is_killed_anywhere_and_resumed_comes_to_the_same_end(
    tmp_path: Path, store_url: str, point: str
) -> None:
    with mortals(Stage(tmp_path), tmp_path) as processes:
        expected = undisturbed(processes, tmp_path / "undisturbed", store_url)

        for nth in range(1, DEATHS_MAX):
            folder = tmp_path / str(nth)
            folder.mkdir()
            stage = Stage(folder, store_url)
            dead = processes.run(stage, "run", stage.workflow(EVERYTHING), "--json", point=point, nth=nth)
            if dead.code == 0:
                break
            assert dead.code == -9, dead.said

            with stage.service() as service:
                (run,) = service.runs(limit=1)
                resumed = processes.run(
                    stage, "show" if run.status == "completed" else "resume", str(run.run_id), "--json"
                )

                assert resumed.code == 0, f"killed at pass {nth}: {resumed.said}"
                assert outcome(resumed.shown) == expected, f"killed at pass {nth}"
                stage.expect_promises(service, run.run_id)
                expect_at_most_what_was_in_flight(stage, list(service.events(run.run_id)))
            stage.expect_no_overlap()
            stage.expect_nothing_left()

    assert 5 < nth < DEATHS_MAX - 1, f"the run was killed {nth - 1} times"
