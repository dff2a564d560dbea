"""The context of an agent: failures and outputs that came before it, gathered from the state and rendered as text.

A task carries the parts, and its worker renders the text, since an output may be an artifact that only a worker can
fetch. Equal parts give equal text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any

import msgspec

from mulligan.core.evolve.evolve_places import is_agent
from mulligan.core.model.artifacts import describe_dropped, find_dropped
from mulligan.core.model.failure_context import (
    UPSTREAM_OUTPUTS_MAX,
    ContentType,
    FailedSource,
    RetrySummary,
    UpstreamOutput,
    assemble,
    failure_context,
    own_context,
)
from mulligan.core.model.workflow import END, Command
from mulligan.core.state.scope import failed_sources, nearest_failure
from mulligan.core.state.state import Place, State


class PriorOutput(msgspec.Struct, frozen=True):
    """The output of an earlier step. The seqs are those of the events that recorded it."""

    step: str
    visit: int
    attempt: int
    entered_seq: int
    output_seq: int
    given_at: datetime
    output: Any


class AgentContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of an agent's context, in the order of the text. `failed` is oldest first."""

    target: str
    failed: tuple[FailedSource, ...] = ()
    outputs: tuple[PriorOutput, ...] = ()
    summary: RetrySummary | None = None
    # Whether anything that looks like a credential is hidden.
    hides: bool = True

    def failure_text(self, run_id: int) -> str:
        """The text of the failures alone, which is all that a step without an agent gets."""
        return failure_context(run_id, self.target, self.failed, self.hides)

    def text(self, run_id: int, own: Any = None) -> str:
        """The whole text. `own`, the context written in the workflow, follows the failures. Empty parts are omitted."""
        outputs = [_as_upstream_output(one) for one in self.outputs]
        theirs = "" if own in (None, "", [], {}) else own_context(run_id, self.target, *_as_text(own))
        return assemble(
            run_id,
            self.target,
            failed=self.failed,
            upstream=outputs,
            summary=self.summary,
            own=theirs,
            hides=self.hides,
        ).text

    def with_outputs(self, fetch: Callable[[Any], Any]) -> AgentContext:
        """The same context with each output replaced by `fetch(output)`: a worker fetches artifacts this way."""
        outputs = (msgspec.structs.replace(one, output=fetch(one.output)) for one in self.outputs)
        return msgspec.structs.replace(self, outputs=tuple(outputs))


def _as_upstream_output(one: PriorOutput) -> UpstreamOutput:
    text, kind = _as_text(_answer_text(one.output))
    return UpstreamOutput(
        one.step,
        one.visit,
        attempt=one.attempt,
        entered_seq=one.entered_seq,
        output_seq=one.output_seq,
        created_at=one.given_at,
        content=text,
        content_type=kind,
    )


# The keys of an agent's answer that holds nothing but a text. Of the optional ones `json` repeats the text.
_ANSWER_KEYS = {"content", "decision", "tokens"}
_OPTIONAL_ANSWER_KEYS = {"json", "cost", "calls", "turns", "model"}


def _answer_text(output: Any) -> Any:
    """The text of an agent's answer, which is easier to read than its JSON; other outputs as they are."""
    is_answer = isinstance(output, dict) and _ANSWER_KEYS <= output.keys() <= _ANSWER_KEYS | _OPTIONAL_ANSWER_KEYS
    return output["content"] if is_answer and isinstance(output["content"], str) else output


def _is_blank(output: Any) -> bool:
    text = _answer_text(output)
    return isinstance(text, str) and not text.strip()


def _as_text(value: Any) -> tuple[str, ContentType]:
    return (value, "text") if isinstance(value, str) else (msgspec.json.encode(value).decode(), "json")


# -- gathering -------------------------------------------------------------------------------------------------------


def agent_context(state: State, place: Place) -> AgentContext:
    """The context for an agent at `place`, which is a step or belongs to one."""
    step = state.step_of(place)
    failed = failed_sources(state, step)
    handled = _failure_to_handle(state, place)
    outputs = _prior_outputs(state, step.key) if reads_upstream(place.spec) else ()
    before = islice(chain(_rejected_output(state, place), outputs), UPSTREAM_OUTPUTS_MAX)
    return AgentContext(
        target=place.key,
        failed=(*failed, *((handled,) if handled else ())),
        outputs=tuple(map(_with_dropped_described, before)),
        summary=place.climb.summary,
        hides=state.workflow.hide_credentials,
    )


