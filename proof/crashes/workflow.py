"""A workflow that climbs every rung, and what of it must be done whatever happens."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from proof.stage import Stage

SECRET = "hush-4711-nobody-may-say-it"
# What becomes an artifact: more than a log keeps.
LARGE = 70_000

# Retries with a script and a delay, a handler, a map with a bad item, a python step, a large output, a secret, a
# breaker that opens, an approval that nobody gives, a child that fails, undoes what it did and is continued in
# another round, a failure edge that leads back.
EVERYTHING = f"""
name: everything
secrets: {{token: {{env: TOKEN}}}}
breakers: {{api: {{failures: 1, reset: 20ms}}}}
steps:
  - step: fetch
    shell: 'sh $ACT fetch; test -e cleared || exit 7; echo fetched'
    retry: {{rules: [{{exit_codes: [7], max_retries: 1, delay: 5ms, recovery_script: 'sh $ACT clear; touch cleared'}}]}}
  - step: build
    needs: [fetch]
    shell: 'sh $ACT build; echo "built with $TOKEN" >&2; exit 2'
    env: {{TOKEN: '${{secrets.token}}'}}
    on_failure: ['sh $ACT clean', 'sh $ACT rebuild; echo built']
  - step: check
    needs: [build]
    map: {{over: '${{[1, 2, 3]}}', as: n, on_item_failure: collect, max_parallel: 2}}
    do:
      - shell: 'sh $ACT check 0.01; test "$MULLIGAN_ITEM" != 1 || exit 5'
      - shell: 'sh $ACT seal; echo sealed ${{n}}'
  - step: gather
    needs: [fetch]
    shell: 'sh $ACT gather; head -c {LARGE} /dev/zero | tr "\\0" x'
  - step: count
    needs: [gather]
    python: |
      import os

      def main(word):
          names = ("RUN_ID", "STEP", "VISIT", "ATTEMPT", "FENCE", "IDEMPOTENCY_KEY")
          run_id, step, *numbers, key = (os.environ["MULLIGAN_" + name] for name in names)
          with open(os.environ["JOURNAL"], "a") as journal:
              for verb in ("start", "end"):
                  print(verb, "count", run_id, step, "-", *numbers, os.getpid(), key, file=journal, flush=True)
          return len(word)
    args: {{word: '${{steps.gather.output}}'}}
  - step: call
    needs: [fetch]
    breaker: api
    shell: 'sh $ACT call; test -e called || {{ touch called; exit 4; }}; echo answered'
    retry: {{max_retries: 2, delay: 1ms}}
  - step: ask
    needs: [fetch]
    approve: {{message: 'may it?', timeout: 30ms}}
    on_failure: 'sh $ACT decide; echo decided'
  - step: ship
    needs: [count]
    workflow: {{file: child.yaml}}
    retry: {{max_retries: 1, delay: 1ms}}
    on_failure: 'sh $ACT reship; echo shipped'
  - step: deploy
    needs: [check, count, call, ask, ship]
    shell: 'sh $ACT deploy; test -e repaired || exit 9; echo deployed'
    next: [{{to: repair, on: failure, then: rerun}}]
  - {{step: repair, shell: 'sh $ACT repair; touch repaired'}}
end: {{shell: 'sh $ACT end'}}
outputs: {{letters: '${{steps.count.output}}', deployed: '${{steps.deploy.output}}'}}
"""
CHILD = """
name: child
steps:
  - {step: pack, shell: 'sh $ACT pack; echo packed'}
  - {step: load, needs: [pack], shell: 'sh $ACT load; echo loaded', undo: {shell: 'sh $ACT unload'}}
  - {step: sail, needs: [load], shell: 'sh $ACT sail; exit 3'}
"""

# What an undisturbed run does: command, item, visit.
DONE_ONCE = Counter(
    {
        ("fetch", "-", 1): 2,
        ("call", "-", 1): 2,
        **{(name, "-", 1): 1 for name in "clear build clean rebuild gather count decide repair deploy end".split()},
        # What the child has packed is kept in its second round; what it has undone is done again.
        **{(name, "-", 1): 1 for name in "pack load sail unload reship".split()},
        **{(name, "-", 2): 1 for name in "load sail unload".split()},
        **{("check", item, 1): 1 for item in "012"},
        **{("seal", item, 1): 1 for item in "02"},
        ("deploy", "-", 2): 1,
    }
)


class Subject(NamedTuple):
    """What runs in the trials: the files of a workflow, the first of which is run, and what it does undisturbed."""

    files: dict[str, str]
    done_once: Counter[tuple[str, str, int]]
    # Of a file with several: which.
    name: str = ""
    # What the run goes on with after it has failed; and how its last command exits.
    correction: str = ""
    code: int = 0
    # The events that it is sent while it waits, one after the other. The sender of the first is the one in trouble.
    events: tuple[str, ...] = ()
    # What its program cancels, which may have begun before.
    may_begin: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        file = next(iter(self.files))
        return f"{file}:{self.name}" if self.name else file


YAML = Subject({"flow.yaml": EVERYTHING, "child.yaml": CHILD}, DONE_ONCE)
# The same with Python functions for steps. Its handler has one command, and its items too.
FLOW = Subject(
    {"flow.py": Path(__file__).with_name("everything_flow.py").read_text("utf-8")},
    Counter({key: times for key, times in DONE_ONCE.items() if key[0] not in ("clean", "seal")}),
)
# Programs. An undo is counted as of the visit of its step.
_PROGRAMS = Path(__file__).with_name("everything_programs.py").read_text("utf-8")
_CORRECTED = _PROGRAMS.replace("sum(found) // (rows - 3)  # MISTAKE", "sum(found)")


def _program(name: str, *done: str, **fields: Any) -> Subject:
    """A program, and what it does: `load1`, or `load1@2` in the second visit of its step."""
    split = (one.partition("@") for one in done)
    counted = Counter((one, "-", int(visit or 1)) for one, _, visit in split)
    return Subject({"programs.py": _PROGRAMS, "corrected.py": _CORRECTED}, counted, name, **fields)


PROGRAMS = {
    one.name: one
    for one in (
        _program("branches", "fetch", "clean0", "clean1", "clean1", "clean2", "load4"),
        _program("race", "east", "load1", "load2", may_begin=frozenset({"west", "north"})),
        _program("waits", "fetch", "load2"),
        _program("sent", "load1", "load2", events=("first", "second")),
        _program("undone", *"load1 load2 load3 reef rock unload1 unload2 unload3".split(), code=1),
        _program(
            "corrected",
            *"fetch load0 load1 load2 unload0 unload1 unload2 load0@2 load1@2 load2@2 load3".split(),
            correction="corrected.py:corrected",
        ),
    )
}
# The same for workers with a label alone: a process that drives it without the label runs nothing of it.
LABEL = "far"
LABELLED = Subject(
    {name: f"{text}defaults: {{resources: {{labels: [{LABEL}]}}}}\n" for name, text in YAML.files.items()}, DONE_ONCE
)


def written(stage: Stage, subject: Subject = YAML) -> str:
    """The name of the workflow's file on the stage, where its child lies beside it."""
    stage.environment["TOKEN"] = SECRET
    for name, text in subject.files.items():
        stage.workflow(text, name)
    return subject.file


def done(stage: Stage) -> Counter[tuple[str, str, int]]:
    """How often each thing was begun."""
    return Counter((line.name, line.item, line.visit) for line in stage.lines() if line.verb == "start")
