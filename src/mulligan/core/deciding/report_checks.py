"""Whether a report makes sense in itself, wherever it comes from.

One set of checks: a server makes them at its door, and an engine when a run takes the report up, which may have been
put into the inbox by another version. Whether it makes sense for the run as it is now is decided by `admit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from mulligan.core.model import reports as r
from mulligan.core.model.artifacts import holds_reference, parse_reference, references
from mulligan.core.model.clusters.scheduler_job import WorkerJob
from mulligan.core.model.event_types import ChildRound
from mulligan.core.model.graph import Graph, link_problem
from mulligan.core.model.run_data import name_problem, value_problem
from mulligan.core.model.text.durations import DURATION_SECONDS_MAX
from mulligan.core.model.text.sizes import SIZE_BYTES_MAX
from mulligan.core.model.workflow import Budget, decode, encode, version
from mulligan.errors import ArtifactDamaged, CodecError, InputInvalid

# What a database can count.
NUMBER_MAX = 2**63 - 1
# How deep values may be nested; how many child runs may call each other; how many steps a run is resumed for.
DEPTH_MAX, CHILDREN_MAX, STEPS_MAX = 200, 50, 1_000_000
# How much one text of a person may say, and a worker about its machine: the core cuts what steps say.
TEXT_CHARS_MAX, MACHINE_CHARS_MAX = 100_000, 10_000
# Of how many parts a fingerprint is recorded, and how long their descriptions may be.
PARTS_MAX, PART_CHARS_MAX = 200, 300
# The key of a sender.
KEY_CHARS_MAX = 200

# What people and programs ask of a run, and what runs ask of those that they called.
REQUESTS = (
    r.CancelRequested
    | r.PauseRequested
    | r.ResumeRequested
    | r.RetryRequested
    | r.RoundRequested
    | r.Classified
    | r.ApprovalGiven
    | r.EventSent
)
RESULTS = r.TaskEnded | r.TaskInterrupted | r.LeaseExpired | r.ChildEnded


def check_report(report: r.Report) -> None:
    """Raise `InputInvalid` if no run could ever make sense of a request or a result."""
    check_values(report, is_text=isinstance(report, REQUESTS))
    check = _CHECKS.get(type(report))
    if check is not None:
        check(report)


def check_definition(plain: Mapping[str, Any]) -> Graph:
    """The graph of a definition in plain data. `InputInvalid` if it is not one that a file could be read as."""
    try:
        workflow = decode(msgspec.json.encode(plain))
    except CodecError as error:
        raise InputInvalid(f"the corrected definition cannot be read: {error.message}", hint=_SAME_VERSION) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputInvalid(f"the corrected definition cannot be read: {error}", hint=_SAME_VERSION) from None
    check_values(workflow)
    problem = link_problem(workflow)
    if problem:
        raise InputInvalid(f"the corrected definition is not valid: {problem}", hint=_SAME_VERSION)
    return Graph(workflow)


_SAME_VERSION = "use the same version of Mulligan as the server"


# -- values ----------------------------------------------------------------------------------------------------------


def check_values(report: Any, *, is_text: bool = False) -> None:
    """Refuse numbers, texts and depths that cannot be stored. No recursion: what is checked may be nested deeply."""
    left: list[tuple[Any, int, bool]] = [(report, 0, is_text)]
    while left:
        value, depth, is_text = left.pop()
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, str):
            if is_text:
                _check_text(value)
        elif isinstance(value, int):
            if not -NUMBER_MAX <= value <= NUMBER_MAX:
                raise InputInvalid("a number is too large to be stored", hint="use a smaller one")
        elif isinstance(value, float | Decimal):
            if not _is_finite(value):
                raise InputInvalid(f"'{value}' is not a number that can be stored", hint="use a finite number")
        elif depth >= DEPTH_MAX:
            raise InputInvalid(f"values are nested more than {DEPTH_MAX} deep", hint="keep them in a file")
        else:
            # A definition has programs in it, and inputs have what its steps read.
            is_text = is_text and not isinstance(value, r.Revised)
            left += ((one, depth + 1, is_text) for one in parts(value))


def parts(value: Any) -> Iterable[Any]:
    """The values that a value consists of; none for a plain one."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.astuple(value)
    if isinstance(value, Mapping):
        return (*value, *value.values())
    return value if isinstance(value, list | tuple | set | frozenset) else ()


def _is_finite(value: float | Decimal) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite() and abs(value.adjusted()) < 100
    return math.isfinite(value)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise InputInvalid("a text contains a NUL character", hint="remove it")
    if len(text) > TEXT_CHARS_MAX:
        raise InputInvalid(f"a text has more than {TEXT_CHARS_MAX:,} characters", hint="keep it in a file")


# -- what people and programs ask for ----------------------------------------------------------------------------------


def _resume(report: r.ResumeRequested) -> None:
    if not 0 <= report.steps <= STEPS_MAX:
        raise InputInvalid(f"a run is resumed for 1 to {STEPS_MAX:,} steps, not {report.steps}")


def _retry(report: r.RetryRequested) -> None:
    _check_round(report)
    asked, depth = report.child, 0
    while asked is not None:
        _check_round(asked)
        asked, depth = asked.child, depth + 1
        if depth > CHILDREN_MAX:
            raise InputInvalid("child runs are not nested that deep", hint="retry the run at the top")
    _check_revised(report.revised)


