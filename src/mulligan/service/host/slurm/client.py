"""Talks to Slurm through its programs: sbatch, squeue and scancel. Every call has a bounded time.

What the programs print is read here and nowhere else. `Reason` is never read: it does not say what its name promises.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import SlurmMissing, SlurmRefused, SlurmUnreachable

# How long a controller may take. A call that takes longer counts as unreachable: what it did is seen at the next look.
LOOK_SECONDS_MAX, SUBMIT_SECONDS_MAX = 30.0, 60.0
# Identifiers per call of scancel: a command line is bounded.
JOBS_PER_CALL = 500
# Id of the job, id and index of its array, state, times, nodes, and the name last, since it may contain anything.
_FORMAT = "%A|%F|%K|%T|%V|%S|%e|%D|%N|%j"
_FIELDS = _FORMAT.count("|")
_JOB_ID = re.compile(r"\d{1,20}", re.ASCII)

# States of jobs that hold or will hold resources.
PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
RUNNING = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT", "COMPLETING"})
ACTIVE = PENDING | RUNNING

# What a refusal of sbatch is about: the size of the job, a limit that others may free, or what the profile says.
About = Literal["shape", "limit", "profile"]

# Sentences of programs that could not ask the controller, in lower case.
_UNREACHABLE = (
    "unable to contact slurm controller",
    "unable to contact controller",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "connection failure",
    "communication connection failure",
    "communications connection failure",
    "zero bytes were transmitted",
    "unable to establish configuration source",
    "unexpected message received",
    "transport endpoint is not connected",
    "no route to host",
    "munge",
    "authentication credential",
    "slurm temporarily unable to accept job",
    "slurm backup controller in standby mode",
    "slurm controller in standby mode",
    "resource temporarily unavailable",
)
_LIMITS = (
    "maxsubmit",
    "submit limit",
    "maxjobs",
    "limit on the number of jobs",
    "maximum number of jobs",
    "job violates accounting/qos policy",
    "requested partition configuration not available now",
    "requested account has breached",
    "requested nodes are busy",
    "requested reservation not usable now",
    "presently disabled",
    # Beyond MaxArraySize.
    "invalid job array specification",
)
_SHAPES = (
    "requested node configuration is not available",
    "node count specification invalid",
    "more processors requested than permitted",
    "cpu count per node can not be satisfied",
    "cpu count specification invalid",
    "memory specification can not be satisfied",
    "memory required by task is not available",
    "invalid generic resource",
    "requested more tasks than available processors",
    "insufficient gres available",
)
_SLURM_KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"})
_SBATCH_DROPPED = frozenset(
    f"SBATCH_{name}"
    for name in "ARRAY_INX ERROR EXPORT JOB_NAME OPEN_MODE OUTPUT REQUEUE SIGNAL TEST_ONLY WAIT".split()
)
_IS_SBATCH = re.compile(r"^(?:sbatch|squeue|scancel): (?:error|fatal): ")
# What a program says before it refers to its help: `sbatch: unrecognized option '--fast'`.
_NAME = re.compile(r"^(?:sbatch|squeue|scancel): ")
_SEE_HELP = re.compile(r'^Try "\w+ --help" for more information')
_SENTENCE_CHARS_MAX = 500
_BATCH_FAILED = re.compile(r"^Batch job submission failed: ")


class SlurmJob(msgspec.Struct, frozen=True):
    """One job, or one element of an array of jobs."""

    job_id: str
    array_id: str
    # None outside of an array.
    index: int | None
    state: str
    name: str
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ends_at: datetime | None = None
    nodes: int = 1
    node: str = ""

    @property
    def shown_id(self) -> str:
        """The id as Slurm writes it, and as its programs take it: `17`, or `17_3` in an array."""
        return self.job_id if self.index is None else f"{self.array_id}_{self.index}"

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    @property
    def is_pending(self) -> bool:
        return self.state in PENDING


class SlurmClient:
    """Calls the programs of Slurm that are on the PATH."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    def require(self, *programs: str) -> None:
        """`SlurmMissing` unless all of these are there."""
        missing = next((one for one in programs if shutil.which(one, path=self._environ.get("PATH")) is None), None)
        if missing is not None:
            raise SlurmMissing(
                f"{missing} is not on the PATH",
                hint="call this where Slurm is installed: on a login node, or after 'module load slurm'",
                program=missing,
            )

    def jobs(self, prefix: str) -> list[SlurmJob]:
        """The jobs of this user whose names begin so, those included that have ended and that Slurm remembers."""
        text = self._call(
            ["squeue", "--me", "--array", "--noheader", "--states=all", f"--format={_FORMAT}"], LOOK_SECONDS_MAX
        )
        found = (parse_job(line) for line in text.splitlines())
        return [job for job in found if job is not None and job.name.startswith(prefix)]

    def submit(self, options: Sequence[str], script: str, *, lock_fd: int | None = None) -> str:
        """Submit a script; the id of the job. `SlurmRefused` with Slurm's own sentence.

        sbatch inherits the descriptor: whoever waits for that lock knows that no call is under way any more.
        """
        printed = self._call(["sbatch", "--parsable", *options], SUBMIT_SECONDS_MAX, script, lock_fd)
        job_id = printed.strip().splitlines()[-1].partition(";")[0] if printed.strip() else ""
        if not job_id.isdecimal():
            raise SlurmRefused(f"sbatch printed no job id: {printed.strip()[:200]!r}", about="profile")
        return job_id

    def cancel(self, ids: Iterable[str], *options: str) -> None:
        """Cancel jobs, or send them the signal that the options name. Those that have ended are left out."""
        left = list(ids)
        while left:
            now, left = left[:JOBS_PER_CALL], left[JOBS_PER_CALL:]
            self._call(["scancel", "--quiet", *options, *now], SUBMIT_SECONDS_MAX)

    def _call(self, command: Sequence[str], seconds: float, text: str = "", lock_fd: int | None = None) -> str:
        program = command[0]
        self.require(program)
        try:
            done = subprocess.run(
                command,
                input=text.encode(),
                capture_output=True,
                timeout=seconds,
                env=slurm_environment(self._environ),
                pass_fds=() if lock_fd is None else (lock_fd,),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SlurmUnreachable(f"{program} has not answered for {seconds:g}s", hint=_UNREACHABLE_HINT) from None
        except OSError as error:
            raise SlurmMissing(f"{program} cannot be started: {error_reason(error)}", program=program) from None
        said = done.stderr.decode(errors="replace")
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
        sentence = sentence_of(said) or f"{program} failed with exit code {done.returncode}"
        if program == "scancel" and "invalid job id" in sentence.lower():
            # They have ended meanwhile.
            return ""
        if is_unreachable(said):
            raise SlurmUnreachable(f"Slurm cannot be asked: {sentence}", hint=_UNREACHABLE_HINT)
        raise SlurmRefused(f"{program}: {sentence}", about=about(sentence), sentence=sentence)


_UNREACHABLE_HINT = "runs go on without it; see whether the controller is up: scontrol ping"


def slurm_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a program of Slurm.

    Inside of a job, variables about that job would become part of the new one. Variables by which users change what
    the programs do by default may name a partition or an account, but not what we rely on.
    """
    found = {
        name: value
        for name, value in environ.items()
        if name in _SLURM_KEPT or not (name in _SBATCH_DROPPED or name.startswith(("SLURM_", "SQUEUE_", "SCANCEL_")))
    }
    return {**found, "SLURM_TIME_FORMAT": "standard"}


def parse_job(line: str) -> SlurmJob | None:
    """One line of squeue; None if it is not what we have asked for."""
    parts = line.split("|", _FIELDS)
    if len(parts) != _FIELDS + 1 or not all(_JOB_ID.fullmatch(part.strip()) for part in parts[:2]):
        return None
    job_id, array_id, index, state, submitted, started, ends, nodes, node, name = (part.strip() for part in parts)
    return SlurmJob(
        job_id=job_id,
        array_id=array_id,
        index=int(index) if _JOB_ID.fullmatch(index) else None,
        state=state,
        name=name,
        submitted_at=_time(submitted),
        started_at=_time(started),
        ends_at=_time(ends),
        nodes=int(nodes) if _JOB_ID.fullmatch(nodes) else 1,
        node=node,
    )


def _time(text: str) -> datetime | None:
    """A time as Slurm writes it, by the clock of this host; None for N/A, NONE, Unknown."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def sentence_of(said: str) -> str:
    """What a program of Slurm says last, without its name before it."""
    lines = [line.strip() for line in said.splitlines()]
    lines = [line for line in lines if line and not _SEE_HELP.match(line)]
    errors = [line for line in lines if _IS_SBATCH.match(line)]
    last = (errors or lines)[-1:] or [""]
    return _BATCH_FAILED.sub("", _NAME.sub("", _IS_SBATCH.sub("", last[0])))[:_SENTENCE_CHARS_MAX]


def is_unreachable(said: str) -> bool:
    text = said.lower()
    return any(one in text for one in _UNREACHABLE)


def about(sentence: str) -> About:
    """What a refusal of sbatch is about."""
    text = sentence.lower()
    if any(one in text for one in _LIMITS):
        return "limit"
    return "shape" if any(one in text for one in _SHAPES) else "profile"
