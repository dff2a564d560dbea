"""How things are said to people: failures, rules, times and sizes in a few words. One phrase per thing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from .adjustment import CAP, CAPS
from .classify import LIMIT_SECONDS, PAST_DEADLINE, TOO_LARGE, TOO_LONG, limit_struck
from .events import Adjusted
from .failure import Failure
from .failure_line import tail_lines, telling_line
from .rejected_output import rejected_text
from .workflow import Rule

# Of a failure's message, and of how many names a sentence has room for.
LINE_CHARS_MAX, NAMES_MAX = 100, 3
# What is said with these codes is in the log too, in full. Any other message, ours or the step's own, is in none, and
# often ends with what to do: of that a sentence has room for more.
_LOGGED = frozenset(
    "EXIT_NONZERO SIGNALED EXCEPTION TIMEOUT CONNECTION HTTP_4XX HTTP_429 HTTP_5XX VALIDATION_FAILED".split()
)
_UNLOGGED_CHARS_MAX = 400


def what(failure: Failure) -> str:
    """A failure in a few words: its code, the figure that says more, and one line of its message.

    An exception says most in its first line. A command that wrote nothing to stderr may have told stdout.
    """
    message = plain(failure.message)
    if failure.code == "EXCEPTION":
        line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    else:
        line = telling_line(message)
    if _says_nothing(failure, line) and isinstance(printed := failure.details.get("stdout"), str):
        line = telling_line(plain(printed))
    is_news = line and not _says_nothing(failure, line)
    chars_max = LINE_CHARS_MAX if failure.code in _LOGGED else _UNLOGGED_CHARS_MAX
    shown = line if len(line) <= chars_max else line[: chars_max - 3] + "…"
    said = f"{label(failure)}: {spelled(shown)}" if is_news else label(failure)
    return said + _refused(failure)


def _refused(failure: Failure) -> str:
    """`; it gave {"rows":0}`: the beginning of the output that `validate` refused."""
    given = spelled(flat(plain(rejected_text(failure))).strip())
    shown = given if len(given) <= LINE_CHARS_MAX else given[: LINE_CHARS_MAX - 1] + "…"
    return f"; it gave {shown}" if shown else ""


def tail(failure: Failure) -> tuple[str, ...]:
    """The last lines of what the attempt wrote, or of where an exception came from; none where one line is all."""
    written = failure.message
    if failure.code == "EXCEPTION":
        written = failure.trace or failure.message
    elif failure.code not in _WRITTEN:
        return ()
    elif _says_nothing(failure, written.strip()) and isinstance(printed := failure.details.get("stdout"), str):
        written = printed
    lines = (spelled(plain(line)) for line in tail_lines(written))
    return tuple(line if len(line) <= _TAIL_CHARS_MAX else line[: _TAIL_CHARS_MAX - 1] + "…" for line in lines)


# The failures whose message is what a command wrote to stderr.
_WRITTEN = frozenset(("EXIT_NONZERO", "SIGNALED", "TIMEOUT", "OUT_OF_MEMORY"))
_TAIL_CHARS_MAX = 200


def plain(text: str) -> str:
    """Text that a command wrote, without what would command a terminal: colours, cursor moves, bells."""
    return _CONTROLS.sub("", text) if not text.isprintable() else text


# Escape sequences (colours, titles), and control characters but for tabs and the ends of lines.
_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


# What turns the direction of writing, or cannot be seen, deceives whoever reads it: as part of a class of characters.
DECEIVING = "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"


def spelled(text: str, kept: str = r"[^\s\S]") -> str:
    """Text in which all that commands a terminal or deceives a reader is spelled out (`\\u001b`), but for `kept`."""
    if text.isprintable():
        return text
    return re.sub(rf"({kept})|[{_UNSEEN}]", lambda found: found[1] or f"\\u{ord(found[0]):04x}", text)


# Control characters but for tabs and the ends of lines, what deceives, what no XML may hold, lone halves of characters.
_UNSEEN = f"\x00-\x08\x0b-\x1f\x7f-\x9f{DECEIVING}\ufffe\uffff\ud800-\udfff"


def flat(text: str) -> str:
    """Text as one line: nobody may write lines that look like ours."""
    lines = text.splitlines()
    return " ".join(map(str.strip, lines)) if len(lines) > 1 else lines[0] if lines else ""


def label(failure: Failure) -> str:
    """Its code, with the figure that says more. A step may call its failure what it likes."""
    code = failure.code if failure.code.isidentifier() else spelled(flat(plain(failure.code)))
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
        return f" by {plain(by)}" if by else ""
    if failure.code == "OUT_OF_MEMORY":
        used, may = details.get("peak_memory"), details.get("memory")
        at = f" at {size(used)}" if isinstance(used, int) else ""
        return (f"{at} of {size(may)}" if at and isinstance(may, int) else at) + _all_allowed(failure)
    return ""


def _all_allowed(failure: Failure) -> str:
    """Why it got no retry with more, where the cap of its rule was reached."""
    cap = failure.details.get(CAP)
    return f", all that {cap} allows" if cap in CAPS else ""


def _time_up(failure: Failure) -> str:
    """How long that was, whichever limit it was. One of the server's has its name in the message."""
    struck = limit_struck(failure)
    if struck == "deadline":
        return "" if failure.message == PAST_DEADLINE else " past its deadline"
    seconds = failure.details.get("timeout" if struck == "timeout" else LIMIT_SECONDS)
    return f" after {span(seconds)}{_all_allowed(failure)}" if isinstance(seconds, int | float) else ""


