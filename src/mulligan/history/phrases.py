"""How things are said to people: failures, rules, times and sizes in a few words. One phrase per thing."""

from __future__ import annotations

from mulligan.core.deciding.adjustment import CAP, CAPS
from mulligan.core.deciding.classify import LIMIT_SECONDS, PAST_DEADLINE, TOO_LARGE_PREFIX, TOO_LONG, exceeded_limit
from mulligan.core.model.events import Adjusted
from mulligan.core.model.failure import Failure
from mulligan.core.model.failure_line import most_useful_line, tail_lines
from mulligan.core.model.formatting import (
    escape_unprintable,
    format_duration,
    format_size,
    single_line,
    strip_control_characters,
)
from mulligan.core.model.rejected_output import rejected_text
from mulligan.core.model.workflow import Rule

# The longest line of a failure's message that a sentence quotes.
LINE_CHARS_MAX = 100
# What is said with these codes is in the log too, in full. Any other message, ours or the step's own, is in none, and
# often ends with what to do: of that a sentence has room for more.
_LOGGED = frozenset(
    "EXIT_NONZERO SIGNALED EXCEPTION TIMEOUT CONNECTION HTTP_4XX HTTP_429 HTTP_5XX VALIDATION_FAILED".split()
)
_UNLOGGED_CHARS_MAX = 400


def describe_failure(failure: Failure) -> str:
    """A failure in a few words: its code, the figure that says more, and one line of its message.

    An exception says most in its first line. A command that wrote nothing to stderr may have told stdout.
    """
    message = strip_control_characters(failure.message)
    if failure.code == "EXCEPTION":
        line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    else:
        line = most_useful_line(message)
    if _says_nothing(failure, line) and isinstance(printed := failure.details.get("stdout"), str):
        line = most_useful_line(strip_control_characters(printed))
    is_news = line and not _says_nothing(failure, line)
    chars_max = LINE_CHARS_MAX if failure.code in _LOGGED else _UNLOGGED_CHARS_MAX
    shown = line if len(line) <= chars_max else line[: chars_max - 3] + "…"
    said = f"{failure_label(failure)}: {escape_unprintable(shown)}" if is_news else failure_label(failure)
    return said + _refused(failure)


def _refused(failure: Failure) -> str:
    """`; it gave {"rows":0}`: the beginning of the output that `validate` refused."""
    given = escape_unprintable(single_line(strip_control_characters(rejected_text(failure))).strip())
    shown = given if len(given) <= LINE_CHARS_MAX else given[: LINE_CHARS_MAX - 1] + "…"
    return f"; it gave {shown}" if shown else ""


def last_lines(failure: Failure) -> tuple[str, ...]:
    """The last lines of what the attempt wrote, or of where an exception came from; none where one line is all."""
    written = failure.message
    if failure.code == "EXCEPTION":
        written = failure.trace or failure.message
    elif failure.code not in _WRITTEN:
        return ()
    elif _says_nothing(failure, written.strip()) and isinstance(printed := failure.details.get("stdout"), str):
        written = printed
    lines = (escape_unprintable(strip_control_characters(line)) for line in tail_lines(written))
    return tuple(line if len(line) <= _TAIL_CHARS_MAX else line[: _TAIL_CHARS_MAX - 1] + "…" for line in lines)


# The failures whose message is what a command wrote to stderr.
_WRITTEN = frozenset(("EXIT_NONZERO", "SIGNALED", "TIMEOUT", "OUT_OF_MEMORY"))
_TAIL_CHARS_MAX = 200


def failure_label(failure: Failure) -> str:
    """Its code, with the figure that says more. A step may call its failure what it likes."""
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
        return _time_up(failure)
    if failure.code == "APPROVAL_REFUSED" and isinstance(by := details.get("by"), str):
        return f" by {strip_control_characters(by)}" if by else ""
    if failure.code == "OUT_OF_MEMORY":
        used, may = details.get("peak_memory"), details.get("memory")
        at = f" at {format_size(used)}" if isinstance(used, int) else ""
        return (f"{at} of {format_size(may)}" if at and isinstance(may, int) else at) + _all_allowed(failure)
    return ""


def _all_allowed(failure: Failure) -> str:
    """Why it got no retry with more, where the cap of its rule was reached."""
    cap = failure.details.get(CAP)
    return f", all that {cap} allows" if cap in CAPS else ""


def _time_up(failure: Failure) -> str:
    """How long that was, whichever limit it was. One of the server's has its name in the message."""
    struck = exceeded_limit(failure)
    if struck == "deadline":
        return "" if failure.message == PAST_DEADLINE else " past its deadline"
    seconds = failure.details.get("timeout" if struck == "timeout" else LIMIT_SECONDS)
    return f" after {format_duration(seconds)}{_all_allowed(failure)}" if isinstance(seconds, int | float) else ""


def _says_nothing(failure: Failure, line: str) -> bool:
    """Whether the line says no more than the code and the figure beside it do."""
    if line in (f"exit code {failure.exit_code}", f"killed by signal {failure.signal}", failure.code):
        return True
    return bool(_figure(failure)) and line.startswith((TOO_LONG, TOO_LARGE_PREFIX))


def signal_name(number: int) -> str:
    """`SIGSEGV (signal 11)`; the number alone where it has no name."""
    name = _SIGNALS.get(number)
    return f"{name} (signal {number})" if name else f"signal {number}"


# As Linux numbers them, on all machines but Alpha, MIPS and SPARC.
_SIGNALS = {
    number: f"SIG{name}"
    for number, name in enumerate(
        "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU "
        "URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS".split(),
        start=1,
    )
}


def describe_cap(reason: str, rule: Rule) -> str:
    """`max_memory of 8.0GiB is reached: raise it, or make the step need less`; nothing for another reason."""
    name = reason.removesuffix("_reached")
    cap = getattr(rule.adjust, name, None) if name in CAPS else None
    if cap is None:
        return ""
    said = format_size(cap) if name == "max_memory" else format_duration(cap) if name == "max_timeout" else f"{cap:g}"
    return f"{name} of {said} is reached: raise it, or make the step need less"


def describe_adjustment(adjusted: Adjusted | None) -> str:
    """What the next attempt gets in place of what the workflow says."""
    if adjusted is None:
        return ""
    got = [f"{format_size(adjusted.memory)} of memory"] if adjusted.memory is not None else []
    got += [f"{adjusted.cpus:g} cpu{'' if adjusted.cpus == 1 else 's'}"] if adjusted.cpus is not None else []
    got += [f"a timeout of {format_duration(adjusted.timeout)}"] if adjusted.timeout is not None else []
    return f", with {' and '.join(got)}" if got else ""


def up_to_date_since(run_id: int) -> str:
    """Of a step that took over what another run had done."""
    return f"up to date since run {run_id}"
