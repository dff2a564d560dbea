"""Decides one recorded run again with another definition."""

from __future__ import annotations

from typing import Any

from mulligan.analysis.whatif.continuing import Continuation
from mulligan.analysis.whatif.following import Follower
from mulligan.analysis.whatif.knowledge import Draw, Knowledge
from mulligan.analysis.whatif.played_history import Children, PlayedHistory, Undecidable, no_children
from mulligan.analysis.whatif.reasons import failure_before, step_of, why
from mulligan.analysis.whatif.recording import Recording
from mulligan.core.model import events as e
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import END
from mulligan.core.state.scope import Evaluator


def redecide(
    recording: Recording,
    graph: Graph,
    evaluator: Evaluator,
    *,
    knowledge: Knowledge | None,
    draw: Draw,
    children: Children = no_children,
    inputs: dict[str, Any] | None = None,
) -> PlayedHistory:
    """Decide a run again: its history to the end. Raises `Undecidable`; without knowledge also `KnowledgeNeeded`.

    `inputs`: what the run gets in place of its recorded inputs: the new definition may have more of them.
    """
    _refuse_removed_steps(recording, graph)
    history = PlayedHistory(recording, graph, evaluator, knowledge=knowledge, draw=draw, children=children)
    follower = Follower(history, inputs)
    follower.follow()
    history.followed = follower.next
    if (divergence := history.divergence) is not None:
        failure = failure_before(divergence, recording.entries, follower.next)
        then = recording.entries[follower.next : follower.next + 50]
        history.step, history.why = step_of(divergence), why(divergence, follower.parted, then, failure)
        Continuation(history, follower).play()
    return history


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
