"""How often each rung of the ladder was tried, how often it worked and how long it took, over many runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from mulligan.core.deciding.conditions import describe_rule
from mulligan.core.effects.snapshot import read_tally
from mulligan.core.evolve.evolve_places import spec_below
from mulligan.core.evolve.tallies import parse_tally_key
from mulligan.core.model.program_calls import name_of
from mulligan.core.model.workflow import Command, Step, Workflow, decode
from mulligan.core.state.state import Tally
from mulligan.errors import CodecError, UnknownRun
from mulligan.ports import Store
from mulligan.service.runs.stored.run_reader import RunReader

# How many damaged runs of a version are looked at for its definition.
UNREADABLE_MAX = 20
# In order; a script belongs to the retry that it is for.
RUNGS = ("retry", "script", "handle", "triage", "route")
# What is counted of agents that decide about failures, in place of rungs.
OF_AGENTS = ("triager", "suggested", "overruled", "unanswered")
# The words in the key of a place, and the role of the command that each leads to.
_ROLES = {"on_failure": "handler", "on_success": "success"}
_BELOW = {"handler": "its handler", "success": "on_success", "do": "each item"}


class Subject(NamedTuple):
    """What is counted together. Rules are named in words, so that a rule that moved in its file stays the same."""

    workflow: str
    step: str
    command: str
    rung: str
    what: str


class RungStats(msgspec.Struct, frozen=True):
    """How often one rung was tried and worked, for a step or a whole matrix."""

    workflow: str
    step: str
    # Which command of the step: "" for its own.
    command: str
    rung: str
    what: str
    runs: int
    tried: int
    worked: int
    share: float
    average_seconds: float | None


class AgentStats(msgspec.Struct, frozen=True):
    """How often an agent decided about failures of a workflow, and how often it was right."""

    workflow: str
    agent: str
    runs: int
    # Its decisions that were applied. Those that are neither right nor wrong are not known yet.
    decisions: int
    right: int
    # Wrong: the step failed again after a retry; somebody ran a step again that it had let fail.
    failed_again: int
    overruled: int
    # Of the decisions that are right or wrong.
    share: float | None
    # Its suggestions that were left to a person, and of those how many a person decided in the same way, or otherwise.
    suggestions: int
    followed: int
    not_followed: int
    # How often it gave no valid answer.
    unanswered: int


class _Sum:
    """One entry of the statistics while it is summed up."""

    def __init__(self, order: tuple[Any, ...]) -> None:
        self.order = order
        self.tally = Tally()
        self.run_ids: set[int] = set()

    def add(self, run_id: int, tally: Tally) -> None:
        self.tally += tally
        self.run_ids.add(run_id)


class _Pinned:
    """A version of a workflow: says what a tally counts, and its position in the file."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self._steps = {step.name: (number, step) for number, step in enumerate((*workflow.steps, workflow.end))}
        # All steps of a matrix are one subject, at the position of the first.
        self._first: dict[str, int] = {}
        for number, step in self._steps.values():
            self._first.setdefault(step.matrix_name or step.name, number)
        self._meanings: dict[str, tuple[Subject, tuple[Any, ...]]] = {}

    def meaning(self, key: str) -> tuple[Subject, tuple[Any, ...]]:
        """What the tally of this name counts, and its position in file and ladder."""
        if key not in self._meanings:
            step, below, rung, what = parse_tally_key(key)
            # A step that a corrected file added comes last, under its name. So do the calls of a program, together.
            number, definition = self._steps.get(step) or (len(self._steps), Step(name=name_of(step)))
            subject = definition.matrix_name or definition.name
            number = self._first.get(subject, number)
            is_rule = rung in ("retry", "script")
            # A script comes after the retry that it is for.
            order = (number, below, 0, int(what), rung) if is_rule else (number, below, RUNGS.index(rung), 0, what)
            words = _rule(_spec(definition, below), int(what)) if is_rule else what
            self._meanings[key] = Subject(self.workflow.name, subject, _command(below), rung, words), order
        return self._meanings[key]


