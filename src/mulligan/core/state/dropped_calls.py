"""The calls of a program that earlier rounds have dropped: their labels and their results go to those made again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mulligan.core.state.program_progress import DroppedCall, ResultKey
from mulligan.core.state.state import State


def note_dropped(state: State, label: str, call: DroppedCall) -> None:
    """Remember what a call was that is dropped: if it is made again, it gets its label."""
    if (before := state.dropped.get(label)) is not None:
        identity = before.identity(label)
        state.put(state.dropped_labels, identity, state.dropped_labels[identity] - {label})
    state.put(state.dropped, label, call)
    identity = call.identity(label)
    state.put(state.dropped_labels, identity, state.dropped_labels.get(identity, frozenset()) | {label})


def restore_dropped(state: State) -> None:
    """Index the dropped calls that were read from rows."""
    for label, call in state.dropped.items():
        identity = call.identity(label)
        state.dropped_labels[identity] = state.dropped_labels.get(identity, frozenset()) | {label}
    for key, labels in _results(state, (label for label, call in state.dropped.items() if call.has_result)).items():
        state.kept_results[key] = _in_order(state, labels)


def offer_results(state: State, labels: Iterable[str]) -> None:
    """Offer the results of these dropped calls to calls that are made in the same way."""
    for key, offered in _results(state, labels).items():
        left = state.kept_results.get(key, ())[state.results_taken.get(key, 0) :]
        state.put(state.kept_results, key, _in_order(state, (*offered, *left)))
        state.put(state.results_taken, key, 0)


def _results(state: State, labels: Iterable[str]) -> dict[ResultKey, list[str]]:
    found: dict[ResultKey, list[str]] = {}
    for label in labels:
        found.setdefault(state.dropped[label].result_key(label), []).append(label)
    return found


def _in_order(state: State, labels: Iterable[str]) -> tuple[str, ...]:
    # The process of the program has the same order, see `mulligan.programs.call_labels`.
    return tuple(sorted(labels, key=lambda label: (state.dropped[label].ordinal, label)))


def label_of_result(state: State, key: ResultKey) -> str:
    """The dropped call whose result is the next one for calls like this; "" if there is none."""
    labels, taken = state.kept_results.get(key, ()), state.results_taken.get(key, 0)
    return labels[taken] if taken < len(labels) else ""


def take_result(state: State, label: str) -> DroppedCall | None:
    """What is known of a dropped call. If it has a result, which is the next one of its kind, that is taken."""
    call = state.dropped.get(label)
    if call is not None and call.has_result:
        key = call.result_key(label)
        state.put(state.results_taken, key, state.results_taken.get(key, 0) + 1)
        state.put(state.dropped, label, msgspec.structs.replace(call, output=None, files=(), has_result=False))
    return call


def forget_results(state: State) -> None:
    """Offer no result of a dropped call any more."""
    for key, labels in list(state.kept_results.items()):
        for label in labels[state.results_taken.get(key, 0) :]:
            take_result(state, label)
