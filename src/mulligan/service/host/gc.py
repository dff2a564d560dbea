"""Garbage collection: removes artifacts, logs and files that no run refers to, and ended runs on request.

The order keeps active runs safe: first everything on disk is listed, then runs are removed, then the store is asked
which runs there are and what they refer to. What is newer than the list is not touched; and each artifact on the list
comes from a run that the store knows by then.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from mulligan.cache_folder import cache_folder
from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import KEY_AS_JSON, attempt_folder_of, parse_reference, references, run_id_of
from mulligan.core.model.events import RunStarted
from mulligan.core.model.text.formatting import error_reason
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import ArtifactDamaged, CodecError, Refused, StoreRefused
from mulligan.ports import ArtifactRecord, RunRecord
from mulligan.service.home import DATABASE
from mulligan.service.host.lost_runs import find_lost_runs
from mulligan.service.host.object_places import object_records, remove_objects
from mulligan.service.runs.changes.run_worktrees import (
    belongs_to,
    discard_removed,
    note_removal,
    run_id_of_worktree,
    worktrees_of,
)
from mulligan.service.runs.stored.run_reader import PAGE, RunReader
from mulligan.service.server.remote_run_folders import abandoned_run_folders
from mulligan.service.server.retention import remove_all_old
from mulligan.service.server.server_config import find_config
from mulligan.worker import lock
from mulligan.worker.environments.environment_cache import REQUESTS, find_unused, remove_unused
from mulligan.worker.folders import remove_folder
from mulligan.worker.outputs.output_storage import artifact_folder_of

# Younger files may belong to an attempt that is just ending, or to a worker that is just starting.
YOUNG = timedelta(hours=1)
# Environments of python steps are built again when they are needed, so old ones need no flag to be removed.
UNUSED_SECONDS = 30 * 24 * 3600.0
# How many runs are removed in one transaction, so that other processes can write in between.
REMOVED_AT_ONCE = 50


class Garbage(msgspec.Struct, frozen=True):
    """Something that is removed: its name, and its size in bytes."""

    name: str
    size: int


class GarbageReport(msgspec.Struct, frozen=True):
    """What was removed; or, in a dry run, what would be removed."""

    is_dry: bool
    runs: list[int]
    artifacts: list[Garbage]
    half_written: list[Garbage]
    # By the number of the run.
    logs: list[Garbage]
    workers: list[Garbage]
    # Environments of python steps: in the cache of the user, which all homes share.
    environments: list[Garbage] = []
    # Why logs were not examined; "" if they were.
    left: str = ""
    # Runs that the database does not have and has not removed, so that their files stay.
    lost: list[int] = []
    # Git worktrees of removed runs and of their items. Their branches go with them.
    worktrees: list[Garbage] = []
    # Old rows of the store besides runs, by table. A dry run does not count them.
    rows: dict[str, int] = {}
    # Artifacts that are objects in a bucket; and the places that could not be looked at, and why.
    objects: list[Garbage] = []
    unread: dict[str, str] = {}

    @property
    def size(self) -> int:
        files = (self.artifacts, self.half_written, self.logs, self.workers, self.environments, self.worktrees)
        return sum(one.size for kind in (*files, self.objects) for one in kind)


class RunRetention(msgspec.Struct, frozen=True):
    """Which ended runs are removed: those beyond the `keep` newest that ended long enough ago. None: no limit."""

    older_than_seconds: float | None = None
    keep: int | None = None

    @property
    def is_none(self) -> bool:
        return self.older_than_seconds is None and self.keep is None

    def chosen(self, runs: Iterable[RunRecord], now: datetime) -> list[int]:
        """The top-level runs to remove, of `runs` in the order newest first."""
        if self.is_none:
            return []
        ended_before = now - timedelta(seconds=self.older_than_seconds or 0.0)
        roots = [run for run in runs if run.parent_run_id is None][self.keep or 0 :]
        return [run.run_id for run in roots if run.status in RUN_ENDED and run.updated_at <= ended_before]


def collect_garbage(
    reader: RunReader, retention: RunRetention, *, unused_seconds: float = UNUSED_SECONDS, is_dry: bool = False
) -> GarbageReport:
    """Remove garbage, or in a dry run list it. Environments are garbage after `unused_seconds` without use."""
    if reader.home.is_remote:
        raise Refused(
            "what no run refers to can only be removed where it is",
            hint="run 'mulligan gc' on the host of the server, with its --home",
        )
    cache = cache_folder(os.environ, str(reader.home.folder))
    with _removal_errors():
        environments = list(_remove_environments(cache, unused_seconds, is_dry))
        elsewhere = list(_remove_runs_of_servers(reader.home.folder, is_dry))
    if not reader.home.is_there:
        return GarbageReport(is_dry, [], [], [], [], elsewhere, environments)
    collected = _Collection(reader, is_dry).collect(retention, environments)
    return msgspec.structs.replace(collected, workers=[*collected.workers, *elsewhere])


def _remove_runs_of_servers(home: Path, is_dry: bool) -> Iterator[Garbage]:
    """Remove what remote workers of this home have left of runs of their servers, if none of them runs."""
    for path in abandoned_run_folders(home, time.time()):
        size = _folder_size(path)
        if not is_dry:
            shutil.rmtree(path)
        yield Garbage(str(path.relative_to(home)), size)


def _remove_environments(cache: str, unused_seconds: float, is_dry: bool) -> Iterator[Garbage]:
    """Remove what no process uses. What was resolved for an environment goes with it, and is not worth a line."""
    for path in map(Path, find_unused(cache, unused_seconds)):
        size = _folder_size(path)
        if remove_unused(str(path), unused_seconds, is_dry=is_dry) and path.parent.name != REQUESTS:
            yield Garbage(path.name, size)


class _Collection:
    """One garbage collection."""

    def __init__(self, reader: RunReader, is_dry: bool) -> None:
        self._home, self._store = reader.home, reader.store
        self._artifacts = reader.store.artifacts
        self._worktrees = reader.home.folder / "worktrees"
        self._is_dry = is_dry
        self._now = datetime.now(UTC)

    def collect(self, retention: RunRetention, environments: list[Garbage]) -> GarbageReport:
        listed = sorted((one for one in self._artifacts.records() if run_id_of(one.name)), key=lambda one: one.name)
        unread: dict[str, str] = {}
        objects = object_records(self._store, unread)
        folders = self._run_folders()
        gone, worktrees = self._remove_runs(retention)
        runs = {run.run_id: run for run in self._runs() if run.run_id not in gone}
        numbers = {*folders, *(run_id_of(one.name) for kept in (listed, *objects.values()) for one in kept)}
        lost = find_lost_runs(self._home, self._store, numbers - runs.keys() - gone)
        listed = [one for one in listed if run_id_of(one.name) not in lost]
        orphans = self._orphans([record for record in listed if record.is_whole], runs)
        # Young ones stay: the clock of a bucket is not that of the store.
        unused = {
            place: [
                one
                for one in self._orphans([one for one in kept if run_id_of(one.name) not in lost], runs)
                if not self._is_young(one.kept_at)
            ]
            for place, kept in objects.items()
        }
        halves = [record for record in listed if not record.is_whole and not self._is_young(record.kept_at)]
        collected = GarbageReport(
            self._is_dry,
            sorted(gone),
            [Garbage(one.name, one.size) for one in orphans],
            [Garbage(one.name, one.size) for one in halves],
            [
                Garbage(str(run_id), _folder_size(path))
                for run_id, path in folders.items()
                if run_id not in runs and run_id not in lost
            ],
            list(self._dead_workers()),
            environments,
            self._why_logs_are_left(),
            lost,
            worktrees,
            objects=[Garbage(f"{place}/{one.name}", one.size) for place, found in unused.items() for one in found],
            unread=unread,
        )
        if not self._is_dry:
            with _removal_errors():
                self._remove(collected, folders)
                for place, found in unused.items():
                    remove_objects(place, [one.name for one in found])
                if not self._why_logs_are_left():
                    discard_removed(self._worktrees, runs)
            old = remove_all_old(self._store.server_records, find_config(self._home.folder).retention, self._now)
            counts = {name: count for name, count in msgspec.to_builtins(old).items() if count}
            collected = msgspec.structs.replace(collected, rows=counts)
        return collected

    def _remove(self, collected: GarbageReport, folders: dict[int, Path]) -> None:
        self._artifacts.remove(one.name for one in (*collected.artifacts, *collected.half_written))
        for one in collected.logs:
            shutil.rmtree(folders[int(one.name)])
        for one in collected.workers:
            remove_folder(str(self._home.locks / one.name))
            (self._home.locks / f"{one.name}.lock").unlink(missing_ok=True)

    # -- runs

    def _runs(self) -> Iterator[RunRecord]:
        """All of them, newest first."""
        before: int | None = None
        while page := self._store.runs(limit=PAGE, before=before):
            yield from page
            before = page[-1].run_id

    def _remove_runs(self, retention: RunRetention) -> tuple[set[int], list[Garbage]]:
        """Remove runs with those that they called; return their numbers, and their worktrees, which are removed later.

        A note says which worktrees go with them, so that those of a removal that was killed are found again. Others are
        left alone, though no run has them: they may hold work, and the runs may have been lost with their database.
        """
        if retention.is_none:
            return set(), []
        runs = list(self._runs())
        roots = retention.chosen(runs, self._now)
        busy = {run.root_run_id for run in runs if run.status not in RUN_ENDED or run.holder}
        going = {run.run_id for run in runs if run.root_run_id in set(roots) - busy}
        listed = [] if self._why_logs_are_left() else list(worktrees_of(self._worktrees, going))
        worktrees = {path: _folder_size(path) for path in listed if belongs_to(path, self._uid(path))}
        if not self._is_dry:
            with _removal_errors():
                note_removal(self._worktrees, {run_id_of_worktree(path): self._uid(path) for path in worktrees})
            pieces = (roots[begin : begin + REMOVED_AT_ONCE] for begin in range(0, len(roots), REMOVED_AT_ONCE))
            going = {run_id for piece in pieces for run_id in self._store.remove(piece)}
        return going, [
            Garbage(path.name, size) for path, size in worktrees.items() if run_id_of_worktree(path) in going
        ]

    def _uid(self, worktree: Path) -> str:
        try:
            started = next((entry.fact for entry in self._store.log(run_id_of_worktree(worktree), limit=1)), None)
        except CodecError:
            return ""  # of a damaged run
        return started.uid if isinstance(started, RunStarted) else ""

    # -- artifacts

    def _orphans(self, listed: list[ArtifactRecord], runs: dict[int, RunRecord]) -> list[ArtifactRecord]:
        """The artifacts that no run refers to, except those of attempts that run now: their reports come later."""
        if not listed:
            return []
        tasks = self._leased_tasks()
        in_flight, referred_to = {artifact_folder_of(task) for task in tasks}, self._referred_to(runs)
        # A task that looks for an earlier result may just have found one of a run that was removed since.
        is_looked_for = any(task.reuse is not None and task.reuse.looks for task in tasks)
        return [
            one
            for one in listed
            if one.name not in referred_to
            and attempt_folder_of(one.name) not in in_flight
            and not self._may_be_awaited(one, runs)
            and not (is_looked_for and run_id_of(one.name) not in runs)
        ]

    def _leased_tasks(self) -> list[Task]:
        """The leased tasks: a worker that was stopped for hours may still report a result."""
        return [lease.task for worker in self._store.workers() for lease in self._store.leases_of(worker.name)]

    def _may_be_awaited(self, record: ArtifactRecord, runs: dict[int, RunRecord]) -> bool:
        run = runs.get(run_id_of(record.name))
        return run is not None and run.status not in RUN_ENDED and self._is_young(record.kept_at)

    def _referred_to(self, runs: dict[int, RunRecord]) -> set[str]:
        """The artifacts that logs, inboxes and tasks of these runs refer to; a fork refers to those of another run."""
        found = (data for run_id, data in self._store.records_containing(KEY_AS_JSON.decode()) if run_id in runs)
        return {name for data in found for name in _names(data)}

    def _is_young(self, moment: datetime) -> bool:
        return self._now - moment < YOUNG

    # -- files

    def _run_folders(self) -> dict[int, Path]:
        """The folders of runs: their logs, and what their steps wrote to $MULLIGAN_OUTPUT_DIR."""
        if self._why_logs_are_left():
            return {}
        entries = _entries(self._home.folder / "runs")
        return {int(path.name): path for path in entries if path.name.isdecimal()}

    def _why_logs_are_left(self) -> str:
        """Why logs are left alone: if two stores share the folder, some logs belong to runs of the other store."""
        database = self._home.folder / DATABASE
        return f"'{database}' has runs there, too" if self._home.store_url and database.exists() else ""

    def _dead_workers(self) -> Iterator[Garbage]:
        """Workers that the store does not know and whose lock is free. The check takes the lock, so it comes last."""
        known = {worker.name for worker in self._store.workers()}
        names = {path.name.removesuffix(".lock") for path in _entries(self._home.locks)} - known
        for name in sorted(names):
            path, lock_path = self._home.locks / name, self._home.locks / f"{name}.lock"
            is_young = any(self._is_young(_changed(one)) for one in (path, lock_path) if one.exists())
            if not is_young and lock.state_of(str(lock_path)) != "held":
                yield Garbage(name, _folder_size(path))


@contextmanager
def _removal_errors() -> Iterator[None]:
    """Turn an `OSError` into `StoreRefused`."""
    try:
        yield
    except OSError as error:
        raise StoreRefused(f"'{error.filename}' cannot be removed: {error_reason(error)}", hint=_REMOVE_IT) from error


_REMOVE_IT = "remove it by hand, then run gc again"


def _names(data: bytes) -> Iterator[str]:
    try:
        stored = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # of a damaged run: nobody can follow its references
    for reference in references(stored):
        try:
            yield parse_reference(reference).name
        except ArtifactDamaged:
            continue  # written by hand


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _folder_size(folder: Path) -> int:
    """The size of the files below a folder. A file that disappears meanwhile does not count."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(above, name)).st_size
            except FileNotFoundError:
                continue
    return total