class Counted(NamedTuple):
    """A tally of a run: what it counts says the workflow of the run, in its version."""

    run_id: int
    workflow: str
    version: str
    key: str
    tally: Tally


class RecoveryStats(NamedTuple):
    """Statistics of rungs and of agents, and how many runs were counted."""

    rungs: list[RungStats]
    agents: list[AgentStats]
    runs: int


def collect_stats(
    reader: RunReader, run_id: int | None = None, *, workflow: str | None = None, since: datetime | None = None
) -> RecoveryStats:
    """Statistics per workflow, step (or whole matrix) and rung: of one run, or of all runs that began since then.

    In the order of file and ladder. Steps that never failed are left out. A server keeps those of a large store for a
    moment, and counts them again while it answers.
    """
    if run_id is not None:
        counted = [one for one in _of_run(reader, run_id) if workflow in (None, one.workflow)]
        return _sum_up(reader.store, counted)
    if not reader.home.is_there:
        return RecoveryStats([], [], 0)
    # Those who ask for the last days ask for another moment each time.
    moment = None if since is None else since.replace(second=0, microsecond=0)
    return reader.counts.read(
        ("stats", reader.project, workflow, moment),
        lambda: _sum_up(reader.store, _of_all(reader.store.tallies(workflow, since))),
        lambda store: _sum_up(store, _of_all(store.tallies(workflow, since, reader.project))),
        lambda found: found.runs,
    )


def _sum_up(store: Store, counted: list[Counted]) -> RecoveryStats:
    runs = len({one.run_id for one in counted})
    return RecoveryStats(sum_tallies(store, counted), sum_agent_tallies(counted), runs)


def sum_tallies(store: Store, counted: Iterable[Counted]) -> list[RungStats]:
    """Statistics of these counters of runs, those of the newest run first, in the order of file and ladder."""
    sums: dict[Subject, _Sum] = {}
    versions: dict[tuple[str, str], _Pinned] = {}
    # What a tally counts is looked up once for each version: there may be a hundred thousand.
    known: dict[tuple[str, str, str], _Sum | None] = {}
    failed: Counter[tuple[str, str]] = Counter()
    for run_id, workflow, version, key, tally in counted:
        place = workflow, version, key
        if place not in known and failed[workflow, version] < UNREADABLE_MAX:
            try:
                known[place] = None
                if parse_tally_key(key)[2] not in OF_AGENTS:
                    # Newest first: for a step that moved, its position in the newest file counts.
                    subject, order = _pinned(store, run_id, (workflow, version), versions).meaning(key)
                    known[place] = sums.setdefault(subject, _Sum(order))
            except (CodecError, UnknownRun):
                # A run that is damaged, or was removed just now. Others of the version may be whole.
                del known[place]
                failed[workflow, version] += 1
        if (found := known.get(place)) is not None:
            found.add(run_id, tally)
    # An entry without a try: the run began under a release that did not count yet.
    lines = sorted(sums.items(), key=lambda line: (line[0].workflow, line[1].order))
    return [_rung_stats(subject, one) for subject, one in lines if one.tally.tried]


def sum_agent_tallies(counted: Iterable[Counted]) -> list[AgentStats]:
    """Statistics of agents from these counters of runs, by workflow and agent."""
    sums: dict[tuple[str, str], dict[str, _Sum]] = {}
    rungs: dict[str, tuple[str, str]] = {}
    for run_id, workflow, _, key, tally in counted:
        if key not in rungs:
            rungs[key] = "", ""
            with suppress(CodecError):
                rungs[key] = parse_tally_key(key)[2:]
        rung, agent = rungs[key]
        if rung in OF_AGENTS:
            found = sums.setdefault((workflow, agent), {name: _Sum(()) for name in OF_AGENTS})
            found[rung].add(run_id, tally)
    return [_agent_stats(*subject, found) for subject, found in sorted(sums.items())]


