"""What the steps of a run asked for and used, and what they should ask for, as plain data for every face."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.history.consumption import Consumption, consumption
from mulligan.service.verbs import Service


def usage(service: Service, run_id: int) -> list[dict[str, Any]]:
    """A line for each step that was measured, in the order of the file; all steps of a matrix in one."""
    workflow = service.state(run_id).workflow
    return [_line(run_id, one) for one in consumption(workflow, service.events(run_id))]


def _line(run_id: int, one: Consumption) -> dict[str, Any]:
    used = one.used
    return {
        "run_id": run_id,
        "step": one.name,
        "parts": one.parts,
        "attempts": used.attempts,
        "asked": {**msgspec.to_builtins(one.asked), "labels": list(one.asked.labels)},
        "used": {
            "memory": used.memory or None,
            "cpus": used.cpus or None,
            "longest_seconds": used.seconds_well or None,
            "wall_seconds": used.wall_seconds,
            "cpu_seconds": used.cpu_seconds,
            "tokens": used.tokens,
            "out_of_memory": used.out_of_memory,
            "timed_out": used.timed_out,
            "hung": used.hung,
            "killed": used.killed,
        },
        "proposals": [
            {"what": each.what, "value": each.value, "written": each.written, "why": each.why, "text": each.text}
            for each in one.advice
        ],
        "write": one.to_write,
    }
