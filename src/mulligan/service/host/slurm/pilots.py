"""Pilots: Slurm jobs in which a worker runs. What one submission says: its name, its options, its script.

The name of a pilot and its number are its identity. The name says for which store it works, with which profile and of
which size; the number is the index in its array of jobs, also where the array has one job. A number that is there is
never submitted again, so a submission that was cut off is not repeated.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from mulligan.core.model.clusters.slurm_profile import SlurmProfile
from mulligan.errors import StoreRefused
from mulligan.language.readers.slurm_profiles import NAMES
from mulligan.service.home import Home
from mulligan.service.host.slurm.client import SlurmJob
from mulligan.worker.slots.allocation import MIB

# The folder of the home with the output of pilots.
FOLDER = "slurm"
IDLE_EXIT = "90s"
# Slurm may send the signal up to a minute early, so a worker is to be gone before the earliest moment.
SIGNAL_SECONDS, SIGNAL_EARLY_SECONDS = 20, 60
# Shorter pilots get no signal before their end: it could come when they have just begun.
SIGNALLED_WALLTIME_SECONDS_MIN = 900.0
# The worker ends before its job: a tenth of the time, within these seconds.
MARGIN_SECONDS_MIN, MARGIN_SECONDS_MAX = 15, SIGNAL_SECONDS + SIGNAL_EARLY_SECONDS + 10
_NAME = re.compile(rf"mulligan-([0-9a-f]{{8}})-({NAMES})-((?:c\d+)?(?:m\d+)?(?:g\d+)?(?:n\d+)?|any)")
_SIZE = re.compile(r"(?:c(\d+))?(?:m(\d+))?(?:g(\d+))?(?:n(\d+))?|any")


class PilotSize(msgspec.Struct, frozen=True):
    """What a pilot asks Slurm for on each of its nodes; None for what the cluster decides. Memory in MiB."""

    cpus: int | None = None
    memory: int | None = None
    gpus: int = 0
    nodes: int = 1

    def __str__(self) -> str:
        """As it is written into the name of a job: `c4m8192g1n2`."""
        parts = [
            ("c", self.cpus),
            ("m", self.memory),
            ("g", self.gpus or None),
            ("n", None if self.nodes == 1 else self.nodes),
        ]
        return "".join(f"{letter}{number}" for letter, number in parts if number is not None) or "any"


class PilotName(msgspec.Struct, frozen=True):
    """The name of a pilot's job: for which store, with which profile, of which size."""

    store: str
    profile: str
    size: PilotSize

    def __str__(self) -> str:
        return f"{name_prefix(self.store)}{self.profile}-{self.size}"


class Pilot(msgspec.Struct, frozen=True):
    """A pilot that Slurm knows."""

    name: PilotName
    number: int
    job: SlurmJob


def name_prefix(store: str) -> str:
    """How the names of all pilots of a store begin."""
    return f"mulligan-{store}-"


def parse_name(text: str) -> PilotName | None:
    """The name of a pilot; None for any other job."""
    found = _NAME.fullmatch(text)
    size = _SIZE.fullmatch(found[3]) if found else None
    if found is None or size is None:
        return None
    cpus, memory, gpus, nodes = (int(part) if part else None for part in size.groups())
    return PilotName(found[1], found[2], PilotSize(cpus, memory, gpus or 0, nodes or 1))


def find_pilots(jobs: Iterable[SlurmJob], store: str) -> list[Pilot]:
    """The pilots of a store among the jobs, by name and number; of two with the same number the older one first."""
    found = []
    for job in jobs:
        name = parse_name(job.name)
        if name is not None and name.store == store:
            found.append(Pilot(name, job.index or 0, job))
    # By the id of the array, which is older: a job gets an id of its own only when it starts.
    return sorted(found, key=lambda one: (one.name.profile, str(one.name.size), one.number, int(one.job.array_id)))


def size_of(profile: SlurmProfile) -> PilotSize:
    """What the pilots of a profile ask for, if no task says more."""
    memory = None if profile.memory is None else mebibytes(profile.memory)
    return PilotSize(profile.cpus, memory, profile.gpus, profile.nodes)


def mebibytes(size: int) -> int:
    return math.ceil(size / MIB)


def free_numbers(taken: Collection[int], count: int) -> list[int]:
    """The lowest numbers that no pilot has."""
    found: list[int] = []
    number = 1
    while len(found) < count:
        if number not in taken:
            found.append(number)
        number += 1
    return found


