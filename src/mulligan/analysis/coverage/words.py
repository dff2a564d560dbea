"""Coverage in signs and words, for every face."""

from __future__ import annotations

from mulligan.analysis.coverage.results import Case, Coverage, FailureKind, Times, Verdict
from mulligan.analysis.coverage.table import Mark
from mulligan.core.model.formatting import format_duration, pluralize

SIGNS: dict[Verdict, str] = {
    "recovered": "✓",
    "handled": "→",
    "allowed": "~",
    "parked": "?",
    "fails": "✗",
    "stops": "■",
}
ACCEPTED_SIGN = "○"
# In one word, for a cell that has room for it.
VERDICT_WORDS: dict[Verdict, str] = {
    "recovered": "recovered",
    "handled": "handled",
    "allowed": "allowed",
    "parked": "waits",
    "fails": "fails",
    "stops": "stops",
}
VERDICT_MEANINGS: dict[Verdict, str] = {
    "recovered": "recovered",
    "handled": "handled",
    "allowed": "allowed to fail",
    "parked": "waits for a person",
    "fails": "fails the run",
    "stops": "stops everything",
}
# Of a story, of a status: `good`, `bad`, …
VERDICT_TONES: dict[Verdict, str] = {
    "recovered": "good",
    "handled": "good",
    "allowed": "plain",
    "parked": "wait",
    "fails": "bad",
    "stops": "bad",
}
TIMES_WORDS: dict[Times, str] = {"once": "once", "twice": "twice", "always": "every time"}
_OF = {
    "step": "'{step}' fails with {failure}",
    "cancel": "the run is cancelled while '{step}' runs",
    "kill": "the process is killed while '{step}' runs",
}


def sign_of(mark: Mark) -> str:
    """One sign; two if a single failure is better dealt with than one that goes on: `✓✗`."""
    if mark.is_accepted:
        return ACCEPTED_SIGN
    return SIGNS[mark.verdict] if mark.once == mark.verdict else SIGNS[mark.once] + SIGNS[mark.verdict]


def word_of(mark: Mark) -> str:
    """What is behind the sign, in a word."""
    return "accepted" if mark.is_accepted else VERDICT_WORDS[mark.verdict]


def meaning_of(mark: Mark) -> str:
    """What the sign means, for a legend: `recovered if it happens once, otherwise fails the run`."""
    if mark.is_accepted:
        return "accepted in the file"
    if mark.once == mark.verdict:
        return VERDICT_MEANINGS[mark.verdict]
    return f"{VERDICT_MEANINGS[mark.once]} if it happens once, {VERDICT_MEANINGS[mark.verdict]} if it goes on"


def tone_of(mark: Mark) -> str:
    return "plain" if mark.is_accepted else VERDICT_TONES[mark.verdict]


def describe_failure_of(step: str, kind: FailureKind, times: Times = "once") -> str:
    """`'deploy' fails with TIMEOUT every time`."""
    if kind.of in _OF:
        said = _OF[kind.of].format(step=step, failure=kind.name)
    else:
        said = f"{kind.name} of '{step}'"
    return said if kind.of in ("cancel", "kill") else f"{said} {TIMES_WORDS[times]}"


def describe_case(case: Case) -> str:
    """`the run completed; retry dealt with it; 3 attempts, 12m30s`."""
    said = f"the run is {case.run_status}" if case.verdict == "parked" else f"the run {case.run_status}"
    dealt = f"{case.rung} dealt with it" if case.rung not in ("", "nothing") else "nothing dealt with it"
    parts = [said, dealt, f"{pluralize(case.attempts, 'attempt')}, {format_duration(case.seconds)}"]
    if case.cost is not None:
        parts[-1] += f", ${case.cost:.2f}"
    return "; ".join(parts)


def played_text(coverage: Coverage) -> str:
    """`132 cases played, and 400 pairs of failures (a sample, seed 0); no command was run`."""
    pairs = f", and {pluralize(coverage.pairs_count, 'pair')} of failures" if coverage.pairs_count else ""
    sample = f" (a sample, seed {coverage.seed})" if coverage.is_sample else ""
    return f"{pluralize(coverage.cases_count, 'case')} played{pairs}{sample}; no command was run"
