"""Phrases for people: failures, rules, limits and resources. One phrase per thing."""

from __future__ import annotations

from mulligan.core.deciding.classify import (
    LIMIT_SECONDS,
    PAST_DEADLINE,
    TOO_LARGE_PREFIX,
    TOO_LONG,
    exceeded_limit,
    is_own_shortage,
)
from mulligan.core.deciding.workers.adjustment import CAP, CAPS
from mulligan.core.model.clusters.on_dask import is_dask_worker
from mulligan.core.model.clusters.scheduler_job import JobEnd, describe_job
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.events import AttemptInterrupted, TriageSuggested
from mulligan.core.model.failure import Failure
from mulligan.core.model.rejected_output import rejected_text
from mulligan.core.model.text.failure_line import most_useful_line, tail_lines
from mulligan.core.model.text.formatting import (
    escape_unprintable,
    format_duration,
    format_size,
    pluralize,
    single_line,
    strip_control_characters,
)
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Rule, TriageAgent
from mulligan.core.state.state import Suggestion

# The longest line of a failure's message that a sentence quotes.
LINE_CHARS_MAX = 100
# The messages of these codes are also in the log, in full. Any other message is not, and often ends with what to do:
# a sentence quotes more of it.
_LOGGED = frozenset("EXIT_NONZERO SIGNALED TIMEOUT CONNECTION HTTP_4XX HTTP_429 HTTP_5XX VALIDATION_FAILED".split())
_UNLOGGED_CHARS_MAX = 400
# What a function has raised begins with the name of its class; anything else is ours, and ends with what to do.
_NAMED_EXCEPTION = lazy_regex(r"[\w.]+(?:: |$)")


# Why a step was parked, by the reason that its event has.
PARKED_FOR = {
    "unmatched": "no rule matched",
    "exhausted": "its retries are used up",
    "always": "every failure of this step is parked",
    "undo_failed": "an undo failed, so what was done may still be in effect",
}


# Why the answer of a triager was not applied, by the code that its event has.
NOT_APPLIED = {
    "below_confidence": "it is not sure enough",
    "not_allowed": "it may not decide that",
    "memory_max": "that is more memory than it may give",
    "timeout_max": "that is more time than it may give",
    "max_per_run": "agents have decided often enough in this run",
    "invalid_answer": "its answer is not valid",
    "agent_timeout": "it did not answer in time",
    "agent_failed": "it failed",
    "budget": "the budget for agents is spent",
}


def describe_suggestion(found: TriageSuggested | Suggestion) -> str:
    """What a triager suggests and why that was not applied: `agent 'claude' suggests retry (60% sure): …`."""
    why = NOT_APPLIED.get(found.why_not, found.why_not)
    detail = f" ({escape_unprintable(single_line(found.detail))})" if found.detail else ""
    if found.verdict is None:
        return f"agent '{found.agent}' gave no answer: {why}{detail}"
    more = describe_suggested_limits(found)
    said = escape_unprintable(single_line(found.reason))
    sure = f" ({found.confidence:.0%} sure)" if found.confidence is not None else ""
    return f"agent '{found.agent}' suggests {found.verdict}{more}{sure}: {said}; not applied: {why}{detail}"


def describe_triager(agent: TriageAgent) -> str:
    """`agent 'claude' is asked first: it may decide retry, if it is at least 80% sure, 3 times in a run`."""
    times = "once" if agent.max_per_run == 1 else f"{agent.max_per_run:,} times"
    may = " or ".join(agent.may)
    sure = f"if it is at least {agent.min_confidence:.0%} sure"
    return f"agent '{agent.provider}' is asked first: it may decide {may}, {sure}, {times} in a run"


def describe_suggested_limits(found: TriageSuggested | Suggestion) -> str:
    """` with 2.0GiB of memory`: what a triager suggests to give the next attempt."""
    return describe_adjustment(Adjusted(memory=found.memory, timeout=found.timeout))


