"""The most useful line of a command's output about its failure: the one that a person would search for."""

from __future__ import annotations

import re

from mulligan.core.model.text.lazy_regex import lazy_regex

# A pointer below another line (`   |   ^~~`), a rule (`-----`), a progress bar, `45% [###   ]`.
_NOISE = lazy_regex(r"[\W_]*|[\W\d_]*\d{1,3}(?:\.\d+)?\s?%(?:[\W\d_]|[kKMG]i?B(?:/s)?|eta|ETA)*")
# A compiler error with its position: the first is the cause, the others often follow from it.
_COMPILER_ERROR = lazy_regex(r"[^\s:]+:\d+:(?:\d+:)? (?:fatal )?error\b|error(?:\[\w+\])?: ", re.I)
# Words that most programs use to report an error.
_ERROR_WORDS = lazy_regex(
    r"\b(?:error|fatal|panic(?:ked)?|exception|failed|failure|denied|cannot|can't|unable|invalid|undefined|unexpected|"
    r"refused|not found|no such|no space|out of memory|timed out|too many|segmentation fault|abort(?:ed)?)\b"
    r"|[a-z](?:Error|Exception|Warning)\b|^E\s",
    re.I,
)
# Lines that only report the failure of a subprocess, or refer to other places.
_SECONDARY_LINE = lazy_regex(
    r"g?make(?:\[\d+\])?: \*\*\*|ninja: build stopped|compilation terminated"
    r"|npm (?:ERR!|error) (?:A complete|code|path)|subprocess\.CalledProcessError"
    r"|error: process didn't exit|error: aborting due to|error: could not compile"
    r"|^={3,} .* ={3,}$|_logs/|\bwarning:"
    r"|exit status \d+$|for more information|\d+ errors? (?:generated|found)|note: |hint: ",
    re.I,
)


# How many of the last lines are shown with the most useful one.
TAIL_LINES_MAX = 5


def tail_lines(written: str) -> tuple[str, ...]:
    """The last lines of a command's output; none if there is only one line."""
    lines = [line.rpartition("\r")[2].rstrip() for line in written.replace("\r\n", "\n").split("\n")]
    written_lines = [line for line in lines if line.strip()]
    return tuple(written_lines[-TAIL_LINES_MAX:]) if len(written_lines) > 1 else ()


def most_useful_line(message: str) -> str:
    """The most useful line of a command's output; the last line if none stands out, "" without output."""
    # Of a progress display that overwrites its line, only the last version counts.
    lines = [line.rpartition("\r")[2].strip() for line in message.replace("\r\n", "\n").split("\n")]
    content = [line for line in lines if line and not _NOISE.fullmatch(line)]
    own = [line for line in content if not _SECONDARY_LINE.search(line)] or content
    compiler = next((line for line in own if _COMPILER_ERROR.match(line)), None)
    if compiler is not None:
        return compiler
    errors = [line for line in own if _ERROR_WORDS.search(line)]
    return (errors or own or [line for line in lines if line] or [""])[-1]
