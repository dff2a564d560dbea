"""A matrix as one group: its steps, their values, and how many are in which status.

To the engine, each combination is a step like any other. Groups exist only for display: a sweep of 300 steps is one
line, with the combinations that need attention below it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mulligan.core.model.failure import Failure
from mulligan.core.model.text.formatting import NAMES_MAX, quote_names
from mulligan.core.state.state import State
from mulligan.core.state.transitions import ACTIVE, STATUSES
from mulligan.history.phrases import failure_label

# The statuses of a group that are listed first: failed, waiting for a person, running.
ATTENTION = ("failed", "pending_failed", "running", "handling", "backing_off")


class MatrixGroup(msgspec.Struct, frozen=True):
    """All steps of a matrix together."""

    name: str
    status: str
    # How many are in each status that occurs, in the order of `STATUSES`.
    statuses: dict[str, int]
    # How many failed with each code ("EXIT_NONZERO 3", "TIMEOUT after 5s"), the most frequent first.
    failures: dict[str, int]
    # The values of each step, in the order of the combinations.
    combinations: dict[str, dict[str, Any]]

    @property
    def count(self) -> int:
        return len(self.combinations)

    @property
    def title(self) -> str:
        return group_title(self.name, self.count)


def matrix_groups(state: State) -> dict[str, MatrixGroup]:
    """The matrices of a run by name, in the order of the file."""
    return {name: _group(state, name, members) for name, members in state.graph.matrices.items()}


def _group(state: State, name: str, members: Sequence[str]) -> MatrixGroup:
    nodes = state.graph.nodes
    found = [state.status_of(member) for member in members] if state.places else ["waiting"] * len(members)
    statuses = count_statuses(found)
    failed = [state.places[member].failure for member, status in zip(members, found, strict=True) if status == "failed"]
    return MatrixGroup(
        name=name,
        status=group_status(statuses),
        statuses=statuses,
        failures=count_failures([failure for failure in failed if failure is not None]),
        combinations={member: nodes[member].step.matrix for member in members},
    )


def count_statuses(statuses: Iterable[str]) -> dict[str, int]:
    """How many there are in each status that occurs."""
    counts = Counter(statuses)
    return {status: counts[status] for status in STATUSES if counts[status]}


def count_failures(failures: Iterable[Failure]) -> dict[str, int]:
    """How many failed in the same way, the most frequent first."""
    counts = Counter(map(failure_label, failures))
    # Among equals not by which failed first: that is chance.
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def group_status(statuses: Mapping[str, int]) -> str:
    """One status for many steps: active if any is, otherwise waiting if any is, otherwise the worst end."""
    active = [status for status in STATUSES if status in ACTIVE and statuses.get(status)]
    if active:
        return "running" if "running" in active or len(active) > 1 else active[0]
    return next((status for status in _ENDS if statuses.get(status)), "waiting")


_ENDS = ("waiting", "failed", "cancelled", "completed", "skipped")


def group_title(name: str, count: int) -> str:
    """`sim × 300`."""
    return f"{name} × {count:,}"


def group_counts(statuses: Mapping[str, int], word: str = "") -> str:
    """The counts of a group by status, those that need attention first: `8 failed, 292 completed`."""
    order = (*ATTENTION, *(status for status in STATUSES if status not in ATTENTION))
    return ", ".join(f"{statuses[status]:,} {word}{_status_label(status)}" for status in order if statuses.get(status))


def _status_label(status: str) -> str:
    return "parked" if status == "pending_failed" else status.replace("_", " ")


def values_text(values: Mapping[str, Any]) -> str:
    """The values of a combination in one line: `alpha=0.5, seed=3`."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in values.items())


def value_text(value: Any) -> str:
    """Text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def quote_steps(state: State, names: Sequence[str], names_max: int = NAMES_MAX) -> str:
    """The names of steps, with those of one matrix as one: `'sim' (12 of its 300 steps), 'load' and 2 more`."""
    if not state.graph.matrices:
        return quote_names(names, names_max)
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[state.step(name).matrix_name].append(name)
    wholes = {sweep: found for sweep, found in groups.items() if sweep and len(found) > 1}
    if not wholes:
        return quote_names(names, names_max)
    shown = [_quoted_group(state, sweep, len(found)) for sweep, found in wholes.items()]
    has_others = len(wholes) < len(groups)
    rest = [name for name in names if state.step(name).matrix_name not in wholes] if has_others else []
    return ", ".join([*shown, quote_names(rest, names_max)] if rest else shown)


def _quoted_group(state: State, sweep: str, count: int) -> str:
    total = len(state.graph.matrices[sweep])
    return f"'{sweep}' ({f'{count:,} of its ' if count < total else 'all '}{total:,} steps)"


# -- differences -----------------------------------------------------------------------------------------------------


class Differences(msgspec.Struct, frozen=True):
    """The values of many items or combinations, split into shared and differing ones."""

    shared: dict[str, Any]
    # The names of the values that differ, in their order.
    names: tuple[str, ...]


def find_differences(values: Sequence[Mapping[str, Any]]) -> Differences:
    """Which keys all mappings share with equal values, and which differ. A single mapping shares nothing."""
    names = list(dict.fromkeys(name for one in values for name in one))
    if len(values) < 2:
        return Differences({}, tuple(names))
    first = values[0]
    shared = {name: first[name] for name in names if name in first and all(_has(one, name, first) for one in values)}
    return Differences(shared, tuple(name for name in names if name not in shared))


def shared_beginning(texts: Sequence[str]) -> str:
    """The common beginning of texts, up to the last separator: `/data/runs/`; "" if it is short."""
    if len(texts) < 2:
        return ""
    first, last = min(texts), max(texts)
    pairs = zip(first, last, strict=False)
    shared = first[: next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))]
    end = max(shared.rfind(sign) for sign in _SEPARATORS) + 1
    return shared[:end] if end >= BEGINNING_CHARS_MIN else ""


_SEPARATORS = "/\\ :,;=?&"
# A shorter beginning is not worth its own line.
BEGINNING_CHARS_MIN = 8


def _has(one: Mapping[str, Any], name: str, first: Mapping[str, Any]) -> bool:
    # In Python True == 1, but they are two different values here.
    return name in one and type(one[name]) is type(first[name]) and one[name] == first[name]
