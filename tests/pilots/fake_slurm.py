"""A fake Slurm: sbatch, squeue and scancel as small scripts that keep their jobs in one folder.

A test starts, ends and fails jobs itself. `deaths` counts calls down: at its turn a program kills the process that
called it with -9, before or after it has done its work.
"""

from __future__ import annotations

import marshal
import os
import signal
import sys
from pathlib import Path
from typing import Any

# It imports no module of Python's library that is written in Python: `json` would take as long as all of the rest.
_PROGRAM = """#!{python} -IS
import fcntl, marshal, os, sys, time
folder = {folder!r}
program = os.path.basename(sys.argv[0])
arguments = sys.argv[1:]
text = sys.stdin.read() if program == "sbatch" else ""

def read():
    with open(folder + "/state", "rb") as file:
        return marshal.load(file)

with open(folder + "/lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    state = read()
    state["calls"].append([program, *arguments])

    def save():
        with open(folder + "/state.new", "wb") as file:
            marshal.dump(state, file)
        os.replace(folder + "/state.new", folder + "/state")

    def die(when):
        if state["death"] and state["death"]["when"] == when and state["death"]["program"] in (program, "any"):
            state["death"]["calls"] -= 1
            is_now = state["death"]["calls"] == 0
            state["death"] = None if is_now else state["death"]
            save()
            if is_now:
                os.kill(os.getppid(), {kill:d})

    die("before")
    if program == "sbatch" and state["linger"]:
        # It is slow, and its caller is gone: meanwhile somebody may look.
        save()
        looks = sum(call[0] == "squeue" for call in state["calls"])
        due = time.monotonic() + state["linger"]
        fcntl.flock(lock, fcntl.LOCK_UN)
        while time.monotonic() < due:
            seen = read()["calls"]
            if sum(call[0] == "squeue" for call in seen) > looks:
                break
            time.sleep(0.02)
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read()
        state["linger"] = 0
    if state["refusals"].get(program):
        save()
        refusal = state["refusals"][program]
        if refusal["match"] in " ".join(arguments):
            sys.stderr.write(refusal["said"])
            sys.exit(1)
    options = dict(one.partition("=")[::2] for one in arguments if one.startswith("--"))
    printed = ""
    if program == "sbatch":
        state["last_id"] += 1
        array_id = state["last_id"]
        numbers = []
        for part in options["--array"].split(","):
            low, _, high = part.partition("-")
            numbers += range(int(low), int(high or low) + 1)
        for place, number in enumerate(numbers):
            if place:
                state["last_id"] += 1
            state["jobs"].append(dict(job_id=state["last_id"], array_id=array_id, index=number, state="PENDING",
                                      name=options["--job-name"], node="", options=options, script=text,
                                      environ={{key: value for key, value in os.environ.items()}}))
        printed = f"{{array_id}}\\n"
    elif program == "squeue":
        for job in state["jobs"]:
            started = "N/A" if job["state"] == "PENDING" else time.strftime("%Y-%m-%dT%H:%M:%S")
            printed += "|".join([str(job["job_id"]), str(job["array_id"]), str(job["index"]), job["state"],
                "2026-01-01T00:00:00", started, job.get("ends", "N/A"), "1", job["node"], job["name"]]) + "\\n"
    elif program == "scancel":
        for one in arguments:
            for job in state["jobs"]:
                if one == f"{{job['array_id']}}_{{job['index']}}" and "--signal=USR1" not in arguments:
                    job["state"] = "CANCELLED" if job["state"] in ("PENDING", "RUNNING") else job["state"]
    save()
    die("after")
sys.stdout.write(printed)
"""


class FakeSlurm:
    """The scripts and their state. `environ` is what a process needs to find them."""

    def __init__(self, folder: Path, programs: tuple[str, ...] = ("sbatch", "squeue", "scancel")) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name in programs:
            path = self.bin / name
            path.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder), kill=signal.SIGKILL))
            path.chmod(0o755)
        self._write({"jobs": [], "calls": [], "last_id": 100, "death": None, "refusals": {}, "linger": 0})

    @property
    def path(self) -> str:
        return f"{self.bin}:/usr/bin:/bin"

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = marshal.loads((self.folder / "state").read_bytes())
        return found

    def _write(self, state: dict[str, Any]) -> None:
        new = self.folder / "state.test"
        new.write_bytes(marshal.dumps(state))
        os.replace(new, self.folder / "state")

    @property
    def jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._read()["jobs"]
        return found

    @property
    def active(self) -> list[tuple[str, int]]:
        """Name and number of the jobs that wait or run."""
        return sorted((job["name"], job["index"]) for job in self.jobs if job["state"] in ("PENDING", "RUNNING"))

    def calls(self, program: str) -> list[list[str]]:
        return [call for call in self._read()["calls"] if call[0] == program]

    def change(self, number: int, **fields: Any) -> None:
        """Change the jobs with this number: their state, their node."""
        state = self._read()
        for job in state["jobs"]:
            if job["index"] == number:
                job.update(fields)
        self._write(state)

    def refuse(self, program: str, said: str, match: str = "") -> None:
        """From now on the program fails with these words, if its arguments contain `match`."""
        state = self._read()
        state["refusals"][program] = {"said": said, "match": match}
        self._write(state)

    def accept(self, program: str) -> None:
        state = self._read()
        state["refusals"].pop(program, None)
        self._write(state)

    def kill_caller(self, *, at_call: int, when: str, program: str = "any", linger: float = 0) -> None:
        """The n-th call kills the process that calls it, before or after its work.

        With `linger` the next sbatch waits so many seconds before its work, or until somebody calls squeue.
        """
        state = self._read()
        state["death"] = {"calls": at_call, "when": when, "program": program}
        state["linger"] = linger
        self._write(state)
