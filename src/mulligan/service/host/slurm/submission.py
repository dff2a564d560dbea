"""Submitting pilots so that none is submitted twice, whoever is killed and however many do it at the same time.

One process at a time looks and submits: it holds a lock, which its sbatch inherits. So if it is killed, the next one
looks only after that sbatch has ended, and finds its jobs by their names. The lock is a file of the user, by store:
it holds for all processes of this host, and for all hosts whose file system locks files. Where it does not hold,
two submissions of one number may happen: each look cancels the younger one.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from mulligan.core.model.clusters.slurm_profile import SlurmProfile
from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import HomeUnusable, InputInvalid, SlurmUnreachable
from mulligan.service.home import Home
from mulligan.service.host.slurm.client import SlurmClient
from mulligan.service.host.slurm.pilots import (
    FOLDER,
    Pilot,
    PilotName,
    find_pilots,
    job_script,
    name_prefix,
    sbatch_options,
    store_identity,
)
from mulligan.worker.folders import make_private

# The variable that names the file with the token for workers, if the store is behind a server.
TOKEN_FILE_VARIABLE = "MULLIGAN_WORKER_TOKEN_FILE"
# A call of sbatch that another process has begun ends within this time.
LOCK_SECONDS_MAX = 120.0
LOCK_POLL_SECONDS = 0.1


class Submitted(msgspec.Struct, frozen=True):
    """Pilots that were submitted together."""

    profile: str
    job_id: str
    name: str
    numbers: tuple[int, ...]
    # Where their output goes: one file per pilot.
    output: str


class Cluster:
    """The pilots of one store, in the Slurm that is here."""

    def __init__(self, home: Home, client: SlurmClient | None = None, environ: Mapping[str, str] = os.environ) -> None:
        self.home = home
        self.client = client or SlurmClient(environ)
        self.store = store_identity(home)
        # Files of this user about the store, for all folders from which it is used.
        self.folder = _state_folder(environ) / self.store
        self._lock_fd: int | None = None
        self._environ = environ

    def pilots(self) -> list[Pilot]:
        """The pilots of the store: those that wait or run, and what Slurm remembers of the others."""
        return find_pilots(self.client.jobs(name_prefix(self.store)), self.store)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process looks and submits meanwhile."""
        fd = _open(self.folder)
        try:
            _wait_for(fd)
            self._lock_fd = fd
            yield
        finally:
            self._lock_fd = None
            os.close(fd)

    def cancel_duplicates(self, pilots: Sequence[Pilot]) -> list[Pilot]:
        """Cancel pilots whose number an older one has. The others."""
        kept: dict[tuple[str, int], Pilot] = {}
        twice: list[str] = []
        for one in pilots:
            if not one.job.is_active:
                continue
            key = (str(one.name), one.number)
            # The older one comes first.
            if key in kept:
                twice.append(one.job.shown_id)
            else:
                kept[key] = one
        if twice:
            self.client.cancel(twice)
        return [one for one in pilots if one.job.shown_id not in twice]

    def submit(
        self, name: PilotName, numbers: Sequence[int], profile: SlurmProfile, *, tasks: int | None = None
    ) -> Submitted:
        """Submit pilots with these numbers, which no pilot of that name has. Only inside of `alone`."""
        assert self._lock_fd is not None, "a submission needs the lock"
        self._make_output_folder()
        options = sbatch_options(name, numbers, profile, self.home.folder)
        script = job_script(
            name, profile, self.home, tasks=tasks, token_file=_worker_token_file(self.home, self._environ)
        )
        job_id = self.client.submit(options, script, lock_fd=self._lock_fd)
        output = str(self.home.folder / FOLDER / f"{name}.{job_id}_*.out")
        return Submitted(name.profile, job_id, str(name), tuple(numbers), output)

    def _make_output_folder(self) -> None:
        self.home.make()
        try:
            make_private(str(self.home.folder / FOLDER))
        except OSError as error:
            raise self.home.trouble(error) from error


def _worker_token_file(home: Home, environ: Mapping[str, str]) -> str:
    """The file with the token for workers of a server. A pilot reads it: the token itself is passed nowhere."""
    if not home.is_remote:
        return ""
    file = environ.get(TOKEN_FILE_VARIABLE, "")
    if not file:
        raise InputInvalid(
            f"pilots need a token for workers of {home.place}",
            hint=f"make one where the server is (mulligan token create pilots --scope worker), put it into a file that "
            f"the nodes can read and others cannot, and name that file: {TOKEN_FILE_VARIABLE}=FILE",
        )
    if not os.path.isfile(file):
        raise InputInvalid(f"{TOKEN_FILE_VARIABLE} names '{file}', which is not a file", hint="correct it")
    return os.path.abspath(file)


def _state_folder(environ: Mapping[str, str]) -> Path:
    given = environ.get("XDG_STATE_HOME")
    return (Path(given) if given else Path(environ.get("HOME") or "~").expanduser() / ".local/state") / "mulligan/slurm"


def _open(folder: Path) -> int:
    try:
        make_private(str(folder))
        return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HomeUnusable(
            f"'{folder}' cannot be used: {error_reason(error)}", hint="name another folder: XDG_STATE_HOME=DIR"
        ) from None


def _wait_for(fd: int) -> None:
    due = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > due:
                raise SlurmUnreachable(
                    "another process of yours has been submitting pilots for this store for two minutes",
                    hint="see whether a call of sbatch hangs: ps -C sbatch",
                ) from None
        time.sleep(LOCK_POLL_SECONDS)
