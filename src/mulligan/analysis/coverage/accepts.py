"""What the author of a workflow accepts: comments `# coverage: accept FAILURE because …`, and the key `coverage`.

A comment belongs to the step in whose lines it stands, or directly above which it stands; before the steps, and beside
other keys at the top level, it is for the whole workflow. A matrix is one step here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

import msgspec

from mulligan.analysis.coverage.finding_codes import all_steps
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Workflow

# Stands for every failure and every finding.
ANY = "any"

# A comment of YAML, Python or a shell, or of JSON5 and KDL. `accep…` may be misspelt: then it is refused, not ignored.
_COMMENT = lazy_regex(r"(?:^|[ \t])(?:#+|//+)[ \t]*coverage:[ \t]*(?P<said>acc.*)$")
_ACCEPT = lazy_regex(r"accept[ \t]+(?P<names>\S.*?)[ \t]+because\b:?[ \t]*(?P<reason>\S.*)$")
# A line that ends what belongs to the step above it: a key at the top level of a YAML file.
_TOP_LEVEL = lazy_regex(r"[A-Za-z_\"'][^\s#]*[ \t]*:(?:[ \t]|$)")
_ONLY_COMMENT = lazy_regex(r"[ \t]*(?:#|//|$)")
# What stands between names: a comma or "and", except in quotes, as in `remediation 'stop and go' fails`.
_BETWEEN = lazy_regex(r"(?:,|\band\b)(?=(?:[^']*'[^']*')*[^']*$)")
FORM = "# coverage: accept FAILURE because REASON"


class Accept(msgspec.Struct, frozen=True):
    """A failure or a finding that is meant to be so. `step` is a step or a matrix; "" is the whole workflow."""

    what: str
    reason: str
    step: str = ""
    # Of the file; 0 if unknown.
    line: int = 0


class UnreadableAccept(msgspec.Struct, frozen=True):
    """A comment that is meant to accept something, and does not say what or why."""

    message: str
    line: int
    column: int
    source_line: str


def accepts_of_keys(workflow: Workflow, line_of: Callable[[str, tuple[str, ...]], int]) -> Iterator[Accept]:
    """What the keys `coverage` of a workflow and its steps accept.

    `line_of` is asked for the line of keys of a step; of the workflow itself for "".
    """
    owners = {"": workflow.accepts}
    for name, step, _ in all_steps(workflow):
        if step.accepts:
            owners.setdefault(step.sweep or name, step.accepts)
    for owner, accepts in owners.items():
        for what, reason in accepts.items():
            yield Accept(_one_name(what), reason, owner, line_of(owner, ("coverage", "accept", what)))


def accepts_of_comments(text: str, lines: Mapping[str, int]) -> Iterator[Accept | UnreadableAccept]:
    """What the comments of a file accept. `lines` are those on which its steps begin, counted from 1."""
    if "coverage:" not in text:
        return
    written = re.split("\r\n|[\n\r\x85\u2028\u2029]", text)
    starts = sorted((line, step) for step, line in lines.items() if line)
    for number, line in enumerate(written, 1):
        comment = _COMMENT.search(line)
        if comment is None:
            continue
        found = _ACCEPT.fullmatch(comment["said"].rstrip())
        if found is None:
            yield UnreadableAccept(_reason_unreadable(comment["said"]), number, comment.start("said") + 1, line)
            continue
        for step in _steps_at(number, written, starts):
            for name in filter(None, map(_one_name, _BETWEEN.split(found["names"]))):
                yield Accept(name, found["reason"].rstrip(), step, number)


def _one_name(text: str) -> str:
    return " ".join(text.split())


def _reason_unreadable(said: str) -> str:
    if not re.match(r"accept(?:[ \t]|$)", said):
        return "this comment is not understood"
    return "this comment does not say why" if "because" not in said.split()[2:-1] else "this comment is not understood"


def _steps_at(number: int, written: list[str], starts: list[tuple[int, str]]) -> list[str]:
    """The steps that a comment in this line belongs to; [""] for the workflow.

    They are several if they begin in one line: calls in one expression of Python, or what an entry of another
    system's file was translated into.
    """
    first_lines = [line for line, _ in starts]
    if _ONLY_COMMENT.match(written[number - 1]):
        below = next((n for n in range(number, len(written)) if not _ONLY_COMMENT.match(written[n])), len(written))
        if below + 1 in first_lines:
            return [step for line, step in starts if line == below + 1]
    index = bisect_right(first_lines, number) - 1
    if index < 0:
        return [""]
    begins = first_lines[index]
    is_left = any(_TOP_LEVEL.match(written[n]) for n in range(begins, number))
    return [""] if is_left else [step for line, step in starts if line == begins]
