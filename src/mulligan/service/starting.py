"""Starting a run so that it is there once, under a key; and in the background, in a process of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import msgspec

from mulligan.core.model.reports import RunRequested
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import InputInvalid, KeyUsed, MulliganError
from mulligan.language.inputs import format_input
from mulligan.ports import RunRecord
from mulligan.service.preflight import refuse_missing_secrets
from mulligan.service.run_control import Prepared, RunControl
from mulligan.service.run_reader import RunReader
from mulligan.worker.folders import make_private, open_regular_file
from mulligan.worker.processes import is_running

KEY_CHARS_MAX = 200
# How long workers that are there have to take a new run up, before it gets a process of its own; how long that one has.
WORKERS_SECONDS, TAKEN_UP_SECONDS = 3.0, 60.0
LOOK_SECONDS = 0.05
# Without the folder that it is started in among its modules: a `signal.py` of the user's there is none of ours.
PROGRAM = (sys.executable, "-P", "-m", "mulligan")
# What is shown of what a process has said that did not take its run up.
SAID_BYTES_MAX = 2_000

# Ends at once and leaves the driver to the system, so that nobody has to wait for it: no zombie, whoever starts it.
# Its session is new and has no terminal, so that it lives on when the terminal is closed.
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


# -- under a key -----------------------------------------------------------------------------------------------------


class ExistingRun(msgspec.Struct, frozen=True):
    """A run that was started under a key before."""

    run_id: int
    status: str
    # It goes by another definition than the one that was given now.
    is_other_definition: bool = False


def find_existing_run(reader: RunReader, prepared: Prepared, key: str, used: KeyUsed) -> ExistingRun:
    """The run that has the key. `KeyUsed` where it has other inputs: its result would answer another question."""
    record = reader.store.run(used.run_id)
    had = _inputs(reader, record)
    if had is not None and had != prepared.inputs:
        names = [name for name in {**had, **prepared.inputs} if had.get(name) != prepared.inputs.get(name)]
        theirs = ", ".join(f"{name}={format_input(had.get(name))}" for name in names)
        raise KeyUsed(
            f"run {record.run_id} was started under the key '{key}' with other inputs: {theirs}",
            hint="another key is another run; without --key each start is one",
            run_id=record.run_id,
        )
    return ExistingRun(record.run_id, record.status, record.version != prepared.version)


def _inputs(reader: RunReader, record: RunRecord) -> dict[str, Any] | None:
    """What the run was started with; None where nobody can tell any more."""
    first = next((entry.fact for entry in reader.store.log(record.run_id, limit=1)), None)
    if first is not None:
        return dict(getattr(first, "inputs", {}))
    waiting = (message.report for message in reader.store.inbox([record.run_id]))
    return next((dict(report.inputs) for report in waiting if isinstance(report, RunRequested)), None)


def check_key(key: str) -> str:
    """The key, where it can be one."""
    if not key.strip() or not key.isprintable() or len(key) > KEY_CHARS_MAX:
        raise InputInvalid(f"'{key[:KEY_CHARS_MAX]}' is not a key", hint=f"one line of 1 to {KEY_CHARS_MAX} characters")
    return key


# -- in the background -----------------------------------------------------------------------------------------------


class DetachedRun(msgspec.Struct, frozen=True):
    """A run that goes on in the background: the process that drives it, and where that writes what it says."""

    run_id: int
    status: str = "running"
    pid: int = 0
    host: str = ""
    log: str = ""


class RunNotTakenUp(MulliganError):
    """The run is there, and the process that was to drive it has not taken it up."""

    code = "run.not_taken_up"


def start_detached(
    control: RunControl, prepared: Prepared, *, key: str = "", parallel: int | None = None, wait: str = ""
) -> DetachedRun:
    """Start a run that goes on in the background, see `detach`. `KeyUsed` as `RunControl.start` raises it."""
    if not control.reader.store.is_shared:
        # The process that drives it has our environment.
        refuse_missing_secrets(prepared.workflow, prepared.cwd, os.environ)
    return detach(control.reader, control.start(prepared, key=key)[0], parallel=parallel, wait=wait)


def detach(
    reader: RunReader,
    run_id: int,
    *,
    parallel: int | None = None,
    wait: str = "",
    program: Sequence[str] = PROGRAM,
) -> DetachedRun:
    """See that somebody drives the run: a worker that is there, else a new process in the background.

    Returns when the run was taken up; `RunNotTakenUp` says why it was not. The run is there in any case.
    """
    if _has_workers(reader) and (found := _taken_up(reader, run_id, "", WORKERS_SECONDS)) is not None:
        return found
    log = _log(reader, run_id)
    pid = _launch([*program, *_words(reader, run_id, parallel, wait)], log)
    found = _taken_up(reader, run_id, log, TAKEN_UP_SECONDS, pid)
    if found is None:
        state = "has ended without taking it up" if not is_running(pid) else "has not taken it up yet"
        raise RunNotTakenUp(
            f"run {run_id} was started, and process {pid}, which is to drive it, {state}{_said(log)}",
            hint=f"to drive it here: mulligan resume {run_id}; what the process said is in '{log}'",
        )
    return found


def _has_workers(reader: RunReader) -> bool:
    """Whether somebody may take the run up by himself: in a store of one's own a run belongs to who starts it."""
    store = reader.store
    return store.is_shared and any(worker.cpus and not worker.is_expired for worker in store.workers())


def _taken_up(reader: RunReader, run_id: int, log: str, seconds: float, pid: int = 0) -> DetachedRun | None:
    """The run, once somebody drives it or it is over; None where that does not come, or the process is gone."""
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
            # It has worked and left the run: that waits for a person.
            return DetachedRun(run_id, record.status, log=log)
        if is_gone or time.monotonic() > deadline:
            return None
        time.sleep(LOOK_SECONDS)


def _words(reader: RunReader, run_id: int, parallel: int | None, wait: str) -> list[str]:
    words = ["resume", str(run_id), "--home", str(reader.home.folder)]
    words += ["--parallel", str(parallel)] if parallel else []
    words += ["--wait", wait] if wait else []
    return words


def _log(reader: RunReader, run_id: int) -> str:
    """With the other files of the run: they are removed together."""
    folder = os.path.dirname(reader.home.folders.outputs(run_id))
    make_private(folder)
    return f"{folder}/driver.log"


def _launch(command: list[str], log: str) -> int:
    # Loaded here: every `mulligan run` loads this module, and few are detached.
    subprocess: Any = import_module("subprocess")
    launched = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LAUNCH, log, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        start_new_session=True,
    )
    return int(launched.stdout)


def _said(log: str) -> str:
    """The last of what a process has written."""
    return f":\n{''.join(_last_lines(log)).rstrip()}" if os.path.exists(log) else ""


def _last_lines(log: str) -> Iterator[str]:
    with open_regular_file(log) as file:
        file.seek(max(0, os.path.getsize(log) - SAID_BYTES_MAX))
        yield from (f"  {line.decode('utf-8', 'replace')}" for line in file.read().splitlines(keepends=True))
