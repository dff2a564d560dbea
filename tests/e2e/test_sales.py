"""The example project: deployed to a server by one command, run by its schedule, killed, continued, and backfilled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.nightly import POSTGRES
from tests.support.runner import wait_until

from mulligan.service.home import Home
from mulligan.service.server.publishing.deploying import deploy
from mulligan.service.service import Service

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "sales"
_MULLIGAN = (sys.executable, "-P", "-m", "mulligan")


@contextmanager
def sales_service(odd_day: str, token: str) -> Iterator[str]:
    """The service of the example in this process; its address."""
    spec = spec_from_file_location("sales_service", EXAMPLE / "service.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    handler = type("Handler", (module.Service,), {"odd_day": odd_day, "asked": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    os.environ["SALES_TOKEN"] = token
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        del os.environ["SALES_TOKEN"]
        server.shutdown()
        server.server_close()
        thread.join()


def copied(folder: Path, url: str) -> Path:
    project = folder / "project"
    shutil.copytree(EXAMPLE, project)
    text = (project / "sales.py").read_text()
    (project / "sales.py").write_text(text.replace("http://127.0.0.1:8099", url))
    return project


def test_the_project_is_deployed_and_its_schedule_starts_what_was_deployed(tmp_path: Path) -> None:
    project = copied(tmp_path, "http://127.0.0.1:1")
    with Service(Home(tmp_path / "home"), "ann") as service:
        first, again = (deploy(service.catalogue, project, service.now()) for _ in range(2))
        shutil.rmtree(project)
        service.schedules.fire_due(service.now() + timedelta(days=1))
        (run,) = service.reader.store.runs()
        workflow = service.catalogue.load("nightly")

        assert ([one.change for one in first.workflows], again.is_changed) == (["created", "created"], False)
        assert (run.workflow, workflow.schedules["night"].cron) == ("nightly", "30 2 * * *")
        assert [*workflow.children] == ["flow:region"]
        found = {one.path for one in service.catalogue.workflow("nightly").files}
        assert found == {"sales.py", "regions.py", "data/targets.csv"}


def test_the_tests_of_the_project_pass(tmp_path: Path) -> None:
    project = copied(tmp_path, "http://127.0.0.1:1")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "tests.py"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}

    said = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True)

    assert said.returncode == 0, said.stdout


class Server:
    """A server with its worker, in processes of their own group."""

    def __init__(self, home: Path, log: Path, store: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")}
        self._environment = {**kept, "MULLIGAN_LEASE": "3s", **({"MULLIGAN_STORE": store} if store else {})}
        with log.open("ab") as errors:
            words = [*_MULLIGAN, "server", "--home", str(home), "--port", "0", "--json"]
            self.process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=errors, env=self._environment, text=True, start_new_session=True
            )
        assert self.process.stdout is not None
        first = json.loads(self.process.stdout.readline())
        self.url, self.token = first["url"], first.get("token") or ""

    def command(self, *words: str, cwd: Path, token: str) -> Any:
        environment = {**self._environment, "MULLIGAN_SERVER": self.url, "MULLIGAN_TOKEN": token}
        environment.pop("MULLIGAN_STORE", None)
        said = subprocess.run([*_MULLIGAN, *words, "--json"], env=environment, cwd=cwd, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)

    def ask(self, path: str, token: str) -> Any:
        connection = HTTPConnection(urlsplit(self.url).netloc)
        try:
            connection.request("GET", f"/api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
            reply = connection.getresponse()
            answer = reply.read()
            assert reply.status == 200, answer
            return json.loads(answer)
        finally:
            connection.close()

    def end(self, number: int) -> None:
        os.killpg(self.process.pid, number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.nightly
@pytest.mark.parametrize("database", ["sqlite", POSTGRES])
def test_the_project_runs_on_a_server_is_killed_continues_and_is_backfilled(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue("store_schema_url") if database == "postgres" else ""
    home, log = tmp_path / "home", tmp_path / "server.log"
    with Service(Home(home, store)) as service:
        tomorrow = service.now() + timedelta(days=1)
    with sales_service(f"{tomorrow:%Y-%m-%d}", "letmein") as url:
        project = copied(tmp_path, url)
        server = Server(home, log, store)
        token = server.token
        done = server.command("deploy", cwd=project, token=token)
        again = server.command("deploy", cwd=project, token=token)
        shutil.rmtree(project)
        # Its time comes: no clock has to pass for that.
        with Service(Home(home, store)) as service:
            service.schedules.fire_due(tomorrow.replace(hour=3))
        wait_until(lambda: [one for one in server.ask("pending", token)["pending"] if one["step"] == "agree"])
        server.end(signal.SIGKILL)
        server = Server(home, log, store)
        token = server.token
        try:
            (waiting,) = server.ask("pending", token)["pending"]
            server.command("approve", str(waiting["run_id"]), "agree", "--reason", "a fair", cwd=tmp_path, token=token)
            wait_until(lambda: server.ask("runs/1", token)["status"] == "completed")
            backfill = ("schedule", "backfill", "nightly.night", "--to", f"{tomorrow - timedelta(days=1):%Y-%m-%d}")
            begin = [f"{tomorrow - timedelta(days=1 + days):%Y-%m-%d}" for days in (30, 2)]
            planned = server.command(*backfill, "--from", begin[0], "--dry-run", cwd=tmp_path, token=token)
            started = server.command(*backfill, "--from", begin[1], cwd=tmp_path, token=token)
            count = len(started["instants"])
            wait_until(lambda: len(server.ask("runs?status=completed&workflow=nightly", token)["runs"]) == 1 + count)
            outputs = server.ask("runs/1", token)["outputs"]
        finally:
            server.end(signal.SIGTERM)

    assert [one["change"] for one in done["workflows"]] == ["created", "created"]
    assert {one["change"] for one in (*again["workflows"], *again["schedules"])} == {"unchanged"}
    assert outputs == {"result": {"day": f"{tomorrow:%Y-%m-%d}", "total": 1475, "failed": 0}}
    assert (len(planned["instants"]), count) == (30, 2)
    reports = {path.stem: json.loads(path.read_text())["total"] for path in home.glob("work/*/warehouse/*.json")}
    assert sorted(reports.values()) == [575] * count + [1475]
    assert b"letmein" not in log.read_bytes()