def _round(report: r.RoundRequested) -> None:
    if report.asked is not None:
        _check_round(report.asked)
    _check_budgets({"": report.budget} if report.budget is not None else {})
    _check_revised(report.revised)


def _check_round(asked: r.RetryRequested | ChildRound) -> None:
    if asked.items is not None and not asked.from_step:
        raise InputInvalid("items are those of a map step, and none is named", hint="name the step as well")
    if any(not 0 <= peak <= SIZE_BYTES_MAX for peak in asked.peaks.values()):
        raise InputInvalid("a peak of memory is a number of bytes", hint=_SAME_VERSION)
    _check_budgets(asked.budgets)


def _check_budgets(budgets: Mapping[str, Budget]) -> None:
    for budget in budgets.values():
        if any(limit <= 0 for limit in budget.limits.values()):
            raise InputInvalid("a budget must be greater than 0", hint="raise it above what was spent")


def _check_revised(revised: r.Revised | None) -> None:
    """The version is that of the definition: a run is found by it."""
    if revised is None:
        return
    graph = check_definition(revised.definition)
    if revised.version != version(encode(graph.workflow)):
        raise InputInvalid(
            f"'{revised.version[:40]}' is not the version of the corrected definition", hint=_SAME_VERSION
        )


def _classified(report: r.Classified) -> None:
    if report.memory is not None and not 0 < report.memory <= SIZE_BYTES_MAX:
        raise InputInvalid(f"memory must be greater than 0 and at most {SIZE_BYTES_MAX}, not {report.memory}")
    if report.timeout is not None and report.timeout <= 0:
        raise InputInvalid(f"timeout must be greater than 0, not {report.timeout:g}")
    if report.timeout is not None and report.timeout > DURATION_SECONDS_MAX:
        raise InputInvalid(f"timeout must be at most 100 years, not {report.timeout:g}s")
    if report.confidence is not None and not 0 <= report.confidence <= 1:
        raise InputInvalid(f"a confidence is a number from 0 to 1, not {report.confidence:g}")
    _check_budgets(report.budgets)


def _event_sent(report: r.EventSent) -> None:
    if problem := name_problem(report.name):
        raise InputInvalid(f"'{report.name[:40]}' is not the name of an event: {problem}")
    if problem := value_problem(report.value):
        hint = "keep it elsewhere, and send where" if "at most" in problem else ""
        raise InputInvalid(f"the value of the event cannot be kept: {problem}", hint=hint)
    if len(report.key) > KEY_CHARS_MAX:
        raise InputInvalid(f"the key of an event has at most {KEY_CHARS_MAX} characters")


# -- what workers report -----------------------------------------------------------------------------------------------


def _task_ended(report: r.TaskEnded) -> None:
    if report.outcome.said is not None:
        raise InputInvalid(
            "a worker reports what it observed; the engine decides which failure it is", hint=_SAME_VERSION
        )
    if report.reused_run_id < 0:
        raise InputInvalid("there is no such run whose result is reused", hint=_SAME_VERSION)
    outcome = report.outcome
    _check_machine(outcome.code, outcome.machine, outcome.lacks_folder, outcome.log_warning, outcome.output_warning)
    _check_job(report.job)
    if len(report.made_of) > PARTS_MAX or any(len(text) > PART_CHARS_MAX for text in parts(report.made_of)):
        raise InputInvalid(f"a result is known by at most {PARTS_MAX} parts of {PART_CHARS_MAX} characters each")
    _check_references(report)


def _check_references(report: r.TaskEnded) -> None:
    """Whoever looks at the run follows them. A worker stores what a step has written and looks like one."""
    values = [*report.data.values(), report.output]
    found = (one for value in values if holds_reference(value) for one in references(value))
    for reference in (*report.artifacts, *found):
        try:
            parse_reference(reference)
        except ArtifactDamaged as error:
            raise InputInvalid(error.message, hint=_SAME_VERSION) from None


def _lease_expired(report: r.LeaseExpired) -> None:
    if report.job is not None:
        _check_machine(report.job.state)
        _check_job(report.job.job)


def _check_job(job: WorkerJob | None) -> None:
    if job is not None:
        _check_machine(job.id, job.node, job.array_id, job.profile)


def _check_machine(*texts: str) -> None:
    for text in texts:
        if len(text) > MACHINE_CHARS_MAX:
            raise InputInvalid(f"what it says of its machine has more than {MACHINE_CHARS_MAX:,} characters")


def _task_interrupted(report: r.TaskInterrupted) -> None:
    for seconds in (report.ran_seconds, report.life_seconds):
        if seconds is not None and not 0 <= seconds <= DURATION_SECONDS_MAX:
            raise InputInvalid(f"{seconds:g}s is not a time that a task ran", hint=_SAME_VERSION)
    _check_machine(report.reason)
    _check_job(report.job)


_CHECKS: dict[type[r.Report], Callable[[Any], None]] = {
    r.ResumeRequested: _resume,
    r.RetryRequested: _retry,
    r.RoundRequested: _round,
    r.Classified: _classified,
    r.EventSent: _event_sent,
    r.TaskEnded: _task_ended,
    r.TaskInterrupted: _task_interrupted,
    r.LeaseExpired: _lease_expired,
}
