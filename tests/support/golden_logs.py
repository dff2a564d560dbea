"""Writes the golden logs of a release: run it once per version of the codec, commit what it writes, never rewrite it.

    python -m tests.support.golden_logs tests/golden/v1

For each history three files: the workflow, the log, and what the log must still fold to in every later release.
Few histories, chosen so that together they hold every kind of fact.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.model.codec import encode_log
from mulligan.core.model.events import FACTS
from mulligan.core.model.workflow import encode
from mulligan.core.state.state import State
from proof.simulator.simulation import Simulation

SEEDS_TRIED = 400


def noted(state: State) -> dict[str, Any]:
    """What is noted beside a log: how the run and each of its lasting places ended."""
    return {
        "run": {name: getattr(state.run, name) for name in ("status", "round", "seq", "degraded", "outputs", "reason")},
        "places": {
            key: {name: getattr(place, name) for name in ("status", "visit", "attempt", "output", "recovered_by")}
            for key, place in sorted(state.places.items())
        },
        **({"data": {key: [one.version, one.value] for key, one in state.run.data.items()}} if state.run.data else {}),
        "failures": [[r.step, r.visit, r.failure.code, r.target, r.is_closed] for r in state.failures],
    }


def chosen() -> list[Simulation]:
    """Greedily: each history that brings at least one kind of fact that the ones before did not have."""
    missing = set(FACTS)
    found = []
    for seed in range(SEEDS_TRIED):
        history = Simulation(f"golden {seed}", forks=False).run()
        kinds = {type(entry.fact) for entry in history.log}
        if kinds & missing:
            missing -= kinds
            found.append(history)
    if missing:
        raise SystemExit(f"no history with {sorted(kind.__name__ for kind in missing)}")
    return found


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, history in enumerate(chosen(), start=1):
        name = f"{number:02}"
        state = history.state
        (folder / f"{name}.workflow.json").write_bytes(encode(history.workflow) + b"\n")
        (folder / f"{name}.log.jsonl").write_bytes(encode_log(history.log))
        (folder / f"{name}.state.json").write_bytes(msgspec.json.format(msgspec.json.encode(noted(state))) + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
