"""What the steps of a run asked for and used, and what they should ask for."""

from __future__ import annotations

import msgspec

from mulligan.history.consumption import Consumption, Requested, consumption
from mulligan.service.runs.stored.run_reader import RunReader


class UsedResources(msgspec.Struct, frozen=True):
    """What all attempts of a step used together; None where nothing was measured."""

    memory: int | None
    cpus: float | None
    longest_seconds: float | None
    wall_seconds: float
    cpu_seconds: float
    tokens: int | None
    # How many attempts ran out of memory or time, hung until the timeout, or were killed by a signal.
    out_of_memory: int
    timed_out: int
    hung: int
    killed: int


class ResourceProposal(msgspec.Struct, frozen=True):
    """A better value for a resource or the timeout: as a number, as a file writes it, and why."""

    what: str
    value: float
    written: str
    why: str
    text: str


class StepUsage(msgspec.Struct, frozen=True):
    """A step with its items, or all steps of a matrix: what was asked for, used and proposed."""

    run_id: int
    step: str
    # How many steps of the matrix, or items of the map; 1 for any other step.
    parts: int
    attempts: int
    asked: Requested
    used: UsedResources
    proposals: list[ResourceProposal]
    # What to write in the file, by key.
    write: dict[str, str]


def measure_usage(reader: RunReader, run_id: int) -> list[StepUsage]:
    """One entry for each step that was measured, in the order of the file; all steps of a matrix in one."""
    workflow = reader.lazy_state(run_id).workflow
    return [step_usage(run_id, one) for one in consumption(workflow, reader.events(run_id))]


def step_usage(run_id: int, one: Consumption) -> StepUsage:
    """As faces show it."""
    used = one.used
    return StepUsage(
        run_id=run_id,
        step=one.name,
        parts=one.parts,
        attempts=used.attempts,
        asked=one.asked,
        used=UsedResources(
            memory=used.memory or None,
            cpus=used.cpus or None,
            longest_seconds=used.seconds_well or None,
            wall_seconds=used.wall_seconds,
            cpu_seconds=used.cpu_seconds,
            tokens=used.tokens,
            out_of_memory=used.out_of_memory,
            timed_out=used.timed_out,
            hung=used.hung,
            killed=used.killed,
        ),
        proposals=[
            ResourceProposal(what=each.what, value=each.value, written=each.written, why=each.why, text=each.text)
            for each in one.advice
        ],
        write=one.to_write,
    )
