"""Runs that cannot be read: what is wrong with one, and leaving them out where many runs are read together.

The log, the tables or the definition of a run may be damaged by a disk or a hand, or be written by a newer release.
Such a run is named wherever it is asked for (`RunDamaged`), hides no other run, and can be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from mulligan.core.effects.snapshot import restore
from mulligan.core.model.events import Entry
from mulligan.core.model.graph import Graph
from mulligan.core.model.text.formatting import single_line
from mulligan.core.model.workflow import decode
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.turn import fold
from mulligan.engine.integrity import refuse_damaged
from mulligan.errors import (
    CodecError,
    IllegalTransition,
    MulliganError,
    Refused,
    RunDamaged,
    RunNotFinished,
    StoreUnavailable,
    UnknownRun,
)
from mulligan.ports import RunRecord, Store
from mulligan.service.runs.stored.run_reader import PAGE, RunReader

# How many runs are looked at for the one that an error is about: those that were named, and those that they called.
EXAMINED_MAX = 200
HINT = (
    "restore the store from a copy, or read it with the release that wrote it; to remove the run: mulligan remove {0}"
)

Value = TypeVar("Value")


class RemovedRuns(msgspec.Struct, frozen=True):
    """The runs that were removed, and what was wrong with them."""

    run_ids: list[int]
    damage: str = ""


def readable_runs(reader: RunReader, run_ids: Iterable[int], read: Callable[[int], Value]) -> Iterator[Value]:
    """What `read` gives of each run. Damaged runs are left out; any other error is raised."""
    for run_id in run_ids:
        try:
            value = read(run_id)
        except Exception as error:
            if explain_damage(reader, [run_id], error) is None:
                raise
            continue
        yield value


def explain_damage(
    reader: RunReader, run_ids: Iterable[int] | None, error: Exception
) -> RunDamaged | UnknownRun | None:
    """The error in place of another one, if that comes from one of these runs, or one that they called, being damaged.

    Or from its removal while it was read. Without run ids, of those that a person has named. None if all of them can be
    read: then it is a bug, or about something else.
    """
    if isinstance(error, RunDamaged):
        return error
    if not may_be_damage(error):
        return None
    run_ids = reader.named_runs if run_ids is None else [*run_ids]
    if removed := next(filter(None, (_removal(reader, run_id) for run_id in run_ids)), None):
        return removed
    for run_id in _with_children(reader.store, run_ids) if run_ids else ():
        # To read a log again takes long, and whoever may read can ask again and again.
        records = reader.store.lists.records([run_id])
        damage = next((known for one in records if (known := reader.known_damage(run_id, one.updated_at))), "")
        if not damage and (damage := find_damage(reader.store, run_id)):
            reader.note_damage(run_id, damage)
        if damage:
            return RunDamaged(
                f"run {run_id} is damaged: {single_line(damage)}", hint=HINT.format(run_id), run_id=run_id
            )
    return None


def may_be_damage(error: Exception) -> bool:
    """Whether an error may come from a damaged run. Ours that say something else do not."""
    return not isinstance(error, MulliganError) or isinstance(error, CodecError | IllegalTransition | RunDamaged)


def _removal(reader: RunReader, run_id: int) -> UnknownRun | None:
    """What to say of a run that is gone; None if it is there, whether it can be read or not."""
    try:
        reader.record(run_id)
    except UnknownRun as error:
        return error
    except Exception:
        return None  # it is damaged
    return None


def remove_run(reader: RunReader, run_id: int, *, is_dry: bool = False) -> RemovedRuns:
    """Remove a run that has ended, or that is damaged, with the runs that it called. Its files are left to `gc`."""
    if reader.home.is_remote:
        from mulligan.service.server import server_changes

        return server_changes.ask(reader.home, "DELETE", f"runs/{run_id}", RemovedRuns, dry_run=is_dry)
    record, store = reader.record(run_id), reader.store
    if record.root_run_id not in (0, run_id) and store.lists.records([record.root_run_id]):
        message = f"run {run_id} is a part of run {record.root_run_id}, which called it"
        raise Refused(message, hint=f"remove that one: mulligan remove {record.root_run_id}", run_id=run_id)
    tree = [*_with_children(store, [run_id], examined_max=None)]
    damage = next((found for one in tree if (found := find_damage(store, one))), "")
    going = store.lists.records(tree)
    open_ = next((one for one in going if one.status not in RUN_ENDED), None)
    if open_ is not None and not damage:
        message = f"run {run_id} has not ended: it is {'running' if open_.status == 'new' else open_.status}"
        raise RunNotFinished(message, hint=f"cancel it first: mulligan cancel {run_id}", run_id=run_id)
    if is_dry:
        return RemovedRuns(sorted(tree), damage)
    removed = store.remove([run_id], is_forced=bool(damage))
    if not removed and reader.store.lists.records([run_id]):
        raise Refused(f"run {run_id} is in use", hint="try again in a moment", run_id=run_id)
    return RemovedRuns(removed, damage)


def find_damage(store: Store, run_id: int) -> str:
    """What is wrong with the log, the tables, the inbox or the definition of a run; "" if all of it can be read."""
    try:
        record = store.run(run_id)
        if record.damage:
            return record.damage
        loaded = store.load(run_id)
        workflow = decode(loaded.workflow)
        graph = Graph(workflow)
        refuse_damaged(loaded.record, restore(workflow, loaded.rows, graph))
        store.inbox([run_id])
        _check_log(store, loaded.record, Graph(workflow))
    except (UnknownRun, StoreUnavailable):
        # It was removed meanwhile, or nobody can say.
        return ""
    except MulliganError as error:
        return error.message
    except Exception as error:
        # It can be read, and does not fit together: anything may follow from that.
        words = " ".join(str(error).split())
        return f"its parts do not fit together ({type(error).__name__}{f': {words}' if words else ''})"
    return ""


def _check_log(store: Store, record: RunRecord, graph: Graph) -> None:
    """Raise if a part of the log is missing or cannot be followed. The run may have gone on meanwhile."""
    state = fold(graph.workflow, _whole_log(store, record.run_id), graph)
    if state.run.seq < record.seq:
        raise CodecError(f"its log ends with event {state.run.seq}, and its row with event {record.seq}")


def _whole_log(store: Store, run_id: int) -> Iterator[Entry]:
    last = 0
    while page := store.log(run_id, last, PAGE):
        for entry in page:
            if entry.seq != last + 1:
                raise CodecError(f"its log has no event {last + 1}")
            last = entry.seq
            yield entry


def _with_children(store: Store, run_ids: Iterable[int], *, examined_max: int | None = EXAMINED_MAX) -> Iterator[int]:
    """These runs, and those that they called."""
    waiting, known = list(run_ids), set[int]()
    while waiting and (examined_max is None or len(known) < examined_max):
        run_id = waiting.pop(0)
        if run_id not in known:
            known.add(run_id)
            yield run_id
            waiting += (child.run_id for child in store.children(run_id))
