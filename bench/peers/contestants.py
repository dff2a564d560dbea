"""The peers: for each workload, how each of them is started. All the work is in scripts/, one file a program."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peers.environments import NotRun, program
from peers.processes import Command

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Task:
    """What a contestant is asked to do, in a folder and, where the workload has one, a database of its own."""

    folder: Path
    count: int
    parallel: int
    database: str


@dataclass(frozen=True, slots=True)
class Contestant:
    """A name in the tables, the command for a task, and the environment it comes from (none: the system's, or ours)."""

    name: str
    prepare: Callable[[Task], Command]
    environment: str = ""


def bare_commits(size: int) -> Callable[[Task], Command]:
    """Commits of so many bytes each."""
    return lambda task: _script("sqlite", "sqlite_commits.py", task.count, size)


def langgraph_chain(store: str, shape: str) -> Callable[[Task], Command]:
    return lambda task: _script("langgraph", "langgraph_chain.py", task.count, store, shape, database=task.database)


def langgraph_runs(task: Task) -> Command:
    return _script("langgraph", "langgraph_runs.py", task.count, task.parallel)


def dbos_chain(store: str) -> Callable[[Task], Command]:
    return lambda task: _script("dbos", "dbos_chain.py", task.count, store, database=task.database)


def dbos_runs(how: str) -> Callable[[Task], Command]:
    return lambda task: _script("dbos", "dbos_runs.py", task.count, task.parallel, how, database=task.database)


def huey_runs(task: Task) -> Command:
    return _script("huey", "huey_runs.py", task.count, task.parallel)


def xargs_fan(task: Task) -> Command:
    return Command([_found("bash"), str(SCRIPTS / "xargs_fan.sh"), str(task.count), str(task.parallel)])


def hyperqueue_fan(task: Task) -> Command:
    return _script("hyperqueue", "hyperqueue_fan.py", task.count, task.parallel)


def doit_fan(task: Task) -> Command:
    # Without -d it would work in the folder of its script.
    where = ["-f", str(SCRIPTS / "doit_fan.py"), "-d", str(task.folder)]
    return Command([program("doit", "doit"), *where, "-n", str(task.parallel), f"count={task.count}"])


def dbos_hello(task: Task) -> Command:
    return _script("dbos", "dbos_hello.py")


def snakemake_hello(task: Task) -> Command:
    return Command([program("snakemake", "snakemake"), "--cores", "1", "--snakefile", str(SCRIPTS / "hello.smk")])


def dagster_hello(task: Task) -> Command:
    (task.folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return Command([program("dagster"), str(SCRIPTS / "dagster_hello.py")], {"DAGSTER_HOME": str(task.folder)})


def prefect_hello(task: Task) -> Command:
    quiet = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_LOGGING_LEVEL": "WARNING"}
    return Command([program("prefect"), str(SCRIPTS / "prefect_hello.py")], quiet)


def _script(environment: str, name: str, *arguments: object, database: str = "") -> Command:
    """A script of ours, run by the Python of a peer's environment; the database goes by the environment."""
    command = [program(environment), str(SCRIPTS / name), *map(str, arguments)]
    return Command(command, {"BENCH_POSTGRES": database} if database else {})


def _found(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise NotRun(f"{name} is not on the PATH")
    return path
