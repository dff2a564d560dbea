"""Coverage in signs and words, for every face."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import NamedTuple

import msgspec

from mulligan.analysis.coverage.results import AgentCosts, Case, Coverage, FailureKind, Times, Verdict
from mulligan.analysis.coverage.table import Mark
from mulligan.analysis.playing.player import START
from mulligan.core.model.agents.spending import format_dollars
from mulligan.core.model.text.formatting import format_duration, pluralize
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.history.story import StoryLine


class VerdictWords(NamedTuple):
    """A verdict as a sign, in one word for a cell that has room for it, in a phrase, and the tone of its story."""

    sign: str
    word: str
    meaning: str
    tone: str


VERDICT_WORDS: dict[Verdict, VerdictWords] = {
    "recovered": VerdictWords("✓", "recovered", "recovered", "good"),
    "handled": VerdictWords("→", "handled", "handled", "good"),
    "allowed": VerdictWords("~", "allowed", "allowed", "plain"),
    "unknown": VerdictWords("¿", "unknown", "unknown: decided by code", "wait"),
    "parked": VerdictWords("?", "waits", "waits for a person", "wait"),
    "fails": VerdictWords("✗", "fails", "fails the run", "bad"),
    "stops": VerdictWords("■", "stops", "stops everything", "bad"),
}
ACCEPTED_SIGN = "○"
TIMES_WORDS: dict[Times, str] = {"once": "once", "twice": "twice", "always": "every time"}
_SKIPPED = "skipped: "
_PLAIN = lazy_regex(r"[\w@%+=:,./-]+", re.ASCII)
# So many steps in a row that were skipped have a line of their own.
SKIPPED_MAX = 3
# How many steps are named in one sentence.
NAMES_MAX = 5
_ENDED = {
    "cancelled": "the run was cancelled",
    "waiting": "the run waits",
    "endless": "the run went on and on, and was cut off",
}
# What dealt with a failure, by its rung.
_RUNGS = {
    "retry": "a retry dealt with it",
    "rerun": "the attempt was made again",
    "script": "its recovery script dealt with it",
    "handler": "its handler dealt with it",
    "remediation": "a remediation dealt with it",
    "route": "its failure edge leads on",
    "triage": "a person has to decide",
    "allowed": "it may fail",
    "map": "the map goes on without the item",
    "agent": "the agent gets it as an answer",
    "warning": "it is recorded as a warning",
    "cancel": "somebody asked for it",
    "end": "the run goes on to 'end'",
    "code": "the program goes on after it",
}


def sign_of(mark: Mark) -> str:
    """One sign; two if a single failure is better dealt with than one that goes on: `✓✗`."""
    if mark.is_accepted:
        return ACCEPTED_SIGN
    sign = VERDICT_WORDS[mark.verdict].sign
    return sign if mark.once == mark.verdict else VERDICT_WORDS[mark.once].sign + sign


def word_of(mark: Mark) -> str:
    """What is behind the sign, in a word."""
    return "accepted" if mark.is_accepted else VERDICT_WORDS[mark.verdict].word


def meaning_of(mark: Mark) -> str:
    """What the sign means, for a legend: `recovered if it happens once, otherwise fails the run`."""
    if mark.is_accepted:
        return "accepted in the file"
    meaning = VERDICT_WORDS[mark.verdict].meaning
    if mark.once == mark.verdict:
        return meaning
    return f"{VERDICT_WORDS[mark.once].meaning} if it happens once, {meaning} if it goes on"


def tone_of(mark: Mark) -> str:
    return "plain" if mark.is_accepted else VERDICT_WORDS[mark.verdict].tone


def describe_failure_of(step: str, kind: FailureKind, times: Times = "once") -> str:
    """`'deploy' fails with TIMEOUT every time`, `handler of 'deploy' fails every time`."""
    if kind.of == "cancel":
        return f"the run is cancelled while '{step}' runs"
    if kind.of == "kill":
        return f"the worker is killed while '{step}' runs, {TIMES_WORDS[times]}"
    if kind.of in ("step", "model"):
        return f"'{step}' fails with {kind.name} {TIMES_WORDS[times]}"
    return f"{kind.name.removesuffix(' fails')} of '{step}' fails {TIMES_WORDS[times]}"


def describe_case(case: Case) -> str:
    """`the run completed: a retry dealt with it; 3 attempts, up to 12m30s`."""
    if case.verdict == "unknown":
        what = f"the program calls '{case.needs}'" if case.needs else "the program does not go on"
        at = f" ({case.at})" if case.at else ""
        return f"unknown: {what}{at}{', which has no fake' if case.needs else ''}"
    ended = _ENDED.get(case.run_status, f"the run {case.run_status}")
    why = f"the program caught it at {case.at}" if case.at else _RUNGS.get(case.rung, "nothing dealt with it")
    measured = pluralize(case.attempts, "attempt") + (
        f", up to {format_duration(case.seconds)}" if case.seconds else ""
    )
    return f"{ended}: {why}; {measured}"


def format_cost_limit(dollars: float) -> str:
    """`$2.50`."""
    return format_dollars(Decimal(str(dollars)))


def describe_agent_costs(costs: AgentCosts) -> str:
    """`agents may spend up to $5.00 before the next call is refused`, or which of them have no limit."""
    if costs.limit is not None:
        return f"agents may spend up to {format_cost_limit(costs.limit)} before the next call is refused"
    names = ", ".join(f"'{name}'" for name in costs.without_limit[:NAMES_MAX])
    more = len(costs.without_limit) - NAMES_MAX
    return f"nothing limits what the agents of {names}{f' and {more:,} more' if more > 0 else ''} cost"


def fold_skipped(story: Sequence[StoryLine]) -> list[StoryLine]:
    """The story with one line for many steps in a row that were skipped: that a run ended says the same."""
    found: list[StoryLine] = []
    for is_skipped, group in groupby(story, key=lambda line: line.text.startswith(_SKIPPED)):
        lines = list(group)
        if not is_skipped or len(lines) <= SKIPPED_MAX + 1:
            found += lines
            continue
        more = f"and {len(lines) - SKIPPED_MAX:,} more steps are skipped"
        found += [*lines[:SKIPPED_MAX], msgspec.structs.replace(lines[-1], place="…", text=more)]
    return found


def time_in_story(line: StoryLine) -> str:
    """When it happens, counted from the start of the run: `+1m30s`."""
    return f"+{format_duration((line.at - START).total_seconds())}"


def describe_pair(case: Case, kinds: Mapping[str, FailureKind]) -> str:
    """Two failures in one run: `'a' fails with TIMEOUT and 'b' fails with exit 3: fails the run`."""
    said = [
        describe_failure_of(step, kinds.get(failure) or FailureKind(failure, ""), case.times)
        for step, failure in ((case.step, case.failure), (case.with_step, case.with_failure))
        if step
    ]
    return f"{' and '.join(said)}: {VERDICT_WORDS[case.verdict].meaning}"


def story_command(coverage: Coverage, file: str, step: str, failure: str) -> str:
    """What shows the story of a cell: `mulligan coverage nightly.yaml --step fetch --failure TIMEOUT`."""
    rehearse = ("--rehearse", coverage.fakes) if coverage.fakes else ()
    words = ("mulligan", "coverage", file, *rehearse, "--step", step, "--failure", failure)
    return " ".join(word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "'\"'\"'") + "'" for word in words)


def played_text(coverage: Coverage) -> str:
    """`132 cases played, and 400 pairs of failures (a sample, seed 0); no command was run`."""
    pairs = f", and {pluralize(coverage.pairs_count, 'pair')} of failures" if coverage.pairs_count else ""
    sample = f" (a sample, seed {coverage.seed})" if coverage.is_sample else ""
    ran = "the code of the program ran, and no step of it" if coverage.called_at else "no command was run"
    return f"{pluralize(coverage.cases_count, 'case')} played{pairs}{sample}; {ran}"
