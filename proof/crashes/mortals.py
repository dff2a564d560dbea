"""A workflow that climbs every rung, and processes in which it can be run and may be told where to meet their fate."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from proof.stage import PIPE, Stage, outcome

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


class Ended(NamedTuple):
    """How a process ended: -9 is kill -9."""

    code: int
    shown: dict[str, Any]
    said: str


class Mortals:
    """Runs command lines in processes that may be told where to meet their fate."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        self._process = process
        self._out, self._err = scratch / "out", scratch / "err"

    def run(self, stage: Stage, *words: str, point: str = "", nth: int = 0, fate: str = "die") -> Ended:
        order = {
            "words": words,
            "folder": str(stage.folder),
            "environment": stage.environment,
            "out": str(self._out),
            "err": str(self._err),
            "point": point,
            "nth": nth,
            "fate": fate,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        out = self._out.read_text()
        return Ended(code, json.loads(out) if out else {}, self._err.read_text())


@contextmanager
def mortals(stage: Stage, scratch: Path) -> Iterator[Mortals]:
    with stage.start_program("-m", "proof.crashes.dying", stdin=PIPE, stderr=None) as process:
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