def array_of(numbers: Sequence[int]) -> str:
    """Numbers as sbatch takes them: `1-3,7`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in parts)


# -- for which store --------------------------------------------------------------------------------------------------


def store_identity(home: Home) -> str:
    """A short text for the store that pilots work for, the same for everybody who names it in the same way.

    It contains neither user nor password. `StoreRefused` for a store that only this host can use.
    """
    if not home.store_url:
        raise StoreRefused(
            f"pilots run on other hosts, and the store in '{home.folder}' is a file of this one (SQLite)",
            hint='use PostgreSQL: eval "$(mulligan postgres start --listen $(hostname))"; '
            "or a server that pilots can reach: MULLIGAN_SERVER=URL",
        )
    return hashlib.sha256(_address(home.store_url).encode()).hexdigest()[:8]


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        return url
    # A server may hold several stores: in databases, and in schemas, which the options of the connection name.
    query = dict(parse_qsl(parts.query))
    host = parts.hostname or query.get("host", "")
    port = parts.port or query.get("port", "5432")
    return f"postgresql://{host}:{port}{parts.path}?{query.get('options', '')}"


def only_for_this_host(home: Home) -> str:
    """The address of the store if other hosts cannot reach it under that name; "" if they may."""
    parts = urlsplit(home.store_url)
    host = parts.hostname or dict(parse_qsl(parts.query)).get("host", "")
    is_local = host in ("", "localhost", "::1") or host.startswith(("127.", "/"))
    return (host or "a socket of this host") if is_local else ""


# -- what is submitted ------------------------------------------------------------------------------------------------


def sbatch_options(name: PilotName, numbers: Sequence[int], profile: SlurmProfile, home: Path) -> list[str]:
    """The options of sbatch for these pilots. Those of the profile come last, so that they count."""
    size = name.size
    given = [
        f"--job-name={name}",
        f"--array={array_of(numbers)}",
        # Slurm replaces what stands behind a `%`.
        f"--output={str(home / FOLDER).replace('%', '%%')}/{name}.%A_%a.out",
        "--open-mode=append",
        "--export=ALL",
        f"--nodes={size.nodes}",
        "--ntasks-per-node=1",
    ]
    given += [f"--cpus-per-task={size.cpus}"] if size.cpus else []
    given += [f"--mem={size.memory}M"] if size.memory else []
    given += [f"--gres=gpu:{size.gpus}"] if size.gpus else []
    for key in ("partition", "account", "qos", "constraint"):
        given += [f"--{key}={value}"] if (value := getattr(profile, key)) else []
    if profile.walltime is not None:
        given.append(f"--time={math.ceil(profile.walltime / 60)}")
        if profile.walltime >= SIGNALLED_WALLTIME_SECONDS_MIN:
            given.append(f"--signal=B:TERM@{SIGNAL_SECONDS}")
    return [*given, *profile.options]


def job_script(
    name: PilotName,
    profile: SlurmProfile,
    home: Home,
    *,
    tasks: int | None = None,
    idle_exit: str = IDLE_EXIT,
    token_file: str = "",
    python: str = sys.executable,
) -> str:
    """The script of a pilot. It has no secret in it: a pilot inherits the environment of its caller.

    The worker takes the place of the shell, so that it gets the signals that Slurm sends to the job.
    """
    worker = ["worker", "--idle-exit", idle_exit]
    worker += ["--server", home.store_url] if home.is_remote else ["--home", str(home.folder)]
    worker += ["--token-file", token_file] if token_file else []
    worker += ["--labels", ",".join(profile.labels)] if profile.labels else []
    worker += ["--tasks", str(tasks or profile.tasks)] if tasks or profile.tasks else []
    worker += ["--nodes", str(name.size.nodes)] if name.size.nodes > 1 else []
    return "\n".join(
        [
            "#!/bin/bash",
            "# A pilot: a Slurm job in which a worker of Mulligan runs.",
            "# Until the worker is up it cannot be asked to finish its tasks first.",
            "trap '' USR1",
            f"export MULLIGAN_SLURM_PROFILE={shlex.quote(name.profile)}",
            *(line for lines in profile.setup for line in _setup(lines)),
            *_END_OF_TIME,
            f"python={shlex.quote(python)}",
            'if [ -x "$python" ]; then program=("$python" -m mulligan); else program=(mulligan); fi',
            f'exec "${{program[@]}}" {shlex.join(worker)} "${{limit[@]}}"',
            "",
        ]
    )


# Until when the worker may run. Slurm 22.05 has no variable for it. The last job of an array has the id of the whole
# array, under which squeue lists all of them.
_END_OF_TIME = (
    "limit=()",
    'ends="${SLURM_JOB_END_TIME:-}"',
    'if [ -z "$ends" ]; then',
    '  job="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"',
    '  ends=$(SLURM_TIME_FORMAT=standard timeout 30 squeue --noheader --jobs="$job" --format=%e 2>/dev/null)',
    '  [ -z "$ends" ] || ends=$(date --date="$ends" +%s 2>/dev/null) || ends=',
    "fi",
    'if [ -n "$ends" ]; then',
    "  left=$((ends - $(date +%s)))",
    f"  margin=$((left / 10 > {MARGIN_SECONDS_MAX} ? {MARGIN_SECONDS_MAX} : left / 10))",
    f"  margin=$((margin < {MARGIN_SECONDS_MIN} ? {MARGIN_SECONDS_MIN} : margin))",
    '  limit=(--until "$((left - margin > 1 ? left - margin : 1))s")',
    "fi",
)


def _setup(lines: str) -> list[str]:
    """Lines of the profile in the shell of the job. If they fail, the pilot ends before it takes tasks.

    Not with `set -e`: the functions of module systems may contain commands that fail.
    """
    message = shlex.quote(f"the setup of the profile failed: {lines.strip().splitlines()[0]}")
    # Lines that are only a comment are no command, and an empty group is an error.
    return ["{ :", lines, f"}} || {{ echo {message} >&2; exit 1; }}"]
