"""Decides one recorded run again with another definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.analysis.whatif.continuing import Continuation
from mulligan.analysis.whatif.following import Follower
from mulligan.analysis.whatif.judging import Doubt
from mulligan.analysis.whatif.knowledge import Draw, Knowledge, Share, Subject
from mulligan.analysis.whatif.played_history import Children, Evidence, PlayedHistory, Undecidable, no_children
from mulligan.analysis.whatif.reasons import failure_before, step_of, why
from mulligan.analysis.whatif.recording import Counts, Recording, end_of
from mulligan.core.model import events as e
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import END
from mulligan.core.state.scope import Evaluator
from mulligan.core.state.state import State


class Redecided(msgspec.Struct):
    """How a run goes under another definition."""

    state: State
    status: str
    counts: Counts
    # "" if it goes exactly as recorded.
    step: str
    why: str
    by: Evidence
    # How outcomes were found: as recorded, as recorded under other conditions, drawn.
    facts: int
    assumed: Counter[Doubt]
    estimated: Counter[Doubt]
    drawn: Counter[Subject]
    shares: Mapping[Subject, Share]
    # How many recorded entries are the same.
    followed: int

    @property
    def goes_another_way(self) -> bool:
        return bool(self.why)


def redecide(
    recording: Recording,
    graph: Graph,
    evaluator: Evaluator,
    *,
    knowledge: Knowledge | None,
    draw: Draw,
    children: Children = no_children,
    inputs: dict[str, Any] | None = None,
) -> Redecided:
    """Decide a run again. Raises `Undecidable`; without knowledge also `KnowledgeNeeded`.

    `inputs`: what the run gets in place of its recorded inputs: the new definition may have more of them.
    """
    _refuse_removed_steps(recording, graph)
    history = PlayedHistory(recording, graph, evaluator, knowledge=knowledge, draw=draw, children=children)
    follower = Follower(history, inputs)
    follower.follow()
    divergence = history.divergence
    if divergence is None:
        return _result(history, follower, "", "")
    failure = failure_before(divergence, recording.entries, follower.next)
    phrase = why(divergence, follower.parted, recording.entries[follower.next : follower.next + 50], failure)
    Continuation(history, follower).play()
    return _result(history, follower, step_of(divergence), phrase)


def _result(history: PlayedHistory, follower: Follower, step: str, phrase: str) -> Redecided:
    return Redecided(
        state=history.state,
        status=end_of(history.state),
        counts=history.counter.counts,
        step=step,
        why=phrase,
        by=history.by,
        facts=history.facts,
        assumed=history.assumed,
        estimated=history.estimated,
        drawn=history.drawn,
        shares=history.shares,
        followed=follower.next,
    )


def _refuse_removed_steps(recording: Recording, graph: Graph) -> None:
    """A step that ran and is not there any more: what else would have done its work is not known."""
    if recording.graph is graph:
        return
    gone = recording.graph.nodes.keys() - graph.nodes.keys()
    for entry in recording.entries if gone else ():
        fact = entry.fact
        entered = fact.step if isinstance(fact, e.StepEntered) else ""
        kept = [one.step for one in fact.kept] if isinstance(fact, e.RunStarted) else []
        for step in (entered, *kept):
            if step in gone and step != END:
                raise Undecidable("step_gone", step)
