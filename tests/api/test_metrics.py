"""`/metrics`: the store, the server and its worker; a token of one project sees that project alone."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from mulligan.api.metrics import worker_metrics_file
from mulligan.service import Home

from .conftest import Client, open_client, token_record


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
    assert found["mulligan_worker_tasks",] == 3
    assert ("mulligan_tasks", "queued") in found
    assert {name[0] for name in samples(of_one_project.body)} >= {"mulligan_tasks", "mulligan_workers"}
    assert b"mulligan_http" not in of_one_project.body
    assert b"mulligan_worker_tasks" not in of_one_project.body


def test_the_metrics_need_a_token(client: Client):
    assert client.get("/metrics", scope=None).status == 401
