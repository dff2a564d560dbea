"""Proposes memory and timeouts from what attempts used, over many runs.

The values are those of `mulligan usage`. What is added here is when there is enough evidence for them: a limit was
exceeded in several runs, and what was measured shows that more would have helped; or far less was used, every time.
"""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.analysis.statistics import wilson_bounds
from mulligan.analysis.suggest.changes import SetLimit, has_items, steps_by_name
from mulligan.analysis.suggest.evidence import Evidence, UsedOverRuns
from mulligan.analysis.suggest.proposals import RUNS_MIN, Answer, Counted, Nearly, Proposal, Question, Saving
from mulligan.core.model.text.formatting import format_duration, format_size, pluralize
from mulligan.core.model.workflow import Workflow
from mulligan.history.consumption import Advice, Requested, advice, generous_timeout, requested_by

# A limit that is exceeded more rarely is no regularity.
RARE = 0.01
# The largest chance that a run needs more than any of the runs before did, so that it may be given less.
SURPRISE_MAX = 0.2
# An attempt that ran out used at least this share of its limit: otherwise something else ended it.
_RAN_FULL = 0.9


def limit_questions(evidence: Evidence, workflow: Workflow) -> Iterator[Question]:
    """One look per limit of each step that was measured: its memory and its time."""
    by_name = steps_by_name(workflow)
    for name, of_step in evidence.steps.items():
        steps = by_name.get(name, [])
        if steps and of_step.used.runs:
            asked = requested_by(steps)
            look = _Look(evidence.workflow, name, asked, of_step.used, is_own=not has_items(steps[0]))
            if asked.memory is not None:
                yield Question(1, look.memory)
            if asked.timeout is not None:
                yield Question(1, look.timeout)


class _Look:
    def __init__(self, workflow: str, name: str, asked: Requested, over: UsedOverRuns, *, is_own: bool) -> None:
        self._workflow, self._name, self._asked, self._over, self._is_own = workflow, name, asked, over, is_own
        self._advice = {one.what: one for one in advice(asked, over.used)}

    def memory(self, z: float) -> Answer:
        over, used, asked = self._over, self._over.used, self._asked.memory
        found = self._advice.get("memory")
        if found is None or asked is None:
            return []
        if found.why == "ran_out":
            is_real = used.memory >= _RAN_FULL * used.too_little_memory and used.too_little_memory >= asked
            seen = (
                f"'{self._name}' ran out of memory at {format_size(used.too_little_memory)} {_in(over.out_of_memory)}"
            )
            return self._more(found, over.out_of_memory, "out_of_memory", seen, z) if is_real else []
        if found.why == "too_much":
            seen = f"'{self._name}' used at most {format_size(used.memory)} of {format_size(asked)}"
            return self._less(found, seen, z)
        return []

    def timeout(self, z: float) -> Answer:
        over, used, asked = self._over, self._over.used, self._asked.timeout
        if asked is None:
            return []
        found = self._advice.get("timeout")
        if found is not None and found.why == "ran_out":
            is_real = over.near_timeout >= 2 or used.seconds_well > used.too_little_seconds
            seen = f"'{self._name}' did not finish in {format_duration(used.too_little_seconds)} {_in(over.timed_out)}"
            if is_real and used.too_little_seconds >= asked:
                return self._more(found, over.timed_out, "timed_out", seen, z)
        shorter = generous_timeout(used.seconds_well)
        if over.hung and used.seconds_well and shorter * 2 <= asked:
            text = f"successful attempts took at most {format_duration(used.seconds_well)}"
            return self._hung(Advice("timeout", shorter, "too_much", text), asked, z)
        return []

    def _more(self, found: Advice, runs: int, what: str, seen: str, z: float) -> Answer:
        if runs < RUNS_MIN or wilson_bounds(runs, self._over.runs, z)[0] < RARE:
            return [Nearly(self._workflow, self._name, seen, _more_often(z), runs)]
        used = self._over.used
        attempts = used.out_of_memory if what == "out_of_memory" else used.timed_out
        each = used.too_little_seconds if what == "timed_out" else used.wall_seconds / max(1, used.attempts)
        return self._propose(found, seen, runs, what, Saving(seconds=round(attempts * each, 3)), failures=attempts)

    def _less(self, found: Advice, seen: str, z: float) -> Answer:
        runs = self._over.ended_well
        if runs < RUNS_MIN or wilson_bounds(0, runs, z)[1] > SURPRISE_MAX:
            needed = f"the same in {int((1 - SURPRISE_MAX) / SURPRISE_MAX * z * z) + 1} runs"
            return [Nearly(self._workflow, self._name, f"{seen} {_in(runs)}", needed, runs)]
        return self._propose(found, f"{seen} {_in(runs)}", runs, "ended_well", Saving())

    def _hung(self, found: Advice, asked: float, z: float) -> Answer:
        over = self._over
        seen = f"'{self._name}' hung until its timeout of {format_duration(asked)} {_in(over.hung)}; {found.text}"
        is_often = over.hung >= RUNS_MIN and wilson_bounds(over.hung, over.runs, z)[0] >= RARE
        if not is_often or wilson_bounds(0, over.ended_well, z)[1] > SURPRISE_MAX:
            return [Nearly(self._workflow, self._name, seen, _more_often(z), over.hung)]
        saving = Saving(seconds=round(over.used.hung * (asked - found.value), 3))
        return self._propose(found, seen, over.hung, "hung", saving, failures=over.used.hung)

    def _propose(
        self, found: Advice, seen: str, runs: int, what: str, saving: Saving, failures: int | None = None
    ) -> Answer:
        change = SetLimit(self._name, "memory" if found.what == "memory" else "timeout", found.value)
        where = "" if self._is_own else " on the commands of its items"
        proposal = Proposal(
            workflow=self._workflow,
            step=self._name,
            kind=change.what,
            evidence=seen,
            proposal=f"set its {change.what} to {change.written}{where}",
            counted=Counted(runs=runs, run_ids=tuple(self._over.run_ids.get(what, ())), failures=failures),
            saving=saving,
            # Each command of an item has limits of its own, and the figures are those of all of them.
            change=change if self._is_own else None,
        )
        return [proposal]


def _in(runs: int) -> str:
    return f"in {pluralize(runs, 'run')}"


def _more_often(z: float) -> str:
    return f"at least {RUNS_MIN} runs, and more than one in a hundred with certainty (z = {z:.1f})"
