"""Random programs: what they do is drawn from a seed, and edited by a list of other seeds, which its definition has."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from mulligan.core.model.actions import PROGRAM as PROGRAM_KIND
from mulligan.core.model.actions import PYTHON, traits_of
from mulligan.core.model.workflow import Action, Step, Workflow, expressions_in

PROGRAM = "p"
# The names of the events that steps and programs wait for.
EVENTS = ("paid", "shipped")
# The steps that a program calls: some run in a worker, the last ones in the process of the program.
STEPS_COUNT, INLINE_COUNT = 5, 2
# How deep blocks nest, and how many things a block does, the outermost and others.
DEPTH_MAX, LENGTHS, LENGTH_MAX = 3, (2, 4, 6, 8), 3
# The share of programs that have an event loop; of calls whose failure is caught at once; of runs with a time limit.
ASYNC_SHARE, CAUGHT_SHARE, LATE_SHARE = 0.45, 0.6, 0.2

Statement = tuple[Any, ...]
Block = list[Statement]

_SIMPLE = (
    *("call",) * 7,
    *("gather",) * 2,
    *("sleep", "now", "random", "uuid", "approve", "event", "key", "return", "raise"),
)
_NESTED = (*("try",) * 3, "if", "loop", "while", "again")
_ASYNC = ("race", "timeout", "tasks", "group", "shared", "drop") * 2
# Those of which the first thing is another block, or the first two.
BLOCKS = {"try": (1,), "loop": (1,), "while": (1,), "again": (1,), "if": (1, 2)}


class RandomProgram(msgspec.Struct, frozen=True):
    """Whether it is asynchronous, and what it does."""

    is_async: bool
    block: Block


def program_of(params: dict[str, Any]) -> RandomProgram:
    """The program of an action."""
    return random_program(params["seed"], params.get("edits", ()))


def random_program(seed: int, edits: Sequence[int] = ()) -> RandomProgram:
    """The program of this seed, after these edits."""
    rng = Random(seed)
    is_async = rng.random() < ASYNC_SHARE
    block = _block(rng, DEPTH_MAX, is_async=is_async, length=rng.choice(LENGTHS))
    for edit in edits:
        block = _edited(Random(edit), block, is_async=is_async)
    return RandomProgram(is_async, block)


def _block(rng: Random, depth: int, *, is_async: bool, length: int = 0) -> Block:
    return [_statement(rng, depth, is_async=is_async) for _ in range(length or rng.randint(1, LENGTH_MAX))]


def _statement(rng: Random, depth: int, *, is_async: bool) -> Statement:
    kind = rng.choice([*_SIMPLE, *(_NESTED if depth else ()), *(_ASYNC if is_async else ())])
    if kind in BLOCKS:
        blocks = [_block(rng, depth - 1, is_async=is_async) for _ in BLOCKS[kind]]
        return kind, *blocks, rng.randint(1, 3)
    many = [rng.randrange(STEPS_COUNT) for _ in range(rng.randint(1, 4))]
    return kind, many, rng.randint(2, 9), rng.random() < CAUGHT_SHARE


def _edited(rng: Random, block: Block, *, is_async: bool) -> Block:
    """The block with one statement more, less or other, in it or in a block of it."""
    if not block:
        return [_statement(rng, 1, is_async=is_async)]
    at = rng.randrange(len(block))
    kind, *rest = block[at]
    if kind in BLOCKS and rng.random() < 0.6:
        inner = rng.randrange(len(BLOCKS[kind]))
        rest[inner] = _edited(rng, rest[inner], is_async=is_async)
        return [*block[:at], (kind, *rest), *block[at + 1 :]]
    new = [_statement(rng, 1, is_async=is_async)]
    return rng.choice(
        ([*block[:at], *block[at + 1 :]], [*block[:at], *new, *block[at:]], [*block[:at], *new, *block[at + 1 :]])
    )


# -- a workflow of it ----------------------------------------------------------------------------------------------


def with_program(rng: Random, workflow: Workflow, steps: tuple[Step, ...]) -> Workflow:
    """The workflow with a program as its only step, which calls steps with the definitions of these."""
    seed = rng.randrange(2**32)
    data = [msgspec.json.encode(_alone(one, index), order="sorted").decode() for index, one in enumerate(steps)]
    action = Action(PROGRAM_KIND, {"call": "simulated:p", "seed": seed, "steps": data})
    program = Step(name=PROGRAM, action=action, deadline=rng.choice((None, None, None, 200.0)))
    slots = rng.choice((None, None, 1, 2))
    timeout = workflow.timeout if rng.random() < LATE_SHARE else None
    return msgspec.structs.replace(
        workflow, steps=(program,), groups={}, outputs={}, max_parallel=slots, timeout=timeout
    )


def edited(workflow: Workflow, edit: int) -> Workflow:
    """The workflow, its program edited once more."""
    (step,) = workflow.steps
    assert step.action is not None
    params = {**step.action.params, "edits": [*step.action.params.get("edits", ()), edit]}
    action = msgspec.structs.replace(step.action, params=params)
    return msgspec.structs.replace(workflow, steps=(msgspec.structs.replace(step, action=action),))


def _alone(drawn: Step, index: int) -> Step:
    """The step without what connects it to others, or reads them."""
    action = drawn.action
    found = traits_of(action)
    if action is None or found.calls_run or found.is_agent or index >= STEPS_COUNT - INLINE_COUNT:
        action = Action(PYTHON, {"call": "simulated:s", "args": {"${}": "args"}})
    kept = {name: getattr(drawn, name) for name in _KEPT if not _reads_steps(getattr(drawn, name))}
    bindings = {} if _reads_steps(action) else action.bindings
    action = msgspec.structs.replace(action, bindings=bindings) if bindings is not action.bindings else action
    if not bindings:
        action = Action(PYTHON, {"call": "simulated:s"}) if "${}" in str(action.params) else action
    return msgspec.structs.replace(Step(), name=f"s{index}", action=action, **kept)


_KEPT = (
    *("rules", "max_attempts", "timeout", "deadline", "on_failure", "handler_failure_fatal", "on_success", "validate"),
    *("validator", "continue_on_error", "resources", "on_lost", "affinity", "breaker", "triage", "undo", "when"),
)


def _reads_steps(part: Any) -> bool:
    return any(read.startswith("steps") for one in expressions_in(part) for read in one.reads)
