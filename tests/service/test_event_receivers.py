"""Whom an event is for: the run with a key, however it was started, or all open runs with labels."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.api_client import A_WORKFLOW, Client, open_client
from tests.support.commands import mulligan
from tests.support.store_files import write_empty_store

from mulligan.errors import UnknownRun
from mulligan.service.home import DATABASE, Home
from mulligan.service.service import Service

WAITS = "name: order\nsteps:\n  - step: paid\n    wait: {event: paid}\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    write_empty_store(tmp_path / "home" / DATABASE)
    return Home(tmp_path / "home")


def test_a_run_is_found_by_the_key_with_which_a_command_started_it(home: Home, tmp_path: Path) -> None:
    (tmp_path / "order.yaml").write_text(WAITS)
    started = mulligan("run", str(tmp_path / "order.yaml"), "--home", str(home.folder), "--key", "7", "--wait", "0s")
    assert started.code == 4, started.err

    with Service(home) as service:
        assert service.runs.find_receivers(key="7") == [1]
        with pytest.raises(UnknownRun):
            service.runs.find_receivers(key="8")


def test_a_run_is_found_by_the_key_with_which_a_request_started_it(home: Home) -> None:
    client: Client = open_client(home)
    client.put("workflows/nightly", {"text": A_WORKFLOW})
    started = client.post("runs", {"workflow": "nightly"}, headers={"idempotency-key": "7"})

    with Service(home) as service:
        assert service.runs.find_receivers(key="7") == [started.json["run_id"]]
    client.close()
