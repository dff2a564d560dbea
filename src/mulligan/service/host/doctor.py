"""Whether this machine can run workflows: each check, what it found, and what to do about it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import apsw
import msgspec

from mulligan import __version__
from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import MulliganError
from mulligan.language.loading import load_text
from mulligan.ports import Store, TableSize, WorkerRecord, WorkerRegistry
from mulligan.service.decisions.agent_checks import agents_here
from mulligan.service.driving.driver import machine
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.driving.locks import Locks
from mulligan.service.home import DATABASE, Home, this_host
from mulligan.service.host.lost_runs import find_lost_runs, folder_numbers
from mulligan.service.rendering.formatting import format_size, pluralize
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.stored.damaged_runs import find_damage
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.overview import show_run
from mulligan.store.kinds import kind_of
from mulligan.store.schema_look import StoreSchema, look_at_schema
from mulligan.store.statements import newest
from mulligan.worker.environments.installers import InstallFailed, describe_installer
from mulligan.worker.supervisor import task_cgroups
from mulligan.worker.supervisor.own_cgroup import OomKills

Health = Literal["ok", "warning", "problem"]

PYTHON_MIN = (3, 11)
# SQLite up to here may damage a database in WAL mode when two connections checkpoint at once ("WAL-reset bug");
# two older lines have the fix too.
WAL_RESET_FIXED = (3, 51, 3)
WAL_RESET_FIXED_ALSO = ((3, 44, 6), (3, 50, 7))
DISK_BYTES_FEW, DISK_BYTES_MIN = 1 << 30, 100 << 20
CLOCK_SECONDS_MAX = 2.0
# Mulligan is younger than any earlier time, so a clock that shows one was never set.
CLOCK_EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)

# What a worker is that records no version.
FIRST_VERSION = "0.1"
# How many runs are read to find damaged ones, and for how long.
EXAMINED_RUNS, EXAMINED_SECONDS = 200, 3.0
# How many workers of other versions are named.
NAMED_MAX = 5

# In a requirement of the package: `psycopg[binary]>=3.2; extra == 'postgres'`.
_LIBRARY = re.compile(r"[\w.-]+")
_EXTRA = re.compile(r"""extra == ['"]([\w.-]+)""")

_TRIAL = "name: doctor\nsteps: [{step: try, shell: 'true'}]\n"


class Check(msgspec.Struct, frozen=True):
    """One check."""

    name: str
    health: Health
    found: str
    advice: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """All checks; `ok` if none found a problem. A warning is not a problem."""

    ok: bool
    checks: list[Check]


def examine_machine(home: Home) -> Diagnosis:
    """Check this machine and the store of a home. Nothing raises: what goes wrong is reported as a check."""
    checks = list(_checks(home))
    return Diagnosis(all(check.health != "problem" for check in checks), checks)


def _checks(home: Home) -> Iterator[Check]:
    offset = time.time() - time.monotonic()
    yield python(sys.version_info[:3])
    yield sqlite(apsw.sqlite_lib_version())
    schema = _schema(home)
    yield _guarded("store", lambda: _store(home, schema))
    yield from _contents(home, schema)
    yield _guarded("versions", lambda: _versions(home, schema))
    yield from _troubles(home, schema)
    yield _guarded("disk", lambda: disk(*_room(home.folder)))
    yield bash(shutil.which("bash"))
    yield _guarded("tasks", _tasks)
    yield subreaper(sys.platform)
    yield memory_kills(OomKills().is_available)
    yield memory_limits(task_cgroups.find_usable_parent(os.getpid()))
    yield _requirements()
    yield _guarded("extras", _extras)
    yield _guarded("agents", lambda: agents(*agents_here(os.environ)))
    yield _guarded("clock", lambda: _clock(home, schema, offset))


def _guarded(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except MulliganError as error:
        return Check(name, "problem", error.message, error.hint)
    except OSError as error:
        return Check(name, "problem", f"{error.filename or ''}: {error_reason(error)}".lstrip(": "))


# -- judging what was found ------------------------------------------------------------------------------------------


def python(version: tuple[int, int, int]) -> Check:
    found = f"{platform.python_implementation()} {_dotted(version)}"
    if version >= PYTHON_MIN:
        return Check("python", "ok", found)
    return Check("python", "problem", found, f"install Python {_dotted(PYTHON_MIN)} or newer")


def sqlite(version: str) -> Check:
    """The library that comes with apsw. The one of the system may be older, and is not used."""
    number = tuple(int(part) for part in version.split("."))
    is_fixed = number >= WAL_RESET_FIXED or any(number[:2] == old[:2] and number >= old for old in WAL_RESET_FIXED_ALSO)
    if is_fixed:
        return Check("sqlite", "ok", f"SQLite {version}")
    advice = f"install an apsw with SQLite {_dotted(WAL_RESET_FIXED)} or newer: pip install -U apsw"
    return Check("sqlite", "problem", f"SQLite {version}, which can damage databases in WAL mode", advice)


def older_store(where: str, found: int, known: int) -> Check:
    """A store of an older version: nothing has opened it with this one."""
    what = f"{where} has schema {found} of an older Mulligan; this one migrates it to schema {known} when it opens it"
    return Check(
        "store", "warning", what, "end its workers and copy it before any other command: docs/operate/upgrade.md"
    )


def versions(here: str, workers: list[tuple[str, str]], *, is_migrated: bool = True) -> Check:
    """The workers that are up, by name and version. 0.1 did not record its version."""
    if not workers:
        return Check("versions", "ok", f"this is Mulligan {here}; no worker is up")
    named = [f"'{name}' is {version or FIRST_VERSION}" for name, version in sorted(workers) if version != here]
    found = f"this is Mulligan {here}, workers: {len(workers) - len(named)} of this version"
    if not named:
        return Check("versions", "ok", found)
    found += f"; {_first(named)}"
    if not is_migrated:
        return Check("versions", "warning", found, "end the older workers before this version opens the store")
    if all(version for _, version in workers):
        return Check("versions", "ok", f"{found}: all know this schema")
    advice = "the store refuses workers of 0.1: they end by themselves; start them again with this version"
    return Check("versions", "warning", found, advice)


def troubles(workers: dict[str, str]) -> Check:
    """The workers that take no tasks since their machine fails them, with what is wrong there."""
    named = [f"'{name}' takes no tasks: {trouble}" for name, trouble in sorted(workers.items())]
    return Check("workers", "problem", _first(named, "; "), "mend the machine: the worker tries again by itself")


def disk(folder: Path, free: int) -> Check:
    found = f"{free / (1 << 30):.1f} GiB free at '{folder}'"
    if free < DISK_BYTES_MIN:
        return Check("disk", "problem", found, "make room: logs and events cannot be written on a full disk")
    if free < DISK_BYTES_FEW:
        return Check("disk", "warning", found, "make room, or keep runs elsewhere: --home DIR")
    return Check("disk", "ok", found)


def bash(path: str | None) -> Check:
    if path:
        return Check("bash", "ok", path)
    return Check("bash", "problem", "there is no bash on the PATH", "install bash, which runs shell steps")


def subreaper(system: str) -> Check:
    if system == "linux":
        return Check("processes", "ok", "every process of a task is found and ended")
    advice = "a process that leaves the session of its task may survive it: use Linux if that matters"
    return Check("processes", "warning", f"{system} has no subreaper", advice)


def memory_kills(is_reported: bool) -> Check:
    if is_reported:
        return Check("memory", "ok", "the kernel reports tasks that it kills for lack of memory")
    found = "no cgroup here reports tasks that were killed for lack of memory"
    return Check("memory", "warning", found, "OUT_OF_MEMORY is detected by measured memory alone: give steps a limit")


def memory_limits(ground: task_cgroups.CgroupParent | None) -> Check:
    """How steps are kept to the memory that they ask for: by the kernel, or by measuring."""
    if ground is None:
        return Check(
            "limits", "ok", "memory limits of steps are enforced by measuring: no control group here can be divided"
        )
    return Check("limits", "ok", f"the kernel enforces memory limits of shell steps, in groups below '{ground.folder}'")


def requirements(installer: str | None) -> Check:
    """What installs the requirements of python steps. Without it other steps run."""
    if installer:
        return Check("requirements", "ok", f"environments of python steps are made by {installer}")
    advice = "install uv, or a Python with venv and pip: steps with 'requirements' cannot run without"
    return Check("requirements", "warning", "there is neither uv nor venv and pip", advice)


def extras(missing: dict[str, list[str]]) -> Check:
    """`missing`: the libraries that each extra of this package lacks. Nobody needs all extras."""
    there = [name for name, lacks in missing.items() if not lacks]
    others = [f"{name} ({', '.join(lacks)})" for name, lacks in missing.items() if lacks]
    found = f"installed: {', '.join(there) or 'none'}"
    if others:
        found += f"; missing: {', '.join(others)}: pip install 'mulligan[…]'"
    return Check("extras", "ok", found)


def agents(ready: list[str], problems: list[str]) -> Check:
    """The agents that are models. Agents that are commands are checked when they are asked."""
    found = f"models that can be asked: {', '.join(ready)}" if ready else "no model is set up here"
    if problems:
        advice = "set what is missing where the worker runs: docs/agents/providers.md"
        return Check("agents", "warning", "; ".join([*problems, *([found] if ready else [])]), advice)
    return Check("agents", "ok", found)


def clock(now: datetime, jumped_seconds: float, latest: datetime | None, skew_seconds: float | None) -> Check:
    """`latest`: when the store was last written. `skew_seconds`: how far this clock is ahead of that of the store."""
    found = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    advice = "set the clock, and keep it right: NTP"
    if now < CLOCK_EARLIEST:
        return Check("clock", "problem", f"the clock shows {found}", advice)
    if latest is not None and (latest - now).total_seconds() > CLOCK_SECONDS_MAX:
        return Check("clock", "problem", f"{found}, but a run was written at {latest:%Y-%m-%d %H:%M:%S}", advice)
    if abs(jumped_seconds) > CLOCK_SECONDS_MAX:
        return Check("clock", "warning", f"{found}; it jumped by {jumped_seconds:+.1f}s during the check", advice)
    if skew_seconds is not None and abs(skew_seconds) > CLOCK_SECONDS_MAX:
        return Check(
            "clock", "warning", f"{found}; it differs by {skew_seconds:+.1f}s from that of the database server", advice
        )
    return Check("clock", "ok", found)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


# -- examining -------------------------------------------------------------------------------------------------------


def _schema(home: Home) -> StoreSchema | None:
    return look_at_schema(home.store_url or str(home.folder / DATABASE), home.lease_seconds)


def _troubles(home: Home, schema: StoreSchema | None) -> Iterator[Check]:
    """Nothing is said if all is well."""
    if not home.is_there or (schema is not None and schema.is_older):
        return
    try:
        with closing(home.open()) as store:
            found = {worker.name: worker.trouble for worker in store.workers() if worker.trouble}
    except (MulliganError, OSError):
        return  # said by the check of the store
    if found:
        yield troubles(found)


def _versions(home: Home, schema: StoreSchema | None) -> Check:
    """Which versions of Mulligan work on the store now."""
    if home.is_remote:
        with closing(home.open()) as store:
            return versions(__version__, [(worker.name, worker.version) for worker in store.workers()])
    if schema is None:
        return versions(__version__, [])
    locks = Locks(home, is_shared=bool(home.store_url))
    workers = [(worker.name, worker.version) for worker in schema.workers if locks.seems_alive(worker)]
    return versions(__version__, workers, is_migrated=not schema.is_older)


def _store(home: Home, schema: StoreSchema | None) -> Check:
    """Whether the store opens and can be written. One that does not exist is not created, an older one not migrated."""
    if not home.is_there:
        return _absent(home)
    if found := home.network_files:
        advice = 'start PostgreSQL: eval "$(mulligan postgres start)"; or move the folder to a local disk'
        problem = f"'{home.folder}' is on a network file system ({found}): its runs can be read, and not continued"
        return Check("store", "problem", problem, advice)
    if home.is_read_only:
        problem = f"the home '{home.folder}' is read-only: its runs can be looked at, and not continued"
        return Check("store", "problem", problem, "get permission to write it, or copy it to another folder")
    kind = kind_of(home.store_url)
    where = kind.label if home.store_url else f"'{home.folder}'"
    if schema is not None and schema.is_older:
        return older_store(where, schema.found, schema.known)
    with closing(home.open()) as store:
        if kind.dialect is None:
            return Check("store", "ok", f"the server at {home.store_url} answers")
        _write(store)
    return Check("store", "ok", f"{where} is writable, schema {newest(kind.dialect)}")


def _contents(home: Home, schema: StoreSchema | None) -> Iterator[Check]:
    """Of which runs the home has only the files, how large the store is, and which of its runs are damaged."""
    if not home.is_there and not home.store_url and (left := sorted(folder_numbers(home))):
        # The database is gone.
        yield lost_runs(home.folder, left)
    # To open an older store is to migrate it.
    if not home.is_there or home.is_remote or schema is None or schema.is_older:
        return
    try:
        with closing(home.open()) as store:
            if lost := find_lost_runs(home, store):
                yield lost_runs(home.folder, lost)
            yield sizes(store.server_records.table_sizes())
            if damaged := _damaged(store):
                yield damaged_runs(damaged)
    except MulliganError:
        return  # the check of the store has said it


def _damaged(store: Store) -> list[int]:
    """The damaged ones among the open and the newest runs, as many as can be read in some seconds."""
    until = time.monotonic() + EXAMINED_SECONDS
    open_ = store.runs(limit=EXAMINED_RUNS, statuses=("new", "running", "paused"))
    found = {}
    for run in (*store.runs(limit=EXAMINED_RUNS), *open_):
        if time.monotonic() < until and run.run_id not in found:
            found[run.run_id] = find_damage(store, run.run_id)
    return sorted(run_id for run_id, damage in found.items() if damage)


def sizes(tables: list[TableSize]) -> Check:
    """The largest tables first."""
    largest = sorted(tables, key=lambda one: (-one.size, -one.rows, one.name))[:NAMED_MAX]
    named = ", ".join(f"{one.name} {pluralize(one.rows, 'row')} ({format_size(one.size)})" for one in largest)
    return Check("sizes", "ok", f"{format_size(sum(one.size for one in tables))} in the store: {named}")


def damaged_runs(run_ids: list[int]) -> Check:
    what = f"{pluralize(len(run_ids), 'run')} cannot be read: {_first(run_ids)}"
    return Check(
        "damaged", "warning", what, f"see why: mulligan show {run_ids[0]}; remove it: mulligan remove {run_ids[0]}"
    )


def lost_runs(folder: Path, numbers: list[int]) -> Check:
    count = pluralize(len(numbers), "run")
    what = f"'{folder / 'runs'}' has files of {count} that the database does not have: {_first(numbers)}"
    advice = "the database is an older copy, or a new one: restore a newer copy, or remove these folders by hand; "
    return Check("runs", "problem", what, f"{advice}no other run gets their numbers, and gc leaves them alone")


def _first(named: Sequence[object], between: str = ", ") -> str:
    """The first of them, and how many more there are."""
    more = len(named) - NAMED_MAX
    return between.join(map(str, named[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def _absent(home: Home) -> Check:
    home.refuse_network_files()
    parent = _existing(home.folder)
    if os.access(parent, os.W_OK):
        return Check("store", "ok", f"'{home.folder}' will be created by the first run")
    return Check(
        "store", "problem", f"'{parent}' is not writable", "choose another folder: --home DIR or MULLIGAN_HOME"
    )


def _write(store: WorkerRegistry) -> None:
    """Write and remove a worker."""
    name = f"{this_host()}.{os.getpid()}.doctor.{time.monotonic_ns()}"
    store.register(WorkerRecord(name, this_host(), os.getpid()))
    store.retire(name)


def _room(folder: Path) -> tuple[Path, int]:
    existing = _existing(folder)
    return existing, shutil.disk_usage(existing).free


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _tasks() -> Check:
    """Run one step, `true`, in a temporary home: supervisor, shell, store and engine together."""
    with tempfile.TemporaryDirectory(prefix="mulligan-doctor-") as folder:
        reader = RunReader(Home(Path(folder) / "home"))
        try:
            with open_driver(reader, machine(1)) as driver:
                [run_id] = Changes(reader).create(prepare(load_text(_TRIAL), {}, Path(folder)), driver)
                driver.drive(run_id)
            found = show_run(reader, run_id)
        finally:
            reader.close()
    if found["status"] == "completed":
        return Check("tasks", "ok", "a step that runs 'true' completed")
    message = "; ".join(failure["message"] for failure in found["failures"]) or found["reason"]
    return Check("tasks", "problem", f"a step that runs 'true' {found['status']}: {message}")


def _requirements() -> Check:
    try:
        return requirements(describe_installer(os.environ, lambda name: find_spec(name) is not None))
    except InstallFailed as failed:
        return Check("requirements", "problem", failed.message)


def _extras() -> Check:
    missing: dict[str, list[str]] = {}
    try:
        needed = metadata.requires("mulligan") or []
    except metadata.PackageNotFoundError:
        return Check("extras", "ok", "Mulligan runs from a folder: nothing says which libraries its extras need")
    for requirement in needed:
        library, extra = _LIBRARY.match(requirement), _EXTRA.search(requirement)
        if library is not None and extra is not None:
            lacks = missing.setdefault(extra[1], [])
            lacks += [] if _is_installed(library[0]) else [library[0]]
    return extras(dict(sorted(missing.items())))


def _is_installed(library: str) -> bool:
    try:
        metadata.version(library)
    except metadata.PackageNotFoundError:
        return False
    return True


def _clock(home: Home, schema: StoreSchema | None, offset: float) -> Check:
    jumped = time.time() - time.monotonic() - offset
    latest, skew = None, None
    # To open an older store is to migrate it.
    if home.is_there and not (schema is not None and schema.is_older):
        store = home.open()
        try:
            latest = max((run.updated_at for run in store.runs(limit=1)), default=None)
            # Only a store on a server has a clock.
            if (theirs := store.now()) is not None:
                skew = (datetime.now(UTC) - theirs).total_seconds()
        finally:
            store.close()
    return clock(datetime.now(UTC), jumped, latest, skew)
