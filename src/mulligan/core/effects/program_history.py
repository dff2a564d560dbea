"""What the process of a program needs to know of its calls: what has ended since its last turn, or all of them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.program_calls import Delivery, ProgramTurn, TurnEnd
from mulligan.core.state.program_progress import NO_PROGRESS, DroppedCall, RecordedCall
from mulligan.core.state.state import Place, State


class ProgramHistory(msgspec.Struct, frozen=True):
    """The calls of a program by label, in the order in which they were made; and their ends, in the order of these."""

    calls: dict[str, RecordedCall]
    deliveries: list[Delivery]
    # The program was edited since the run began.
    is_edited: bool = False
    # The calls that earlier rounds have dropped, by label: if they are made again, they get their labels.
    dropped: dict[str, DroppedCall] = {}


def program_turn(state: State, place: Place) -> ProgramTurn:
    """What a worker needs for the next turn of a program."""
    progress = place.program or NO_PROGRESS
    numbers = range(progress.delivered + 1, progress.delivered + progress.announced + 1)
    announced = tuple([_delivery(state, state.deliveries[number]) for number in numbers])
    return ProgramTurn(progress.turn, clock_begin(place), progress.delivered, announced, progress.unseen)


def clock_begin(place: Place) -> float:
    """When the clock of a program began, in seconds since 1970: in each replay at the same time."""
    begun = (place.program or NO_PROGRESS).begun
    return (begun or place.entered_at).timestamp()


def ends_of(state: State, turn: TurnEnd) -> tuple[Delivery, ...]:
    """What a program gets that goes on in its turn: the end of the inline step that it has run."""
    return tuple(
        [_delivery(state, state.labels[call.branch, call.ordinal]) for call in turn.calls if call.kind == "inline"]
    )


def program_history(state: State, delivered: int) -> ProgramHistory:
    """The history of a program up to the n-th end of a call."""
    numbers = range(1, min(delivered, len(state.deliveries)) + 1)
    announced = [_delivery(state, state.deliveries[number]) for number in numbers]
    return ProgramHistory(state.calls, announced, is_edited=state.run.revision is not None, dropped=state.dropped)


def history_without(state: State, labels: Collection[str]) -> ProgramHistory:
    """The whole history of a program but for these calls."""
    whole = program_history(state, len(state.calls))
    calls = {label: call for label, call in whole.calls.items() if label not in labels}
    ends = [one for one in whole.deliveries if one.label not in labels]
    return ProgramHistory(calls, ends, is_edited=whole.is_edited)


def _delivery(state: State, label: str) -> Delivery:
    call, place = state.calls[label], state.places[label]
    at = 0.0 if place.delivery is None else place.delivery[1].timestamp()
    if place.status == "completed":
        return Delivery(call.branch, call.ordinal, label, place.output, None, at)
    return Delivery(call.branch, call.ordinal, label, None, _failure(place), at)


def _failure(place: Place) -> Failure:
    if place.status == "failed" and place.failure is not None:
        return place.failure
    return failure("CANCELLED", f"the step was {place.status}")
