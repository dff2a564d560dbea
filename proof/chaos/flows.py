"""The workflows that run under fire: small ones, each with another rung of the ladder.

What a command gives is the number of its lease, and that is also in the journal: so a result can be held against the
work that was done for it.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import msgspec

# So many runs have a label together.
LOT = 20


class Flow(msgspec.Struct, frozen=True):
    """A workflow, how often it is choose_flow, and the codes with which it may fail though nothing was lost."""

    text: str
    weight: int = 1
    may_fail_with: tuple[str, ...] = ()
    # Senders send it events: whether a run that completes has taken each of them, or may have gone on without.
    awaits: Literal["", "all", "some"] = ""


FLOWS = {
    "chain": Flow(
        """
name: chain
inputs: {n: {type: integer, default: 0}}
steps:
  - {step: fetch, shell: '. $ACT'}
  - step: count
    needs: [fetch]
    python: |
      import os
      def main():
          said = "{MULLIGAN_RUN_ID} {MULLIGAN_IDEMPOTENCY_KEY} {MULLIGAN_FENCE}".format(**os.environ)
          with open(os.environ["JOURNAL"], "a") as journal:
              journal.write("start " + said + chr(10))
          with open(os.environ["JOURNAL"], "a") as journal:
              journal.write("end " + said + chr(10))
          return os.environ["MULLIGAN_FENCE"]
  - {step: store, needs: [count], shell: '. $ACT'}
""",
        weight=5,
    ),
    "mend": Flow(
        """
name: mend
inputs: {n: {type: integer}}
steps:
  - step: fetch
    shell: 'test -e "mended-$MULLIGAN_RUN_ID" || exit 7; . $ACT'
    retry:
      rules:
        - {exit_codes: [7], max_retries: 2, delay: 50ms, recovery_script: '. $ACT; touch "mended-$MULLIGAN_RUN_ID"'}
  - {step: store, needs: [fetch], shell: '. $ACT'}
""",
        weight=3,
    ),
    "spread": Flow(
        """
name: spread
inputs: {n: {type: integer}}
steps:
  - step: check
    map: {over: '${[1, 2, 3, 4]}', as: part, max_parallel: 3}
    do:
      - {shell: '. $ACT'}
      - {shell: '. $ACT', on_failure: '. $ACT'}
  - {step: join, needs: [check], shell: '. $ACT'}
""",
        weight=2,
    ),
    "handle": Flow(
        """
name: handle
inputs: {n: {type: integer}}
steps:
  - step: build
    shell: 's=0.05; . $ACT; exit 3'
    on_failure: [{shell: '. $ACT'}, {shell: 's=0.05; . $ACT'}]
  - {step: store, needs: [build], shell: '. $ACT'}
""",
        weight=3,
    ),
    "repair": Flow(
        """
name: repair
inputs: {n: {type: integer}}
steps:
  - step: deploy
    shell: '. $ACT; test -e "repaired-$MULLIGAN_RUN_ID" || exit 9'
    next: [{to: repair, on: failure, then: rerun}]
  - {step: repair, shell: '. $ACT; touch "repaired-$MULLIGAN_RUN_ID"'}
  - {step: announce, needs: [deploy], shell: '. $ACT'}
""",
        weight=3,
    ),
    "undone": Flow(
        """
name: undone
inputs: {n: {type: integer}}
steps:
  - {step: reserve, shell: '. $ACT', undo: {shell: '. $ACT'}}
  - {step: charge, needs: [reserve], shell: '. $ACT', undo: {shell: 's=0.05; . $ACT'}}
  - {step: ship, needs: [charge], shell: '. $ACT; exit 5'}
""",
        weight=2,
        may_fail_with=("EXIT_NONZERO",),
    ),
    "guarded": Flow(
        """
name: guarded
inputs: {n: {type: integer}}
breakers: {shaky: {failures: 3, reset: 1s}}
steps:
  - step: call
    breaker: shaky
    shell: '. $ACT; test $(expr ${inputs.n} % 3) != 0'
    retry: {max_retries: 1, delay: 100ms}
  - {step: store, needs: [call], shell: '. $ACT'}
""",
        weight=2,
        may_fail_with=("EXIT_NONZERO",),
    ),
    "family": Flow(
        """
