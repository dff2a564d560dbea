"""The private Slurm leaves nothing behind: no process, no control group, no folder."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import private_slurm
from tests.support.private_slurm import CGROUPS, PrivateSlurm, wait_until, why_not

from mulligan.worker.supervisor.processes import environment_of, snapshot

# A process that leaves its session and ignores what is said to it.
STRAY = "import os, signal, time; os.setsid(); signal.signal(15, signal.SIG_IGN); open('up', 'w'); time.sleep(600)"
# A process that starts a Slurm and then waits.
OWNER = f"""
import sys; sys.path.insert(0, {str(Path(private_slurm.__file__).parent)!r})
from private_slurm import PrivateSlurm
print(PrivateSlurm().folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("proctrack", ["cgroup", "linuxproc"])
def test_what_its_jobs_started_ends_with_it(proctrack: str, tmp_path: Path) -> None:
    if reason := why_not(proctrack):
        pytest.skip(reason)
    with PrivateSlurm(proctrack) as slurm:
        slurm.submit(f"{shlex.quote(sys.executable)} -c {shlex.quote(STRAY)} & wait", cwd=tmp_path)
        wait_until((tmp_path / "up").exists, "the job did not start")
        assert len(left_of(slurm.folder)) > 6

    assert left_of(slurm.folder) == []
    assert not slurm.folder.exists()
    assert [str(group) for node in slurm.nodes for group in CGROUPS.glob(f"*/slurm_{node}")] == []


def test_it_ends_when_its_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=-1, stdout=-1, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert left_of(folder)

        os.kill(owner.pid, signal.SIGKILL)

        wait_until(lambda: not folder.exists() and not left_of(folder), "it did not end")


def left_of(folder: Path) -> list[int]:
    """The processes that have the configuration of this Slurm."""
    configuration = os.fsencode(folder / "slurm.conf")
    return [pid for pid in snapshot() if environment_of(pid).get(b"SLURM_CONF") == configuration]