def _agent_stats(workflow: str, agent: str, found: dict[str, _Sum]) -> AgentStats:
    decided, suggested, overruled, unanswered = (found[name].tally for name in OF_AGENTS)
    wrong = decided.judged - decided.worked
    return AgentStats(
        workflow,
        agent,
        runs=len(set().union(*(one.run_ids for one in found.values()))),
        decisions=decided.tried,
        right=decided.worked,
        failed_again=wrong - overruled.tried,
        overruled=overruled.tried,
        share=round(decided.worked / decided.judged, 4) if decided.judged else None,
        suggestions=suggested.tried,
        followed=suggested.worked,
        not_followed=suggested.judged - suggested.worked,
        unanswered=unanswered.tried,
    )


def describe_rung(line: RungStats) -> str:
    """The rung in words: `retry, exit codes 10, 11 (command 2 of each item)`."""
    return _WORDS[line.rung].format(line.what) + (f" ({line.command})" if line.command else "")


_WORDS = {
    "retry": "retry, {}",
    "script": "recovery script, {}",
    "handle": "{} handler",
    "triage": "triage",
    "route": "route to '{}'",
}


# -- reading ---------------------------------------------------------------------------------------------------------


def _of_run(reader: RunReader, run_id: int) -> list[Counted]:
    record = reader.record(run_id)
    rows = reader.store.load(run_id).rows
    return [
        Counted(run_id, record.workflow, record.version, key, read_tally(data))
        for kind, key, _, data in rows
        if kind == "tallies" and data is not None
    ]


def _of_all(rows: Iterable[tuple[int, str, str, str, bytes]]) -> list[Counted]:
    """What can be read of it: a damaged row of one run must not keep the others from being counted."""
    found: list[Counted] = []
    for run_id, workflow, version, key, data in rows:
        if isinstance(data, bytes) and all(isinstance(one, str) for one in (workflow, version, key)):
            with suppress(CodecError):
                found.append(Counted(run_id, workflow, version, key, read_tally(data)))
    return found


def _pinned(store: Store, run_id: int, version: tuple[str, str], versions: dict[tuple[str, str], _Pinned]) -> _Pinned:
    """The workflow as the run has it: read once per version."""
    if version not in versions:
        versions[version] = _Pinned(decode(store.load(run_id).workflow))
    return versions[version]


# -- wording ---------------------------------------------------------------------------------------------------------


def _rung_stats(subject: Subject, one: _Sum) -> RungStats:
    tally = one.tally
    return RungStats(
        **subject._asdict(),
        runs=len(one.run_ids),
        tried=tally.tried,
        worked=tally.worked,
        share=round(tally.worked / tally.tried, 4),
        average_seconds=round(tally.seconds / tally.judged, 3) if tally.judged else None,
    )


def _rule(spec: Command | None, index: int) -> str:
    """A rule by what it looks for; by its number if that is not known."""
    if spec is None or index >= len(spec.rules):
        return f"rule {index + 1}"
    rule = spec.rules[index]
    return f"pattern {describe_rule(rule)}" if rule.pattern is not None else describe_rule(rule)


def _spec(step: Step, below: tuple[str, ...]) -> Command | None:
    """The definition of a command; None below a script or a tool, since the name does not say which one it is."""
    found: Command | None = step
    for role, index in _way(below):
        try:
            found = (
                None
                if found is None or role in ("script", "tool", "tool_list")
                else spec_below(found, step, role, index)
            )
        except IndexError:
            # A corrected file has more of them.
            found = None
    return found


def _command(below: tuple[str, ...]) -> str:
    """The position of a command: `command 2 of its handler of command 1 of each item`; "" for the step itself."""
    named = (
        f"command {index + 1} of {_BELOW[role]}" if role in _BELOW else f"its {role.replace('_', ' ')}"
        for role, index in _way(below)
    )
    return " of ".join(reversed(list(named)))


def _way(below: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The way from a step down to one of its commands: the role and the number at each level."""
    words = iter(below)
    for word in words:
        if word.isdecimal():
            yield "do", int(word)
        else:
            yield _ROLES.get(word, word), int(next(words)) if word in _ROLES else 0
