"""A private Slurm for tests: the programs on the PATH, four nodes on one machine, everything in one folder.

One process, the guard, is the ancestor of all others: daemons, steps and whatever the jobs start. It runs this file.
When it is told to end, or when whoever started it is gone, it kills its descendants and removes what they left: control
groups and the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

PROGRAMS = ("unshare", "munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol", "srun")
INSTALL = "apt-get install slurm-wlm munge"
NODES = 4
CPUS, MEMORY_MIB = 8, 4000
START_SECONDS_MAX = 30.0
CGROUPS = Path("/sys/fs/cgroup")
# What the plugins of Slurm for version 1 of control groups use.
HIERARCHIES = ("freezer", "memory", "cpuset", "devices")
# Administrators' programs are in folders that are not on everybody's PATH.
SEARCH_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"

_CONFIGURATION = """
ClusterName=mulligan
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldDebug=info
SlurmdDebug=info
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
ProctrackType=proctrack/{proctrack}
TaskPlugin={task_plugin}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
PriorityType=priority/basic
KillWait=5
OverTimeLimit=0
EnforcePartLimits=ALL
SlurmctldTimeout=10
SlurmdTimeout={node_timeout}
InactiveLimit=0
UnkillableStepTimeout=30
MinJobAge=600
DefMemPerCPU=250
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=low Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=requeued Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=closed Nodes=ALL MaxTime=INFINITE State=DOWN
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=100 PreemptMode=OFF State=UP
"""
_CGROUP_CONFIGURATION = """
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace={constrain}
ConstrainSwapSpace={constrain}
AllowedSwapSpace=0
ConstrainDevices=no
"""


def why_not(proctrack: str = "linuxproc") -> str:
    """Why a private Slurm cannot be started here; "" if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]
    if missing:
        return f"{', '.join(missing)} not found; on Debian: {INSTALL}"
    if os.geteuid() != 0:
        return "a private Slurm needs root: slurmd starts the steps of jobs under the ids of their users"
    if proctrack == "cgroup":
        for hierarchy in HIERARCHIES:
            folder = CGROUPS / hierarchy
            if not (folder / "cgroup.procs").exists():
                return f"proctrack/cgroup needs version 1 of control groups, and '{folder}' is not mounted"
            if not os.access(folder, os.W_OK):
                return f"proctrack/cgroup makes control groups, and '{folder}' cannot be written"
    return ""


class Job(NamedTuple):
    """What `scontrol show job` says of a job: `fields` has all of it."""

    id: str
    state: str
    fields: Mapping[str, str]


class SlurmRefused(Exception):
    """A command of Slurm did not succeed."""


