"""The errors that all stores raise, in the same words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from mulligan.core.effects.tasks import Task
from mulligan.errors import (
    CodecError,
    Conflict,
    KeyUsed,
    RevisionMismatch,
    StaleLease,
    StoreRefused,
    UnknownArtifact,
    UnknownRun,
)
from mulligan.ports import Commit, ServerRecords


def unknown_run(run_id: int) -> UnknownRun:
    return UnknownRun(f"there is no run {run_id}", run_id=run_id)


def unknown_artifact(name: str) -> UnknownArtifact:
    return UnknownArtifact(f"there is no artifact '{name}'", name=name)


def no_workflow(run_id: int) -> CodecError:
    return CodecError(f"the workflow of run {run_id} is missing in the store", hint="restore the store from a copy")


def unknown_holder(name: str) -> Conflict:
    return Conflict(f"worker '{name}' is not registered, so it cannot hold a turn", worker=name)


def key_used(key: str, run_id: int) -> KeyUsed:
    return KeyUsed(f"run {run_id} was started under the key '{key}'", run_id=run_id)


def key_forgotten() -> Conflict:
    return Conflict("the run that was started under this key has just been removed")


def revision_mismatch(kind: str, name: str, expected: int, found: int) -> RevisionMismatch:
    if not found:
        message = f"there is no {kind} '{name}' any more: it was removed meanwhile"
    elif not expected:
        message = f"there is a {kind} '{name}' already, at revision {found}"
    else:
        message = f"{kind} '{name}' is at revision {found}, not {expected}: it was changed meanwhile"
    return RevisionMismatch(message, hint="read it again and repeat the change", revision=found)


def stale_lease(token: int) -> StaleLease:
    return StaleLease(f"lease {token} is void: it has ended, or its worker has expired", token=token)


def void_turn(commit: Commit) -> Conflict:
    turn = commit.turn
    return Conflict(
        f"the turn of run {turn.run_id} is void: '{turn.holder}' no longer has it, "
        f"or its log has grown behind {commit.after}",
        run_id=turn.run_id,
    )


def void_lease(commit: Commit) -> Conflict:
    return Conflict(f"run {commit.turn.run_id} has an ended task whose lease is void", run_id=commit.turn.run_id)


def not_free(task: Task) -> Conflict:
    return Conflict(
        f"task '{task.place}' (attempt {task.attempt}) of run {task.run_id} is no longer free", run_id=task.run_id
    )


def unexpected(commits: Sequence[Commit], what: str) -> Conflict:
    """The error for a batch with a void turn or lease, or a task that is not free."""
    if len(commits) > 1:
        return Conflict(f"a {what} in a batch of {len(commits)} runs is void: commit them one at a time")
    if what == "turn":
        return void_turn(commits[0])
    return void_lease(commits[0]) if what == "lease" else not_free(commits[0].taken[0])


def check_batch(commits: Sequence[Commit]) -> None:
    """Refuse two turns of one run, since the second would depend on unwritten data, and a task that is taken twice."""
    seen: set[int] = set()
    for commit in commits:
        run_id, taken = commit.turn.run_id, commit.taken
        if run_id in seen:
            raise Conflict(f"run {run_id} appears twice in one batch", run_id=run_id)
        seen.add(run_id)
        if len(taken) > 1 and len({(task.place, task.attempt) for task in taken}) < len(taken):
            raise Conflict(f"run {run_id} takes a task twice", run_id=run_id)


def only_the_whole_store() -> StoreRefused:
    return StoreRefused("only the server itself does this", hint="it needs no help from here")


def only_of_the_whole_store(name: str, refusal: StoreRefused | None = None) -> Callable[..., NoReturn]:
    """Stands for a method of `ServerRecords` that a part of a store does not have: refuses to be called."""
    if not hasattr(ServerRecords, name):
        raise AttributeError(name)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise refusal or only_the_whole_store()

    return refuse
