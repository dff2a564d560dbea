"""What would follow from a change of a run: the core decides it on a copy of the state, and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from mulligan.core.deciding.report_checks import check_report
from mulligan.core.effects.snapshot import changes as row_changes
from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.state import State
from mulligan.core.turn import turn
from mulligan.engine.crash_answers import REPORT_IT
from mulligan.errors import InputInvalid, MulliganError
from mulligan.history.item_names import PlaceNames
from mulligan.history.story import story
from mulligan.language.expressions import Cel
from mulligan.service.runs.changes.answers import ChangeResult, shown_status
from mulligan.service.runs.stored.run_reader import RunReader

# How much of an error is said.
MESSAGE_CHARS_MAX = 500
# How many sentences and attempts an answer has at most; a run may have ten thousand steps.
LINES_MAX = 200


def preview_change(reader: RunReader, run_id: int, report: r.Report) -> ChangeResult:
    """What would follow from a report. Writes nothing; raises what the core would raise."""
    state, before, entries = try_report(reader, run_id, report)
    lists = (
        _sentences(state, entries),
        [one for one in startable_attempts(state) if one not in before],
        [*_stopped(state, entries)],
        [*_running(state)],
    )
    follows, starts, stops, still_running = (one[:LINES_MAX] for one in lists)
    return ChangeResult(
        run_id=run_id,
        dry_run=True,
        status=shown_status(state.run.status),
        follows=follows,
        starts=starts,
        stops=stops,
        still_running=still_running,
        left_out=sum(max(0, len(one) - LINES_MAX) for one in lists),
    )


def try_report(reader: RunReader, run_id: int, report: r.Report) -> tuple[State, frozenset[str], list[e.Entry]]:
    """The state after a report, which attempts could have started before it, and what has followed.

    Raises what the core would raise if the run took up the report as it is now.
    """
    check_report(report)
    evaluator = Cel(os.environ, reader.store.artifacts.fetch)
    state = _current_state(reader, run_id, evaluator)
    before = frozenset(startable_attempts(state))
    try:
        entries = turn(state, report, evaluator)
        row_changes(state)
    except MulliganError:
        raise
    except Exception as error:
        # The run would refuse it, after a while.
        said = f"{type(error).__name__}: {error}"[:MESSAGE_CHARS_MAX]
        raise InputInvalid(f"run {run_id} cannot process this: engine_error: {said}", hint=REPORT_IT) from error
    state.commit()
    return state, before, entries


def _current_state(reader: RunReader, run_id: int, evaluator: Cel) -> State:
    """The state of a run. One that no worker has taken yet is started first, as its inbox asks."""
    state = reader.state(run_id)
    if state.run.status == "new":
        for message in reader.store.inbox([run_id]):
            if isinstance(message.report, r.RunRequested):
                turn(state, message.report, evaluator)
                state.commit()
    return state


def _sentences(state: State, entries: Iterable[e.Entry]) -> list[str]:
    names, lines = PlaceNames(), (line for line in story(entries, state.workflow) if not line.is_detail)
    return [f"{names.name(state, line.place)}: {line.text}" if line.place else line.text for line in lines]


def startable_attempts(state: State) -> Iterator[str]:
    """The attempts that a worker may take."""
    if state.run.status in ("running", "new"):
        names = PlaceNames()
        for place in state.places.values():
            if place.status == "ready" and not is_engine_action(place.spec) and not is_on_hold(state, place):
                yield f"{names.name(state, place.key)}: attempt {place.attempt}"


def _stopped(state: State, entries: Iterable[e.Entry]) -> Iterator[str]:
    """The attempts that are asked to end, or end at once since they have not begun."""
    names = PlaceNames()
    for fact in (entry.fact for entry in entries):
        if isinstance(fact, e.AttemptStopping | e.AttemptCancelled):
            yield f"{names.name(state, fact.place)}: attempt {fact.attempt}"


def _running(state: State) -> Iterator[str]:
    names = PlaceNames()
    for place in state.places.values():
        is_own = place.status == "running" and not place.child and not place.phase
        if is_own and not is_engine_action(place.spec):
            yield f"{names.name(state, place.key)}: attempt {place.attempt}"