class PrivateSlurm:
    """A Slurm that runs until it is closed, or until this process ends."""

    def __init__(self, proctrack: str = "linuxproc", node_timeout: int = 6) -> None:
        # A short path of its own: sockets are below it, and their paths are limited to about a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="mulligan-slurm-"))
        self.folder.chmod(0o755)
        # The control groups of a node have its name, and several private Slurms may run at the same time.
        self.nodes = tuple(f"m{os.getpid()}{self.folder.name[-4:]}n{number}" for number in range(1, NODES + 1))
        self.proctrack = proctrack
        self._killed: list[str] = []
        self.environ = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._write_configuration(node_timeout)
        command = [sys.executable, "-S", __file__, str(self.folder), *self.nodes]
        self._guard = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            self._start_all()
        except BaseException as error:
            error.add_note(self.logs())
            self.close()
            raise

    def _start_all(self) -> None:
        self._ask("start", "munged")
        wait_until((self.folder / "munge.socket").exists, "munged did not open its socket")
        self._ask("start", "slurmctld")
        for node in self.nodes:
            self._ask("start", node)
        wait_until(lambda: self.idle_nodes() == set(self.nodes), "the nodes did not come up")

    def _write_configuration(self, node_timeout: int) -> None:
        (self.folder / "state").mkdir()
        for node in self.nodes:
            (self.folder / node).mkdir()
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        controller_port, *ports = _free_ports(1 + NODES)
        host = socket.gethostname().partition(".")[0]
        nodes = "\n".join(
            f"NodeName={node} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory={MEMORY_MIB}"
            for node, port in zip(self.nodes, ports, strict=True)
        )
        has_cgroups = self.proctrack == "cgroup"
        text = _CONFIGURATION.format(
            host=host,
            folder=self.folder,
            controller_port=controller_port,
            proctrack=self.proctrack,
            task_plugin="task/cgroup" if has_cgroups else "task/none",
            node_timeout=node_timeout,
            nodes=nodes,
        )
        (self.folder / "slurm.conf").write_text(text)
        cgroups = _CGROUP_CONFIGURATION.format(constrain="yes" if has_cgroups else "no")
        (self.folder / "cgroup.conf").write_text(cgroups)

    def close(self) -> None:
        """End every process, and remove the folder and the control groups."""
        if self._guard.stdin is not None:
            with contextlib.suppress(OSError):
                self._guard.stdin.close()
        self._guard.wait(timeout=60)
        if self._guard.stdout is not None:
            self._guard.stdout.close()

    def __enter__(self) -> PrivateSlurm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *command: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environ, **(environ or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise SlurmRefused(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, script: str, *options: str, environ: Mapping[str, str] | None = None, cwd: Path) -> str:
        """The id of a new job that runs this script of a shell in the folder."""
        options = ("--output=%x-%j.out", f"--wrap={script}", *options)
        return self.run("sbatch", "--parsable", *options, environ=environ, cwd=cwd).strip()

    def jobs(self) -> list[Job]:
        """All jobs that Slurm remembers, the first one first."""
        lines = self.run("scontrol", "--oneliner", "show", "job").splitlines()
        jobs = [dict(_fields(line)) for line in lines if line.startswith("JobId=")]
        return sorted((Job(one["JobId"], one["JobState"], one) for one in jobs), key=lambda job: int(job.id))

    def job(self, job_id: str) -> Job:
        return next(job for job in self.jobs() if job.id == job_id)

    def idle_nodes(self) -> set[str]:
        """The nodes that could run a job now."""
        try:
            listed = self.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %t")
        except SlurmRefused:
            return set()
        return {line.split()[0] for line in listed.splitlines() if line.split()[1] in ("idle", "mix", "alloc")}

    def cancel_all(self) -> None:
        """End all jobs, and wait until none of them is left."""
        self.run("scancel", "--user=root")
        wait_until(lambda: not self.run("squeue", "--noheader").strip(), "the jobs did not end", seconds=60)

    def kill_controller(self) -> None:
        """Kill slurmctld with SIGKILL, once it has written which jobs run: it does so up to five seconds later.

        A controller that comes back without knowing that a job runs ends it.
        """
        saved, changed_at = self.folder / "state" / "job_state", time.time()
        wait_until(
            lambda: (saved.exists() and saved.stat().st_mtime > changed_at) or time.time() > changed_at + 6,
            "slurmctld did not write its state",
        )
        self._kill("slurmctld")

    def kill_node(self, node: str) -> None:
        """Kill all that runs on a node at once: its slurmd, the steps of jobs, and what they started."""
        self._kill(node)

    def _kill(self, name: str) -> None:
        self._killed.append(name)
        self._ask("kill", name)

    def start_what_is_missing(self) -> None:
        """Start again what was killed: the controller finds its jobs, the nodes come back empty."""
        if not self._killed:
            return
        # The controller first: it has to learn that the jobs of a killed node are gone.
        killed, self._killed = sorted(self._killed, key=lambda name: name in self.nodes), []
        for name in killed:
            if name in self.nodes:
                self.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=killed")
            self._ask("start", name)
            if name not in self.nodes:
                wait_until(lambda: bool(self.idle_nodes()), "slurmctld did not come back")
        wait_until(lambda: self.idle_nodes() == set(self.nodes), "the nodes did not come back")

    def logs(self) -> str:
        """The ends of all logs of the daemons, for the report of a test that failed."""
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{file.name}:\n{_end_of(file)}" for file in files)

    def _ask(self, *words: str) -> Any:
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        self._guard.stdin.write(json.dumps(words) + "\n")
        self._guard.stdin.flush()
        answer = self._guard.stdout.readline()
        if not answer:
            raise RuntimeError("the guard of the private Slurm has ended")
        return json.loads(answer)


def wait_until(is_so: Callable[[], bool], complaint: str, seconds: float = START_SECONDS_MAX) -> None:
    """Wait for something that Slurm does in its own time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{complaint} within {seconds:.0f} s")
        time.sleep(0.05)


def _end_of(log: Path) -> str:
    # Libraries for MPI and files of an earlier state are always missing.
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if not any(one in line for one in ("mpi", "MPI", "state file"))][-20:])


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _fields(line: str) -> Iterator[tuple[str, str]]:
    for word in line.split(" "):
        name, equals, value = word.partition("=")
        if equals:
            yield name, value


# What the guard does. It has the folder and the names of the nodes, and its input and output are the test's.


class Process(NamedTuple):
    pid: int
    parent: int
    started: str


def _processes() -> dict[int, Process]:
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
                if words[0] not in "ZX":
                    found[int(entry.name)] = Process(int(entry.name), int(words[1]), words[19])
    return found


def _descendants(ancestors: set[int]) -> list[Process]:
    """All processes below these, the parents first."""
    processes = _processes()
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = list(ancestors)
    while waiting:
        below = children.get(waiting.pop(), [])
        found.extend(below)
        waiting.extend(process.pid for process in below)
    return found


def _kill(processes: list[Process]) -> None:
    """Kill them so that none of them can answer the death of another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)


