"""What somebody types first after an installation: with nothing but the package, and with each extra alone.

`make dist-check` runs all of it in environments that pip makes; the tests run what needs no other program.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# How long a command may take on a busy machine.
SECONDS_MAX = 120


@dataclass(frozen=True)
class Command:
    """A command line, in a folder that has `FILES`, and what it must do. `{NAME}` is an address of `addresses`."""

    line: str
    says: str
    exit_code: int = 0
    stdin: str = ""
    # Ended by SIGTERM once it has said that.
    serves: bool = False
    # Left to `make dist-check`: it needs a program beside it, or takes long for what it adds.
    nightly: bool = False


@dataclass(frozen=True)
class Extra:
    """What an extra is for: the words without it, which name it, and what it does when it is there."""

    without: tuple[Command, ...]
    with_it: tuple[Command, ...]


FILES = {
    "large.yaml": "name: large\nartifacts: s3://bucket/team\nsteps:\n  - {step: print, shell: seq 50000}\n",
    "hello.yaml": "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n",
    "duckdb.yaml": (
        "name: duckdb\nsteps:\n  - step: ask\n"
        '    sql: {connection: "duckdb:///new.duckdb", query: "select now() as at"}\n'
    ),
    "database.yaml": (
        "name: database\nsteps:\n  - step: ask\n"
        '    sql: {connection: "postgresql://nobody@127.0.0.1:9/none", query: "select 1"}\n'
    ),
    "playbook.yaml": (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: hello, path: hello}\nworkload: {who: you}\n"
        "workflow:\n  - step: start\n    tool: {kind: python, code: \"result = {'said': 'hello {{ who }}'}\"}\n"
    ),
    "tools.yaml": (
        "name: tools\nsteps:\n  - step: ask\n"
        '    agent: {provider: openai, model: m, prompt: hi, tools: [{mcp: {command: "true"}, allow: [look]}]}\n'
    ),
    "fails.yaml": "name: fails\nnotify: {on: failed, to: me}\nsteps:\n  - {step: break, shell: exit 1}\n",
    ".mulligan/server.toml": '[targets.me]\nurls = ["json://{collector}/notices"]\n',
    "cluster.py": (
        "import subprocess, sys\nfrom distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:\n"
        "        address = cluster.scheduler_address.replace('tcp://', 'dask://')\n"
        "        sys.exit(subprocess.run(['mulligan', 'run', 'hello.yaml', '--on', address]).returncode)\n"
    ),
    "sales.py": (
        "import duckdb\nwith duckdb.connect('sales.duckdb') as database:\n"
        "    database.execute('create table sales (id integer, price integer)')\n"
        "    database.execute('insert into sales values (1, 7), (2, 9)')\n"
    ),
}

FIRST = (
    Command("mulligan --version", "mulligan "),
    Command("mulligan demo", "the run completed (degraded)", nightly=True),
    Command("mulligan run hello.yaml", "run 1 completed"),
    Command("mulligan show 1", "greet"),
    Command("mulligan doctor", "ok  tasks", nightly=True),
    Command("python -c 'import mulligan; print(mulligan.Workflow)'", "class 'mulligan."),
)

INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "first-commands", "version": "1"},
        },
    }
)
ELSEWHERE = "env MULLIGAN_STORE=postgresql://nobody@127.0.0.1:9/none"
COLLECTED = "mulligan traces 1 --endpoint http://{collector}"


# Nobody listens there.
_S3 = "env AWS_ENDPOINT_URL=http://127.0.0.1:9 AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b MULLIGAN_OBJECT_TIMEOUT=1s"


def _pip(extra: str) -> str:
    return f"pip install 'mulligan[{extra}]'"


EXTRAS = {
    "postgres": Extra(
        without=(
            Command(f"{ELSEWHERE} mulligan list", _pip("postgres"), exit_code=1),
            Command("mulligan run database.yaml", _pip("postgres"), exit_code=1, nightly=True),
        ),
        with_it=(
            Command(f"{ELSEWHERE} mulligan list", "error[store.unavailable]", exit_code=1),
            Command("env MULLIGAN_STORE={postgres} mulligan run hello.yaml", "completed", nightly=True),
            Command("env MULLIGAN_STORE={postgres} mulligan list", "hello", nightly=True),
            Command("env MULLIGAN_STORE={postgres} mulligan doctor", "ok  store", nightly=True),
        ),
    ),
    "private-postgres": Extra(
        without=(Command("mulligan postgres start --data own", _pip("private-postgres"), exit_code=1),),
        with_it=(
            Command("mulligan postgres status --data own", "", exit_code=1, nightly=True),
            Command("mulligan postgres start --data own", "export MULLIGAN_STORE=", nightly=True),
            Command("mulligan postgres stop --data own --now", "", nightly=True),
        ),
    ),
    "duckdb": Extra(
        without=(Command("mulligan run duckdb.yaml", _pip("duckdb"), exit_code=1),),
        with_it=(Command("mulligan run duckdb.yaml", "completed"),),
    ),
    "noetl": Extra(
        without=(
            Command(
                "mulligan run playbook.yaml",
                f"NoETL files need 'jinja2', which is not installed\n  {_pip('noetl')}",
                exit_code=2,
            ),
        ),
        with_it=(Command("mulligan run playbook.yaml", "completed"),),
    ),
    "png": Extra(
        without=(Command("mulligan graph hello.yaml -o hello.png", _pip("png"), exit_code=2),),
        with_it=(Command("mulligan graph hello.yaml -o hello.png", ""),),
    ),
    "server": Extra(
        without=(
            Command("mulligan server --port 0", _pip("server"), exit_code=2),
            Command("mulligan dashboard", _pip("server"), exit_code=2, nightly=True),
            Command("mulligan publish hello.yaml", "published 'hello'"),
            Command("mulligan schedule put hello --workflow hello --cron '30 2 * * *'", _pip("server"), exit_code=2),
            Command("mulligan worker --metrics 127.0.0.1:0", _pip("server"), exit_code=2, nightly=True),
        ),
        with_it=(
            Command("mulligan publish hello.yaml", "published 'hello'"),
            Command("mulligan schedule put hello --workflow hello --cron '30 2 * * *'", "30 2 * * * UTC"),
            Command("mulligan server --port 0", "serving ", serves=True, nightly=True),
            Command("mulligan worker --metrics 127.0.0.1:0 --idle-exit 1s", "is up", nightly=True),
        ),
    ),
    "mcp": Extra(
        without=(
            Command(
                "mulligan mcp", f"`mulligan mcp` needs 'mcp', which is not installed\n  {_pip('mcp')}", exit_code=2
            ),
            Command("env OPENAI_API_KEY=none mulligan run tools.yaml", _pip("mcp"), exit_code=1, nightly=True),
        ),
        with_it=(Command("mulligan mcp", '"serverInfo"', stdin=INITIALIZE + "\n"),),
    ),
    "dask": Extra(
        without=(
            Command("mulligan run hello.yaml --on dask://127.0.0.1:9", _pip("dask"), exit_code=2),
            Command("mulligan worker --on dask://127.0.0.1:9", _pip("dask"), exit_code=2, nightly=True),
        ),
        with_it=(Command("python cluster.py", "completed", nightly=True),),
    ),
    "notify": Extra(
        without=(
            Command("mulligan notices test me", _pip("notify"), exit_code=1),
            Command("mulligan run fails.yaml", "failed", exit_code=1, nightly=True),
            Command("mulligan notices send", "# why they wait", nightly=True),
            Command("mulligan notices", _pip("notify"), nightly=True),
        ),
        with_it=(Command("mulligan notices test me", "a test message was sent to 'me'"),),
    ),
    "objects": Extra(
        without=(Command(f"{_S3} mulligan run large.yaml", "REQUIREMENTS_FAILED", exit_code=1),),
        with_it=(Command(f"{_S3} mulligan run large.yaml", "CONNECTION", exit_code=1),),
    ),
    "otel": Extra(
        without=(Command(COLLECTED, _pip("otel"), exit_code=2),),
        with_it=(Command("mulligan run hello.yaml", "completed"), Command(COLLECTED, "")),
    ),
}

NL2SQL_FIRST = (
    Command("nl2sql --version", "nl2sql "),
    Command("python -m mulligan_nl2sql.demo.shop shop.db", ""),
    Command("nl2sql ask 'how many customers are there?' --db sqlite:///shop.db", "answered"),
    Command("nl2sql index --db sqlite:///shop.db", "", nightly=True),
    Command("nl2sql doctor --db sqlite:///shop.db", "", nightly=True),
)
NL2SQL_WITHOUT = tuple(
    Command(f"nl2sql doctor --db {url}", f"pip install 'mulligan-nl2sql[{extra}]'", exit_code=1)
    for extra, url in (("postgres", "postgresql://nobody@127.0.0.1:9/none"), ("duckdb", "duckdb:///shop.db"))
)
NL2SQL_EXTRAS = {
    # The role of this database may write, and nl2sql asks nobody who may.
    "postgres": (
        Command("nl2sql doctor --db {postgres}", "ok       connection: PostgreSQL", exit_code=1, nightly=True),
    ),
    "duckdb": (
        Command("python sales.py", "", nightly=True),
        Command("nl2sql ask 'what is the total price of sales?' --db duckdb:///sales.duckdb", "16", nightly=True),
    ),
}


class FirstCommandFailed(Exception):
    """A command did something else than it should."""


def write_files(folder: Path, addresses: Mapping[str, str]) -> None:
    """Write what the commands read."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(_filled(text, addresses), encoding="utf-8")


