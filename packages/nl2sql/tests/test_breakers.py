"""The breaker of a model: exactly so many requests over all processes, one probe, and nothing opens after a 429."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import apsw
import msgspec
import pytest
import yaml

import mulligan
from mulligan_nl2sql.workflows import ASK, SCAN

from .shop import make_shop, schema_of

PROCESSES, CALLERS = 4, 5
FAILURES = 5
# Only reached if something is wrong.
TRAP_SECONDS = 300.0


class StubModel(ThreadingHTTPServer):
    """Answers every request with the same status, as soon as it may."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.headers = status, headers
        self.requests = 0
        self.lock, self.may_answer = Lock(), Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: StubModel

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        with self.server.lock:
            self.server.requests += 1
        self.server.may_answer.wait(TRAP_SECONDS)
        self.send_response(self.server.status)
        for name, value in {**self.server.headers, "content-length": "0"}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def start_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StubModel]]:
    make_shop(tmp_path / "shop.db")
    monkeypatch.setenv("MULLIGAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NL2SQL_MODEL", "m")
    started: list[StubModel] = []

    def start(status: int, **headers: str) -> StubModel:
        model = StubModel(status, **headers)
        Thread(target=model.serve_forever, args=(0.01,), daemon=True).start()
        started.append(model)
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        return model

    yield start
    for model in started:
        model.may_answer.set()
        model.shutdown()
        model.server_close()


def write_workflow(folder: Path, file: Path) -> Path:
    """Several callers in one process: a map over a workflow of the package.

    Retries come at once, and an open breaker stays open: no test depends on how fast the machine is.
    """
    for one in (ASK, SCAN):
        text = one.read_text()
        assert text.count("reset: 60s") == 2 and "delay: 1s" in text
        (folder / one.name).write_text(text.replace("reset: 60s", "reset: 24h").replace("delay: 1s", "delay: 0s"))
    database = {"name": "shop", "url": f"sqlite:///{folder / 'shop.db'}"}
    asked: dict[str, Any] = {"question": "how many?", "planner": "openai", "model": "m", "today": "2025-11-17"}
    if file == ASK:
        asked["databases"] = [database]
    else:
        # Read already, as by the index of a question.
        schema = msgspec.to_builtins(schema_of("sqlite"))
        asked |= {"database": "shop", "url": database["url"], "index": [{"database": "shop", "schema": schema}]}
    call = {"workflow": {"file": file.name, "inputs": asked}}
    every = {"step": "ask", "map": {"over": "${inputs.callers}", "on_item_failure": "collect"}, "do": [call]}
    path = folder / "callers.yaml"
    path.write_text(yaml.safe_dump({"name": "callers", "inputs": {"callers": {"type": "array"}}, "steps": [every]}))
    return path


def start_callers(workflow: Path, count: int) -> subprocess.Popen[bytes]:
    numbers = json.dumps(list(range(count)))
    return subprocess.Popen(
        [sys.executable, "-m", "mulligan", "run", str(workflow), "--input", f"callers={numbers}", "--parallel", "8"],
        cwd=workflow.parent,
        env=os.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def read_store(statement: str) -> list[Any]:
    """Straight from the file, as often as it is needed."""
    file = Path(os.environ["MULLIGAN_HOME"]) / "mulligan.db"
    if not file.exists():
        return []
    connection = apsw.Connection(str(file))
    try:
        connection.set_busy_timeout(60_000)
        return list(connection.execute(statement))
    except apsw.SQLError:
        # Its tables are being made.
        return []
    finally:
        connection.close()


def breaker() -> tuple[str, int]:
    ((status, failures),) = read_store("SELECT status, failures FROM breakers WHERE name = 'model[m]'")
    return status, failures


def count_waiting() -> int:
    return len(read_store("SELECT 1 FROM tasks WHERE breaker = 'model[m]' AND worker = ''"))


def wait_for(is_reached: Callable[[], bool], processes: list[subprocess.Popen[bytes]]) -> None:
    """Look again and again, for as long as the processes run."""
    while not is_reached():
        assert all(process.poll() is None for process in processes)
        Event().wait(0.02)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.wait(TRAP_SECONDS)


def codes_of_callers() -> list[str]:
    """What the scan of each caller has failed with."""
    with mulligan.Home() as home:
        scans = home.runs(workflow="nl2sql-scan", children=True, limit=100)
        return [scan.failures[-1].failure.code for scan in scans]


@pytest.fixture
def callers(tmp_path: Path) -> Iterator[Callable[..., list[subprocess.Popen[bytes]]]]:
    """Starts processes, each with several callers."""
    started: list[subprocess.Popen[bytes]] = []

    def start(file: Path, processes: int, callers: int) -> list[subprocess.Popen[bytes]]:
        workflow = write_workflow(tmp_path, file)
        found = [start_callers(workflow, callers) for _ in range(processes)]
        started.extend(found)
        return found

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.nightly
def test_twenty_callers_in_four_processes_send_five_requests_and_later_one_probe(
    start_model: Callable[..., StubModel], callers: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    model = start_model(500)
    processes = callers(SCAN, PROCESSES, CALLERS)

    # Nobody is answered before everybody has asked or waits for a place. Without a limit, all twenty would have asked.
    wait_for(lambda: FAILURES <= model.requests == PROCESSES * CALLERS - count_waiting(), processes)
    assert model.requests == FAILURES
    model.may_answer.set()
    end(processes)

    assert (model.requests, breaker()) == (FAILURES, ("open", FAILURES))
    # Who was answered tries again, and is refused as well.
    assert codes_of_callers() == ["CIRCUIT_OPEN"] * PROCESSES * CALLERS

    # A day later: of all that ask, one does so in fact. The others wait for its answer.
    read_store("UPDATE breakers SET retry_at = 0")
    model.may_answer.clear()
    processes = callers(SCAN, 1, CALLERS)
    wait_for(lambda: FAILURES < model.requests == FAILURES + CALLERS - count_waiting(), processes)
    model.may_answer.set()
    end(processes)

    assert (model.requests, breaker()) == (FAILURES + 1, ("open", FAILURES + 1))
    assert codes_of_callers() == ["CIRCUIT_OPEN"] * (PROCESSES + 1) * CALLERS


@pytest.mark.nightly
def test_a_model_that_is_overloaded_is_asked_again_when_it_said_so_and_its_breaker_stays_closed(
    start_model: Callable[..., StubModel], callers: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    model = start_model(429, retry_after="0.2")
    model.may_answer.set()

    end(callers(ASK, 1, 2))

    # Each of them once, and twice more: that is more than may fail.
    assert (model.requests, breaker()) == (6, ("closed", 0))
    assert codes_of_callers() == ["HTTP_429"] * 2
    with mulligan.Home() as home:
        events = [event for scan in home.runs(workflow="nl2sql-scan", children=True) for event in scan.events()]
    retries = [event for event in events if event["fact"]["type"] == "retry.scheduled"]
    waits = [datetime.fromisoformat(one["fact"]["due"]) - datetime.fromisoformat(one["at"]) for one in retries]
    # The delay of the rule is none here.
    assert waits == [timedelta(seconds=0.2)] * 4
