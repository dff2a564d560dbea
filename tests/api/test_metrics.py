"""`/metrics`: the store, the server and its worker; a token of one project sees that project alone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.api_client import Client, open_client, token_record

from mulligan.api.areas.health import worker_metrics_file
from mulligan.api.processes import server
from mulligan.errors import LanguageError, ServerUnusable
from mulligan.service.home import Home
from mulligan.service.server.server_config import OtelSection, ServerConfig, find_config
from mulligan.service.server.telemetry.telemetry import ENDPOINT_VARIABLES
from mulligan.service.service import Service


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_the_metrics_count_requests_by_route_and_add_those_of_the_worker(home: Home):
    client = open_client(home, tokens=[token_record("operator", ["read"], project=None)])
    client.get("runs")
    client.get("nothing/at/all")
    file = worker_metrics_file(client.home.folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(
        b"# HELP mulligan_worker_tasks Tasks\n# TYPE mulligan_worker_tasks gauge\nmulligan_worker_tasks 3.0\n"
    )

    reply = client.get("/metrics", scope="operator")
    of_one_project = client.get("/metrics", scope="read")
    client.close()

    found = samples(reply.body)
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert found["mulligan_http_requests_total", "GET", "runs", "200"] == 1
    assert found["mulligan_http_requests_total", "", "", "404"] == 1
    assert found["mulligan_http_streams",] == 0
    assert found["mulligan_worker_tasks",] == 3
    assert ("mulligan_tasks", "queued") in found
    assert {name[0] for name in samples(of_one_project.body)} >= {"mulligan_tasks", "mulligan_workers"}
    assert b"mulligan_http" not in of_one_project.body
    assert b"mulligan_worker_tasks" not in of_one_project.body


def test_the_metrics_need_a_token(client: Client):
    assert client.get("/metrics", scope=None).status == 401


def test_a_server_has_its_worker_write_metrics_and_exports_traces_where_a_collector_is_named(
    home: Home, monkeypatch: pytest.MonkeyPatch
):
    for name in ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    log = logging.getLogger("test")

    without = server._children(home, ServerConfig(), log, "text")
    named = server._children(home, ServerConfig(otel=OtelSection("http://127.0.0.1:4318")), log, "text")
    monkeypatch.setenv(ENDPOINT_VARIABLES[1], "http://127.0.0.1:4318")
    by_environment = server._children(home, ServerConfig(), log, "text")

    assert [child.name for child in without] == ["background process", "worker"]
    assert str(worker_metrics_file(home.folder)) in without[1].command
    assert [child.name for child in named] == ["background process", "worker", "trace exporter"]
    assert [child.name for child in by_environment] == ["background process", "worker", "trace exporter"]
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    with pytest.raises(ServerUnusable, match="not installed"):
        server._children(home, ServerConfig(otel=OtelSection("http://127.0.0.1:4318")), log, "text")


def test_the_configuration_that_a_server_was_started_with_counts_for_its_children(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "elsewhere.toml"
    file.write_text('[otel]\nendpoint = "http://127.0.0.1:4318"\n')
    monkeypatch.setenv("MULLIGAN_CONFIG", str(file))

    assert find_config(home.folder).otel.endpoint == "http://127.0.0.1:4318"

    file.write_text('[otel]\nendpoint = "localhost"\n')
    with pytest.raises(LanguageError, match="endpoint"):
        find_config(home.folder)
    file.unlink()
    with pytest.raises(LanguageError, match="does not exist"):
        find_config(home.folder)


def test_the_metrics_call_a_worker_of_a_file_alive_that_holds_its_lock(client: Client, service: Service):
    with service.driving.driver():
        reply = client.get("/metrics", scope="read")
    found = samples(reply.body)

    assert (found["mulligan_workers", "alive"], found["mulligan_workers", "expired"]) == (1.0, 0.0)