def describe_failure(failure: Failure) -> str:
    """A failure in one line: its code, the figure that belongs to it, and one line of its message.

    The first line of an exception says most. A command that wrote nothing to stderr may have written to stdout.
    """
    message = strip_control_characters(failure.message)
    if failure.is_raised:
        line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    else:
        line = most_useful_line(message)
    if _adds_nothing(failure, line) and isinstance(printed := failure.details.get("stdout"), str):
        line = most_useful_line(strip_control_characters(printed))
    is_news = line and not _adds_nothing(failure, line)
    is_logged = _NAMED_EXCEPTION.match(line) is not None if failure.is_raised else failure.code in _LOGGED
    chars_max = LINE_CHARS_MAX if is_logged else _UNLOGGED_CHARS_MAX
    shown = line if len(line) <= chars_max else line[: chars_max - 3] + "…"
    text = f"{failure_label(failure)}: {escape_unprintable(shown)}" if is_news else failure_label(failure)
    # `; on node n3, Slurm job 17`: the job in which it failed.
    job = describe_job(failure.details)
    return text + _rejected_output(failure) + (f"; on {job}" if job else "")


def _rejected_output(failure: Failure) -> str:
    """`; output: {"rows":0}`: the beginning of the output that `validate` rejected."""
    output = escape_unprintable(single_line(strip_control_characters(rejected_text(failure))).strip())
    shown = output if len(output) <= LINE_CHARS_MAX else output[: LINE_CHARS_MAX - 1] + "…"
    return f"; output: {shown}" if shown else ""


def describe_interruption(fact: AttemptInterrupted) -> str:
    """`interrupted; it will run again`, or after how long, by the end of which worker's time."""
    if fact.life_seconds is None:
        return f"given back: {fact.reason}" if fact.reason else "interrupted; it will run again"
    ran = "" if fact.ran_seconds is None else f" after {format_duration(fact.ran_seconds)}"
    job = f" ({fact.job})" if fact.job is not None else ""
    return f"interrupted{ran}: the {format_duration(fact.life_seconds)} that its worker{job} had are over"


def describe_lost_worker(worker: str, end: JobEnd | None) -> str:
    """`its worker on node n3 (Slurm job 17) is gone: Slurm says NODE_FAIL`."""
    if end is None:
        return f"{worker if is_dask_worker(worker) else 'its worker'} is gone"
    node = f" on node {end.job.node}" if end.job.node else ""
    says = f": Slurm says {end.state}" if end.state else ""
    return f"its worker{node} (Slurm job {end.job.number}) is gone{says}"


def last_lines(failure: Failure) -> tuple[str, ...]:
    """The last lines that the attempt wrote, or of the traceback of an exception; none if there is only one line."""
    written = failure.message
    if failure.is_raised:
        written = failure.trace or failure.message
    elif failure.code not in _STDERR_CODES:
        return ()
    elif _adds_nothing(failure, written.strip()) and isinstance(printed := failure.details.get("stdout"), str):
        written = printed
    lines = (escape_unprintable(strip_control_characters(line)) for line in tail_lines(written))
    return tuple(line if len(line) <= _TAIL_CHARS_MAX else line[: _TAIL_CHARS_MAX - 1] + "…" for line in lines)


# The failures whose message is the stderr of a command.
_STDERR_CODES = frozenset(("EXIT_NONZERO", "SIGNALED", "TIMEOUT", "OUT_OF_MEMORY"))
_TAIL_CHARS_MAX = 200


def failure_label(failure: Failure) -> str:
    """The code of a failure, with the figure that belongs to it. The code may come from a step."""
    code = (
        failure.code
        if failure.code.isidentifier()
        else escape_unprintable(single_line(strip_control_characters(failure.code)))
    )
    return f"{code}{_figure(failure)}"