def run_command(command: Command, programs: Path, folder: Path, addresses: Mapping[str, str]) -> str:
    """Run a command in a folder, with the programs of an environment before all others; what it said.

    `FirstCommandFailed` if it ended in another way, did not say what it should, or showed a traceback.
    """
    # Nothing of the environment of this process: a variable that tests or shells have would help a package along.
    environ = {"PATH": f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    words = shlex.split(_filled(command.line, addresses))
    with tempfile.TemporaryFile("w+", dir=folder) as stdin:
        stdin.write(command.stdin)
        stdin.seek(0)
        with subprocess.Popen(
            words,
            cwd=folder,
            env={**environ, "PYTHONUNBUFFERED": "1"} if command.serves else environ,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            said = _until(process, command.says) if command.serves else ""
            try:
                said += process.communicate(timeout=SECONDS_MAX)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                said += process.communicate()[0] + f"\n(killed after {SECONDS_MAX} s)"
    if process.returncode != command.exit_code or command.says not in said or "Traceback" in said:
        raise FirstCommandFailed(
            f"$ {' '.join(words)}\n{said.rstrip()}\nexit code {process.returncode}; "
            f"expected: exit code {command.exit_code}, {command.says!r}, no traceback"
        )
    return said


def _until(process: subprocess.Popen[str], says: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if says in line:
            process.send_signal(signal.SIGTERM)
            break
    return said


def _filled(text: str, addresses: Mapping[str, str]) -> str:
    for name, address in addresses.items():
        text = text.replace("{" + name + "}", address)
    return text