def _says_nothing(failure: Failure, line: str) -> bool:
    """Whether the line says no more than the code and the figure beside it do."""
    if line in (f"exit code {failure.exit_code}", f"killed by signal {failure.signal}", failure.code):
        return True
    return bool(_figure(failure)) and line.startswith((TOO_LONG, TOO_LARGE))


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


def span(seconds: float) -> str:
    """A length of time: `0.2s`, `9.5s`, `90s`, `5m30s`, `8h00m`."""
    if seconds < 100:
        return f"{seconds:.1f}s" if seconds < 10 and seconds != int(seconds) else f"{seconds:.0f}s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes}m{left:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def until(due: datetime, at: datetime) -> str:
    """When that is: `at once`, `in 50ms`, `in 2.0s`, `in 90s`, `in 5m30s`, `in 8h00m`."""
    left = (due - at).total_seconds()
    if left <= 0:
        return "at once"
    if left < 0.1:
        return f"in {left * 1000:.0f}ms"
    return f"in {left:.1f}s" if left < 10 else f"in {span(left)}"


def moment(at: datetime) -> str:
    """A time to the second, as it is the same for whoever reads it: `2026-11-15 03:12:00 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def size(bytes_: float) -> str:
    """Bytes in the unit in which people say them."""
    for unit in ("B", "KiB", "MiB"):
        if bytes_ < 1024:
            return f"{bytes_:.0f}{unit}"
        bytes_ /= 1024
    return f"{bytes_:.1f}GiB"


def reason_of(error: Exception) -> str:
    """What the system says of an error, or else Python, as we say things: `no such file or directory`."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def counted(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def quoted(names: Sequence[str], names_max: int = NAMES_MAX) -> str:
    """`'a', 'b', 'c' and 4 more`."""
    shown = ", ".join(f"'{name}'" for name in names[:names_max])
    return f"{shown} and {len(names) - names_max} more" if len(names) > names_max else shown


def ranges(numbers: Iterable[int]) -> list[str]:
    """Numbers with three or more in a row as a range: `1`, `10-19`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [text for row in found for text in ([f"{row[0]}-{row[-1]}"] if len(row) > 2 else map(str, row))]


def looked_for(codes: Sequence[str], exit_codes: Sequence[int]) -> str:
    """What a rule with codes, or an edge with a filter, is for: `TIMEOUT, CONNECTION`, `exit codes 10, 20-29`."""
    exits = f"exit code{'s' if len(exit_codes) > 1 else ''} {', '.join(ranges(exit_codes))}" if exit_codes else ""
    return " and ".join(filter(None, (", ".join(codes), exits)))


def rule_is_for(rule: Rule) -> str:
    """A rule by what it is for: `TIMEOUT`, `exit code 10`, `'no space left'`, `any failure`."""
    if rule.pattern is not None:
        return f"'{rule.pattern}'"
    return looked_for(rule.codes, rule.exit_codes) or "any failure"


def capped_by(reason: str, rule: Rule) -> str:
    """`max_memory of 8.0GiB is reached: raise it, or make the step need less`; nothing for another reason."""
    name = reason.removesuffix("_reached")
    cap = getattr(rule.adjust, name, None) if name in CAPS else None
    if cap is None:
        return ""
    said = size(cap) if name == "max_memory" else span(cap) if name == "max_timeout" else f"{cap:g}"
    return f"{name} of {said} is reached: raise it, or make the step need less"


def with_more(adjusted: Adjusted | None) -> str:
    """What the next attempt gets in place of what the workflow says."""
    if adjusted is None:
        return ""
    got = [f"{size(adjusted.memory)} of memory"] if adjusted.memory is not None else []
    got += [f"{adjusted.cpus:g} cpu{'' if adjusted.cpus == 1 else 's'}"] if adjusted.cpus is not None else []
    got += [f"a timeout of {span(adjusted.timeout)}"] if adjusted.timeout is not None else []
    return f", with {' and '.join(got)}" if got else ""


def up_to_date_since(run_id: int) -> str:
    """Of a step that took over what another run had done."""
    return f"up to date since run {run_id}"