def _environment(pid: int) -> dict[str, str]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return dict(pair.partition("=")[::2] for pair in text.split("\0"))
    return {}


class Guard:
    def __init__(self, folder: Path, nodes: list[str]) -> None:
        self._folder = folder
        self._nodes = nodes
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self, requests: IO[str]) -> None:
        for line in requests:
            verb, name = json.loads(line)
            if verb == "start":
                self._start(name)
            elif name in self._nodes:
                self._kill_node(name)
            else:
                self._started.pop(name).kill()
            print(json.dumps("done"), flush=True)

    def _start(self, name: str) -> None:
        folder = self._folder
        if name == "munged":
            command = [
                *("munged", "--foreground", "--force", f"--key-file={folder}/munge.key"),
                *(f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"),
                *(f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed", "--num-threads=2"),
            ]
        elif name == "slurmctld":
            command = ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"]
        else:
            # As on a cluster, each node has a host name of its own and looks like a kernel of its own.
            Path(folder, f"{name}.boot").write_text(f"{uuid.uuid4()}\n")
            become = (
                'mount --bind "$1/$0.boot" /proc/sys/kernel/random/boot_id && '
                'echo "$0" > /proc/sys/kernel/hostname && exec slurmd -D -N "$0" -f "$1/slurm.conf"'
            )
            command = ["unshare", "--uts", "--mount", "sh", "-c", become, name, f"{folder}"]
        program = shutil.which(command[0], path=SEARCH_PATH)
        assert program is not None
        environ = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf", "PATH": SEARCH_PATH}
        with Path(folder, f"{name}.said").open("ab") as said:
            self._started[name] = subprocess.Popen(
                [program, *command[1:]],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def _kill_node(self, node: str) -> None:
        """Its slurmd, the processes of jobs there, and the slurmstepd above each of them."""
        slurmd = self._started.pop(node)
        below = _descendants({os.getpid()})
        ours = {process.pid for process in below if _environment(process.pid).get("SLURMD_NODENAME") == node}
        parents = {process.parent for process in below if process.pid in ours} - ours - {os.getpid()}
        _kill([process for process in below if process.pid in ours | parents | {slurmd.pid}])
        slurmd.wait()
        _remove_cgroups([node])

    def end(self) -> None:
        while processes := _descendants({os.getpid()}):
            _kill(processes)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.01)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        _remove_cgroups(self._nodes)
        shutil.rmtree(self._folder, ignore_errors=True)


def _remove_cgroups(nodes: list[str]) -> None:
    for node in nodes:
        for root in CGROUPS.glob(f"*/slurm_{node}"):
            for folder, _, _ in os.walk(root, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)


def guard(folder: str, *nodes: str) -> None:
    # Whoever loses its parent gets this process as its parent.
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard = Guard(Path(folder), list(nodes))
    try:
        guard.serve(sys.stdin)
    finally:
        guard.end()


if __name__ == "__main__":
    if sys.argv[1:]:
        guard(*sys.argv[1:])
    else:
        # Whether one could be started here.
        sys.exit(why_not() or None)
