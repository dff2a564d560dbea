"""The small runs of the soak. Each command writes a line to the journal: so a command that ran twice is seen."""

from __future__ import annotations

from proof.soak.verdict import Expected

_NOTE = 'echo "$MULLIGAN_RUN_ID" >> "$JOURNAL"'

FLOWS = {
    "small": f"""
name: small
inputs: {{n: {{type: integer}}}}
steps:
  - {{step: work, shell: '{_NOTE}'}}
""",
    "chain": f"""
name: chain
inputs: {{n: {{type: integer}}}}
steps:
  - step: count
    python: |
      import os
      def main():
          with open(os.environ["JOURNAL"], "a") as journal:
              journal.write(os.environ["MULLIGAN_RUN_ID"] + chr(10))
          return "x" * 2000
  - {{step: store, needs: [count], shell: '{_NOTE}; seq 200'}}
""",
    "fails": f"""
name: fails
inputs: {{n: {{type: integer}}}}
steps:
  - {{step: work, shell: '{_NOTE}; exit 3'}}
""",
    "parked": f"""
name: parked
inputs: {{n: {{type: integer}}}}
steps:
  - step: judge
    shell: '{_NOTE}; test -e "judged-$MULLIGAN_RUN_ID" || {{ touch "judged-$MULLIGAN_RUN_ID"; exit 4; }}'
    triage: true
""",
    "asked": f"""
name: asked
inputs: {{n: {{type: integer}}}}
steps:
  - {{step: gate, approve: {{message: 'run ${{inputs.n}}?'}}}}
  - {{step: work, needs: [gate], shell: '{_NOTE}'}}
""",
}

# Of twenty runs.
_KINDS = ("small",) * 13 + ("chain",) * 3 + ("fails", "parked", "parked", "asked")
# These end without anybody who decides: how long they take is a measure.
UNATTENDED = frozenset({"small", "chain", "fails"})


def flow_of(number: int) -> str:
    """Which of them run `number` is. Seven has no factor in common with twenty: kinds alternate."""
    return _KINDS[number * 7 % len(_KINDS)]


def is_retried(number: int) -> bool:
    """Whether the parked step of run `number` gets another attempt; otherwise it is given up."""
    return number // len(_KINDS) % 2 == 0


def expected_of(number: int) -> Expected:
    """How run `number` must end."""
    match flow_of(number):
        case "chain":
            return Expected("completed", 2)
        case "fails":
            return Expected("failed", 1)
        case "parked":
            return Expected("completed", 2) if is_retried(number) else Expected("failed", 1)
        case _:
            return Expected("completed", 1)
