"""What comes before a run, as `Service.starts` gives it; and starting one in a process in the background."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mulligan.core.model.agents.guard_rails import HOOK_PREFIX
from mulligan.core.model.event_types import HostCapacity
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import InputInvalid, KeyUsed, MulliganError
from mulligan.formats import options_of
from mulligan.service.driving.driver import Capacity, capacity_for
from mulligan.service.runs.changes.capacity_checks import (
    notes,
    pools,
    refuse_no_processors,
    refuse_too_large,
    refuse_without_dask,
    with_profiles,
)
from mulligan.service.runs.changes.preflight import refuse_missing_secrets
from mulligan.service.runs.changes.prepared_runs import Prepared
from mulligan.service.runs.changes.start_keys import refuse_other_request
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.worker.folders import make_private, open_regular_file
from mulligan.worker.supervisor.processes import is_running

if TYPE_CHECKING:
    from mulligan.service.runs.changes.preview import Preview

KEY_CHARS_MAX = 200
# How long running workers have to take a new run before it gets its own process; how long that process has.
WORKERS_SECONDS, TAKEN_UP_SECONDS = 3.0, 60.0
LOOK_SECONDS = 0.05
# -P: the current folder is not on the module path, so that a `signal.py` of the user does not shadow the real one.
PROGRAM = (sys.executable, "-P", "-m", "mulligan")
# How much of the output is shown of a process that did not take its run.
SAID_BYTES_MAX = 2_000

# Forks and exits at once, so that init reaps the driver and no parent has to wait for it. The driver is in a new
# session without a terminal, so that it survives when the terminal is closed.
_LAUNCH = """\
import os, sys
pid = os.fork()
if pid:
    print(pid)
    sys.stdout.flush()
    os._exit(0)
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
os.dup2(log, 1)
os.dup2(log, 2)
os.execv(sys.argv[2], sys.argv[2:])
"""


# -- with a key ------------------------------------------------------------------------------------------------------


class ExistingRun(msgspec.Struct, frozen=True):
    """A run that was started with a key before."""

    run_id: int
    status: str
    # Its definition differs from the one that is given now.
    is_other_definition: bool = False


def check_key(key: str) -> str:
    """The key, if it is valid."""
    if not key.strip() or not key.isprintable() or len(key) > KEY_CHARS_MAX:
        raise InputInvalid(f"'{key[:KEY_CHARS_MAX]}' is not a key", hint=f"one line of 1 to {KEY_CHARS_MAX} characters")
    if key.startswith(HOOK_PREFIX):
        raise InputInvalid(f"keys that begin with '{HOOK_PREFIX}' are those of webhooks", hint="use another one")
    return key


# -- in the background -----------------------------------------------------------------------------------------------


class DetachedRun(msgspec.Struct, frozen=True):
    """A run in the background: the process that drives it, and the file with the output of that process."""

    run_id: int
    status: str = "running"
    pid: int = 0
    host: str = ""
    log: str = ""


class RunNotTakenUp(MulliganError):
    """The run exists, but the process that should drive it has not taken it."""

    code = "run.not_taken_up"


def refuse_unstartable(reader: RunReader, prepared: Prepared) -> None:
    """Refuse a run for which a process of this machine lacks a secret, or is too small.

    In a shared store a suitable worker may still be started.
    """
    if prepared.capacity is not None and prepared.capacity.on:
        return  # what a cluster has is known when it is asked
    if not reader.store.is_shared:
        # The process that drives it has the environment of this one.
        refuse_missing_secrets(prepared.workflow, prepared.cwd, os.environ)
        refuse_without_dask(prepared.workflow)
        capacity = capacity_for(prepared.capacity)
        refuse_no_processors(capacity, is_shared=False)
        (place,) = pools([with_profiles(capacity, prepared.workflow)])
        refuse_too_large(prepared.workflow, place)


def detach(
    reader: RunReader,
    run_id: int,
    *,
    asked: HostCapacity | None = None,
    wait: str = "",
    program: Sequence[str] = PROGRAM,
) -> DetachedRun:
    """Let a running worker drive the run, or start a process in the background for it.

    Returns once the run is driven; raises `RunNotTakenUp` if it is not. The run exists in both cases.
    """
    if reader.home.is_remote:
        return _left_to_server(reader, run_id)
    if reader.serving_worker() is not None and (found := _taken_up(reader, run_id, "", WORKERS_SECONDS)) is not None:
        return found
    log = _log(reader, run_id)
    pid = launch_in_background([*program, *_words(reader, run_id, asked, wait)], log)
    found = _taken_up(reader, run_id, log, TAKEN_UP_SECONDS, pid)
    if found is None:
        state = "ended without driving it" if not is_running(pid) else "does not drive it yet"
        raise RunNotTakenUp(
            f"run {run_id} was created, but process {pid}, which should drive it, {state}{_output_of(log)}",
            hint=f"to drive it here: mulligan resume {run_id}; the output of the process is in '{log}'",
        )
    return found


def _left_to_server(reader: RunReader, run_id: int) -> DetachedRun:
    """The run, as its server drives it; perhaps not yet, but nothing else can be done from here."""
    found = _taken_up(reader, run_id, "", WORKERS_SECONDS)
    return found or DetachedRun(run_id, reader.record(run_id).status)


def _taken_up(reader: RunReader, run_id: int, log: str, seconds: float, pid: int = 0) -> DetachedRun | None:
    """The run, once it is driven or has ended; None if neither happens in time, or the process is gone."""
    deadline = time.monotonic() + seconds
    while True:
        is_gone = bool(pid) and not is_running(pid)
        record = reader.store.run(run_id)
        if record.status in RUN_ENDED:
            return DetachedRun(run_id, record.status, pid, log=log)
        driver = reader.driver_of(record)
        if driver is not None:
            return DetachedRun(run_id, record.status, driver.pid, driver.host, log if driver.pid == pid else "")
        if record.seq and is_gone:
            # The process drove the run and left it, so the run waits for a person.
            return DetachedRun(run_id, record.status, log=log)
        if is_gone or time.monotonic() > deadline:
            return None
        time.sleep(LOOK_SECONDS)


def _words(reader: RunReader, run_id: int, asked: HostCapacity | None, wait: str) -> list[str]:
    words = ["resume", str(run_id), "--home", str(reader.home.folder)]
    given = (
        {"--parallel": asked.cpus, "--memory": asked.memory, "--gpus": asked.gpus, "--on": asked.on or None}
        if asked
        else {}
    )
    for option, value in given.items():
        words += [option, str(value)] if value is not None else []
    words += ["--wait", wait] if wait else []
    return words


def _log(reader: RunReader, run_id: int) -> str:
    """The log of the driver. It is in the folder of the run, so that both are removed together."""
    folder = os.path.dirname(reader.home.folders.outputs(run_id))
    make_private(folder)
    return f"{folder}/driver.log"


def launch_in_background(command: Sequence[str], log: str) -> int:
    """Start a process that survives this one and its terminal; its output goes to `log`. Return its id."""
    # Loaded here, since few runs are detached.
    import subprocess

    launched = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LAUNCH, log, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        start_new_session=True,
    )
    return int(launched.stdout)


def _output_of(log: str) -> str:
    """The last lines that a process wrote."""
    return f":\n{''.join(_last_lines(log)).rstrip()}" if os.path.exists(log) else ""


def _last_lines(log: str) -> Iterator[str]:
    with open_regular_file(log) as file:
        file.seek(max(0, os.path.getsize(log) - SAID_BYTES_MAX))
        yield from (f"  {line.decode('utf-8', 'replace')}" for line in file.read().splitlines(keepends=True))


# -- what comes before a run -------------------------------------------------------------------------------------------


class Starts:
    """An area of `Service`: checks, a preview, starting without staying."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def capacity_of(self, run_id: int, given: HostCapacity | None = None) -> Capacity:
        """The capacity of this machine for a run: as given, otherwise as the run was started with."""
        return capacity_for(given, self._reader.capacity(run_id))

    def capacity_notes(self, workflow: Workflow, capacity: Capacity) -> list[str]:
        """The steps that ask for more than that, if they may be skipped or handled: the others refuse the start.

        None in a shared store, where a suitable worker may still be started.
        """
        return [] if self._reader.home.store_url or capacity.on else notes(workflow, capacity)

    def permission_note(self, workflow: Workflow) -> str:
        """What the first run of a workflow says about agents that never ask for permission; "" for every other run."""
        from mulligan.service.decisions import agent_permissions

        return agent_permissions.first_run_note(self._reader, workflow)

    def detach(self, run_id: int, *, asked: HostCapacity | None = None, wait: str = "") -> DetachedRun:
        """See that a process drives the run: a worker that is up, or a new process in the background.

        That has the capacity that the run was started with, unless another is asked for.
        """
        return detach(self._reader, run_id, asked=asked, wait=wait)

    def find_existing_run(self, prepared: Prepared, key: str, used: KeyUsed) -> ExistingRun:
        """The run that has the key. `KeyMismatch` if its inputs differ, since then its result is not the one wanted."""
        record = self._reader.store.run(used.run_id)
        refuse_other_request(self._reader, record.run_id, prepared, key)
        return ExistingRun(record.run_id, record.status, record.version != prepared.version)

    def preview(
        self, workflow: Workflow, inputs: dict[str, Any], cwd: Path, capacity: Capacity | None = None
    ) -> Preview:
        """What a run of the workflow would do, and what is missing for it. Starts nothing."""
        from mulligan.service.runs.changes import preview

        return preview.preview(self._reader, workflow, inputs, cwd, capacity)

    def changed_file(self, run_id: int) -> str:
        """The workflow file of a run, if it has changed since the run was started; otherwise ""."""
        from mulligan.service.runs.changes import corrections

        return corrections.changed_file(self._reader, run_id)

    def reading_of(self, run_id: int) -> dict[str, Any]:
        """How `load_workflow` reads a corrected file of a run: with the inputs and the options of the run."""
        state = self._reader.lazy_state(run_id)
        return {"given": state.run.inputs, "options": options_of(state.workflow)}
