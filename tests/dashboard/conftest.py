"""Pages without a browser and without a port: requests go straight into the application.

def test_a_failed_run_says_why(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    assert "exit code 3" in show(pages, f"/runs/{run_id}")
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_client import Client, open_client
from tests.support.store_files import write_empty_store

from mulligan.dashboard.pages import PAGES
from mulligan.service.driving.driver import Capacity
from mulligan.service.home import DATABASE, Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

# What a step, an item, an error, a label or a file name may contain. None of it may become an element.
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"' onmouseover=alert(1) &lt;b&gt; </textarea>"
ROOM = Capacity(cpus=4.0, memory=4 << 30)
_TAG = re.compile(r"<(?:\"[^\"]*\"|'[^']*'|[^'\">])*>")


@dataclass
class Flows:
    """Makes real runs in a home: what `mulligan run` does, in this process."""

    service: Service
    folder: Path

    def start(self, text: str, *, name: str = "flow.yaml", labels: dict[str, str] | None = None, **inputs: Any) -> int:
        """A run that nobody drives."""
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        workflow = self.service.workflows.load_workflow(file)
        (run_id,) = self.service.changes.create(prepare(workflow, inputs, self.folder, labels=labels or {}))
        return run_id

    def run(self, text: str, *, name: str = "flow.yaml", labels: dict[str, str] | None = None, **inputs: Any) -> int:
        """A run that was driven until it ended, or until it waits for a person."""
        return self.drive(self.start(text, name=name, labels=labels, **inputs))

    def drive(self, run_id: int) -> int:
        """Drive a run on."""
        with self.service.driving.driver(ROOM) as driver:
            driver.drive(run_id, 0.0)
        return run_id


@pytest.fixture
def home(tmp_path: Path) -> Home:
    write_empty_store(tmp_path / "home" / DATABASE)
    return Home(tmp_path / "home")


@pytest.fixture
def pages(home: Home) -> Iterator[Client]:
    """A server with all pages over an empty home. `scope="read"` is a request with less than all rights."""
    opened = open_client(home, pages=PAGES)
    yield opened
    opened.close()


@pytest.fixture
def service(home: Home) -> Iterator[Service]:
    """The same home, as the command line opens it."""
    with Service(home, "a tester") as opened:
        yield opened


@pytest.fixture
def flows(service: Service, tmp_path: Path) -> Flows:
    """Makes runs in the same home."""
    folder = tmp_path / "work"
    folder.mkdir()
    return Flows(service, folder)


def show(pages: Client, path: str, *, scope: str = "admin", **query: Any) -> str:
    """The HTML of a page."""
    reply = pages.get(path, scope=scope, **query)
    assert reply.status == 200, (reply.status, reply.body[:500])
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    return reply.body.decode()


def text_of(html: str) -> str:
    """What somebody reads on a page: its text, with single blanks."""
    return " ".join(unescape(_TAG.sub(" ", html.partition("<main")[2])).split())