def _figure(failure: Failure) -> str:
    """` 7` of an exit code, ` after 5s` of a timeout, ` at 310MiB of 256MiB` of memory, ` by ann` of a refusal."""
    details = failure.details
    if failure.code == "SIGNALED" and failure.signal is not None:
        return f" by {signal_name(failure.signal)}"
    if failure.code == "EXIT_NONZERO" and failure.exit_code is not None:
        return f" {failure.exit_code}"
    if failure.code == "TIMEOUT":
        return _exceeded_limit(failure)
    if failure.code == "APPROVAL_REFUSED" and isinstance(by := details.get("by"), str):
        return f" by {strip_control_characters(by)}" if by else ""
    if failure.code == "OUT_OF_MEMORY" and is_own_shortage(failure):
        return _reached_cap(failure)
    if failure.code == "OUT_OF_MEMORY":
        used, may = details.get("peak_memory"), details.get("memory")
        at = f" at {format_size(used)}" if isinstance(used, int) else ""
        return (f"{at} of {format_size(may)}" if at and isinstance(may, int) else at) + _reached_cap(failure)
    return ""


def _reached_cap(failure: Failure) -> str:
    """The cap of the retry rule, if it was reached."""
    cap = failure.details.get(CAP)
    return f", the limit of {cap}" if cap in CAPS else ""


def _exceeded_limit(failure: Failure) -> str:
    """The limit that a timeout exceeded. The message names a limit of a server."""
    struck = exceeded_limit(failure)
    if struck == "deadline":
        return "" if failure.message == PAST_DEADLINE else " past its deadline"
    seconds = failure.details.get("timeout" if struck == "timeout" else LIMIT_SECONDS)
    return f" after {format_duration(seconds)}{_reached_cap(failure)}" if isinstance(seconds, int | float) else ""


def _adds_nothing(failure: Failure, line: str) -> bool:
    """Whether the line adds nothing to the code and its figure."""
    if line in (f"exit code {failure.exit_code}", f"killed by signal {failure.signal}", failure.code):
        return True
    return bool(_figure(failure)) and line.startswith((TOO_LONG, TOO_LARGE_PREFIX))


def signal_name(number: int) -> str:
    """`SIGSEGV (signal 11)`, or only the number if it has no name."""
    name = _SIGNALS.get(number)
    return f"{name} (signal {number})" if name else f"signal {number}"


# The numbers of Linux, on all machines except Alpha, MIPS and SPARC.
_SIGNALS = {
    number: f"SIG{name}"
    for number, name in enumerate(
        "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU "
        "URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS".split(),
        start=1,
    )
}


def describe_cap(reason: str, rule: Rule) -> str:
    """`max_memory of 8.0GiB reached; raise it, or make the step need less`; "" for another reason."""
    name = reason.removesuffix("_reached")
    cap = getattr(rule.adjust, name, None) if name in CAPS else None
    if cap is None:
        return ""
    amount = format_size(cap) if name == "max_memory" else format_duration(cap) if name == "max_timeout" else f"{cap:g}"
    return f"{name} of {amount} reached; raise it, or make the step need less"


def describe_adjustment(adjusted: Adjusted | None) -> str:
    """` with 2.0GiB of memory`: the resources that the next attempt gets instead of those in the workflow."""
    if adjusted is None:
        return ""
    got = [f"{format_size(adjusted.memory)} of memory"] if adjusted.memory is not None else []
    got += [f"{adjusted.cpus:g} cpu{'' if adjusted.cpus == 1 else 's'}"] if adjusted.cpus is not None else []
    got += [f"a timeout of {format_duration(adjusted.timeout)}"] if adjusted.timeout is not None else []
    return f" with {' and '.join(got)}" if got else ""


def describe_degraded(recovered: int, handled: int, dropped: int = 0) -> str:
    """`degraded: 1 recovered, 2 handled, 1 output not kept`, of a run that completed after that."""
    counts = [f"{count:,} {word}" for word, count in (("recovered", recovered), ("handled", handled)) if count]
    counts += [f"{pluralize(dropped, 'output')} not kept"] if dropped else []
    return f"degraded: {', '.join(counts)}" if counts else "degraded"


# Of a step whose undo has failed.
UNDO_FAILED = "undo failed, what it did may still be in effect"


def up_to_date_since(run_id: int) -> str:
    """The phrase for a step that reused the result of another run."""
    return f"up to date since run {run_id}"
