"""`gc`: removes what nobody refers to any more, and ended runs where one asks for that. Says what, and how much.

In this order, so that a run that goes on meanwhile is never harmed: first everything that lies about is listed, then
runs are removed, then the store is asked which runs there are and what they refer to. What is new since is not on the
list; and what is on it was given by a run that the store knows by then.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import KEY_AS_JSON, parse_reference, references, run_id_of
from mulligan.core.model.formatting import error_reason
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import ArtifactDamaged, StoreRefused
from mulligan.ports import ArtifactRecord, RunRecord
from mulligan.service.home import DATABASE
from mulligan.service.run_reader import PAGE, RunReader
from mulligan.worker import lock
from mulligan.worker.folders import remove_folder
from mulligan.worker.output_storage import artifact_folder_of

# What is younger may belong to an attempt whose end is being written, or to a worker that is just starting.
YOUNG = timedelta(hours=1)
# Runs that are removed in one transaction, with those that they called: others want to write, too.
REMOVED_AT_ONCE = 50


class Garbage(msgspec.Struct, frozen=True):
    """One thing that is removed: what it is called, and its size in bytes."""

    name: str
    size: int


class GarbageReport(msgspec.Struct, frozen=True):
    """What was removed; or, of a dry run, what would be."""

    is_dry: bool
    runs: list[int]
    artifacts: list[Garbage]
    half_written: list[Garbage]
    # By the number of the run.
    logs: list[Garbage]
    workers: list[Garbage]
    # What was left alone that might have been looked at, and why.
    left: str = ""

    @property
    def size(self) -> int:
        return sum(one.size for kind in (self.artifacts, self.half_written, self.logs, self.workers) for one in kind)


class RunRetention(msgspec.Struct, frozen=True):
    """Which ended runs go: those beyond the `keep` newest, and of these the ones that rest for so long. None: none."""

    older_than_seconds: float | None = None
    keep: int | None = None

    @property
    def is_none(self) -> bool:
        return self.older_than_seconds is None and self.keep is None

    def chosen(self, runs: Iterable[RunRecord], now: datetime) -> list[int]:
        """Of the runs that nobody called, newest first."""
        if self.is_none:
            return []
        rested = now - timedelta(seconds=self.older_than_seconds or 0.0)
        roots = [run for run in runs if run.parent_run_id is None][self.keep or 0 :]
        return [run.run_id for run in roots if run.status in RUN_ENDED and run.updated_at <= rested]


def collect_garbage(reader: RunReader, retention: RunRetention, *, is_dry: bool = False) -> GarbageReport:
    """Remove what is garbage, or say what would be."""
    if not reader.home.is_there:
        return GarbageReport(is_dry, [], [], [], [], [])
    return _Collection(reader, is_dry).collect(retention)


class _Collection:
    """One round of it."""

    def __init__(self, reader: RunReader, is_dry: bool) -> None:
        self._home, self._store = reader.home, reader.store
        self._artifacts = reader.store.artifacts
        self._is_dry = is_dry
        self._now = datetime.now(UTC)

    def collect(self, retention: RunRetention) -> GarbageReport:
        lying = sorted((one for one in self._artifacts.records() if run_id_of(one.name)), key=lambda one: one.name)
        folders = self._run_folders()
        gone = self._remove_runs(retention)
        runs = {run.run_id: run for run in self._runs() if run.run_id not in gone}
        orphans = self._orphans([record for record in lying if record.is_whole], runs)
        halves = [record for record in lying if not record.is_whole and not self._is_young(record.kept_at)]
        collected = GarbageReport(
            self._is_dry,
            sorted(gone),
            [Garbage(one.name, one.size) for one in orphans],
            [Garbage(one.name, one.size) for one in halves],
            [Garbage(str(run_id), _weight(path)) for run_id, path in folders.items() if run_id not in runs],
            list(self._dead_workers()),
            self._why_logs_are_left(),
        )
        if not self._is_dry:
            with _told():
                self._remove(collected, folders)
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

    def _remove_runs(self, retention: RunRetention) -> set[int]:
        """The runs that go, each with those that it called."""
        if retention.is_none:
            return set()
        runs = list(self._runs())
        roots = retention.chosen(runs, self._now)
        if not self._is_dry:
            pieces = (roots[begin : begin + REMOVED_AT_ONCE] for begin in range(0, len(roots), REMOVED_AT_ONCE))
            return {run_id for piece in pieces for run_id in self._store.remove(piece)}
        busy = {run.root_run_id for run in runs if run.status not in RUN_ENDED or run.holder}
        going = set(roots) - busy
        return {run.run_id for run in runs if run.root_run_id in going}

    # -- artifacts

    def _orphans(self, lying: list[ArtifactRecord], runs: dict[int, RunRecord]) -> list[ArtifactRecord]:
        """Those that no run refers to. What a live attempt has just given is not told yet, and no orphan."""
        if not lying:
            return []
        tasks = self._leased_tasks()
        at_work, referred_to = {artifact_folder_of(task) for task in tasks}, self._referred_to(runs)
        # A task that looks for an earlier result may just have found one, of a run that was removed since.
        is_looked_for = any(task.reuse is not None and task.reuse.looks for task in tasks)
        return [
            one
            for one in lying
            if one.name not in referred_to
            and one.name.rpartition("/")[0] not in at_work
            and not self._may_be_awaited(one, runs)
            and not (is_looked_for and run_id_of(one.name) not in runs)
        ]

    def _leased_tasks(self) -> list[Task]:
        """What somebody has a lease for: a worker that was stopped for hours may still tell what came of it."""
        return [lease.task for worker in self._store.workers() for lease in self._store.leases_of(worker.name)]

    def _may_be_awaited(self, record: ArtifactRecord, runs: dict[int, RunRecord]) -> bool:
        run = runs.get(run_id_of(record.name))
        return run is not None and run.status not in RUN_ENDED and self._is_young(record.kept_at)

    def _referred_to(self, runs: dict[int, RunRecord]) -> set[str]:
        """The names of what the logs, inboxes and tasks of these runs refer to: a fork, to what another run gave."""
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
        """Where runs of two stores have their logs in one folder, the other one's are not ours to judge."""
        database = self._home.folder / DATABASE
        return f"'{database}' has runs there, too" if self._home.store_url and database.exists() else ""

    def _dead_workers(self) -> Iterator[Garbage]:
        """Workers of which the store knows nothing, and whose lock is free. Asked last: a lock is taken to be tried."""
        known = {worker.name for worker in self._store.workers()}
        names = {path.name.removesuffix(".lock") for path in _entries(self._home.locks)} - known
        for name in sorted(names):
            path, lock_path = self._home.locks / name, self._home.locks / f"{name}.lock"
            is_young = any(self._is_young(_changed(one)) for one in (path, lock_path) if one.exists())
            if not is_young and lock.state_of(str(lock_path)) != "held":
                yield Garbage(name, _weight(path))


@contextmanager
def _told() -> Iterator[None]:
    """What the system does not let us remove, in our words."""
    try:
        yield
    except OSError as error:
        raise StoreRefused(f"'{error.filename}' cannot be removed: {error_reason(error)}", hint=_REMOVE_IT) from error


_REMOVE_IT = "remove it by hand, and let gc go on"


def _names(data: bytes) -> Iterator[str]:
    for reference in references(msgspec.json.decode(data)):
        try:
            yield parse_reference(reference).name
        except ArtifactDamaged:
            continue  # somebody wrote it by hand


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _weight(folder: Path) -> int:
    """The bytes of the files below a folder. One that goes meanwhile weighs nothing."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(above, name)).st_size
            except FileNotFoundError:
                continue
    return total