def _with_dropped_described(one: PriorOutput) -> PriorOutput:
    """The output of an earlier step; if it was not kept, the words that say so. The agent did not ask for it."""
    dropped = find_dropped(one.output)
    return one if dropped is None else msgspec.structs.replace(one, output=f"[{describe_dropped(dropped)}]")


def reads_upstream(spec: Command) -> bool:
    """Whether the agent gets the outputs of earlier steps; with `upstream: false` its prompt has them already."""
    return spec.action is not None and is_agent(spec) and spec.action.params.get("upstream") is not False


def _failure_to_handle(state: State, place: Place) -> FailedSource | None:
    """The failure that a handler, recovery script or triager was started for, if the place is or belongs to one."""
    helper = _helper(state, place)
    failure = nearest_failure(state, place) if helper else None
    if helper is None or failure is None:
        return None
    failing = state.places[helper.parent]
    return FailedSource(
        step=failing.key,
        visit=state.step_of(failing).visit,
        attempt=failing.attempt,
        max_retries=failing.spec.retries_max,
        retries_used=sum(failing.climb.retries.values()),
        reason=failing.climb.verdict or ("retry_scheduled" if helper.role == "script" else ""),
        failure=failure,
        entered_seq=failing.entered_seq,
        failure_seq=failing.climb.failure_seq,
        failed_at=failure.at or state.run.at,
        summary=failing.climb.summary,
    )


_HELPERS = ("handler", "script", "triager")


def _helper(state: State, place: Place) -> Place | None:
    """The handler command, recovery script or triager that the place is or belongs to."""
    return next((above for above in state.ancestors(place) if above.role in _HELPERS), None)


def _rejected_output(state: State, place: Place) -> Iterator[PriorOutput]:
    """The rejected output of the attempt that a handler or script is to repair."""
    helper = _helper(state, place)
    failing = state.places[helper.parent] if helper else None
    if failing is not None and failing.failure is not None and failing.climb.rejected is not None:
        visit, seq, at = state.step_of(failing).visit, failing.climb.failure_seq, failing.failure.at or state.run.at
        yield PriorOutput(
            step=failing.key,
            visit=visit,
            attempt=failing.attempt,
            entered_seq=failing.entered_seq,
            output_seq=seq,
            given_at=at,
            output=failing.climb.rejected,
        )


def _prior_outputs(state: State, step: str) -> Iterator[PriorOutput]:
    """The outputs of earlier steps, each once: needed steps in the order of `needs`, then sources of the edges taken.

    An empty answer says nothing, and does not take the place of another output.
    """
    for name in dict.fromkeys((*_needed_steps(state, step), *_arrived_steps(state, step))):
        place = state.places[name]
        if place.output is not None and place.given is not None and not _is_blank(place.output):
            seq, at = place.given
            yield PriorOutput(
                step=name,
                visit=place.visit,
                attempt=place.attempt,
                entered_seq=place.entered_seq,
                output_seq=seq,
                given_at=at,
                output=place.output,
            )


def _needed_steps(state: State, step: str) -> Iterator[str]:
    workspace = state.workflow.workspace
    for need in () if step == END else state.graph.nodes[step].step.needs:
        if workspace is not None and need.of == workspace.opens:
            continue
        yield from state.workflow.groups[need.of] if need.is_group else (need.of,)


def _arrived_steps(state: State, step: str) -> list[str]:
    """The steps whose edges led here. Loop edges are not among the arrivals of the graph: `loops_taken` has them."""
    if step == END:
        return []
    nodes = state.graph.nodes
    arrivals = [arc.source for arc in nodes[step].arrivals if state.arcs.get(arc.key) in ("arrived", "taken")]
    return sorted({*arrivals, *_looped_steps(state, step)}, key=lambda name: nodes[name].order)


def _looped_steps(state: State, step: str) -> Iterator[str]:
    for key in state.run.loops_taken:
        source, _, index = key.rpartition("#")
        if state.graph.arc(source, int(index)).to == step:
            yield source