name: family
inputs: {n: {type: integer}}
steps:
  - {step: before, shell: '. $ACT'}
  - {step: good, needs: [before], workflow: {file: chain.yaml}}
  - {step: bad, needs: [before], workflow: {file: undone.yaml, inputs: {n: 0}}, on_failure: '. $ACT'}
  - {step: after, needs: [good, bad], shell: '. $ACT'}
""",
        weight=2,
    ),
    "timed": Flow(
        """
name: timed
inputs: {n: {type: integer}}
steps:
  - {step: rest, wait: 300ms}
  - step: store
    needs: [rest]
    shell: 'test -e "timed-$MULLIGAN_RUN_ID" || { touch "timed-$MULLIGAN_RUN_ID"; exit 6; }; . $ACT'
    retry: {max_retries: 2, delay: 500ms}
""",
        weight=2,
    ),
    "asked": Flow(
        """
name: asked
inputs: {n: {type: integer}}
steps:
  - {step: gate, approve: {message: 'run ${inputs.n}?'}}
  - {step: store, needs: [gate], shell: '. $ACT'}
""",
        weight=2,
        may_fail_with=("APPROVAL_REFUSED",),
    ),
    "parked": Flow(
        """
name: parked
inputs: {n: {type: integer}}
steps:
  - step: judge
    shell: 'test -e "judged-$MULLIGAN_RUN_ID" || { touch "judged-$MULLIGAN_RUN_ID"; exit 4; }; . $ACT'
    triage: true
""",
        weight=1,
    ),
    "long": Flow(
        """
name: long
inputs: {n: {type: integer}}
steps:
  - step: work
    shell: 's=0.8; . $ACT'
    on_failure: {shell: '. $ACT', strategy: cleanup}
    undo: {shell: '. $ACT'}
  - {step: more, needs: [work], shell: 's=0.4; . $ACT'}
""",
        weight=2,
    ),
    # Longer than a lease: a supervisor that has heard of no heartbeat ends it.
    "slow": Flow(
        """
name: slow
inputs: {n: {type: integer}}
steps:
  - {step: render, shell: 's=2.5; . $ACT'}
  - {step: store, needs: [render], shell: '. $ACT'}
""",
        weight=4,
    ),
}

# Events of one name, from two senders: before anything waits for them, while it does, and too late.
FLOWS |= {
    "ordered": Flow(
        """
name: ordered
inputs: {n: {type: integer}}
steps:
  - {step: first, wait: {event: paid}}
  - {step: store, needs: [first], shell: '. $ACT'}
  - {step: second, needs: [store], wait: {event: paid}}
  - {step: third, needs: [second], wait: {event: paid, schema: {type: object, required: [sender]}}}
  - {step: fourth, needs: [third], wait: {event: paid, timeout: 1d}}
""",
        weight=4,
        awaits="all",
    ),
    "crowd": Flow(
        """
name: crowd
inputs: {n: {type: integer}}
steps:
  - step: wait
    map: {over: '${[1, 2, 3, 4]}', as: part, max_parallel: 3}
    do:
      - {wait: {event: paid}}
      - {shell: '. $ACT'}
""",
        weight=3,
        awaits="all",
    ),
    "hurried": Flow(
        """
name: hurried
inputs: {n: {type: integer}}
steps:
  - {step: first, wait: {event: paid, timeout: 500ms, default: nothing}}
  - {step: store, needs: [first], shell: '. $ACT'}
  - {step: second, needs: [store], wait: {event: paid, timeout: 200ms, default: nothing}}
""",
        weight=2,
        awaits="some",
    ),
}
AWAITING = tuple(name for name, flow in FLOWS.items() if flow.awaits)


def labels_of(n: int) -> dict[str, str]:
    """By which labels senders find run number `n`: alone, or with those that began about when it did."""
    return {"order": str(n), "lot": str(n // LOT)}


def written(folder: Path) -> None:
    """The files, where those that include others find them."""
    for name, flow in FLOWS.items():
        (folder / f"{name}.yaml").write_text(flow.text.lstrip(), encoding="utf-8")


def choose_flow(seed: int, n: int) -> str:
    """Which of them run number `n` is."""
    (name,) = random.Random(f"{seed} {n}").choices(list(FLOWS), [flow.weight for flow in FLOWS.values()])
    return name
