"""The routes of notices and hooks."""

from __future__ import annotations

from pathlib import Path

from tests.support.api_client import A_WORKFLOW, Client

from mulligan.language import load_text
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

RULE = {"on": ["failed", "late"], "to": ["ops"], "late_after": "2h"}


def test_hooks_are_replaced_by_an_admin_and_counted(client: Client) -> None:
    assert client.get("hooks", scope="read").json == {
        "rules": [],
        "revision": 0,
        "updated_by": "",
        "updated_at": None,
    }

    put = client.put("hooks", {"rules": [RULE]})

    assert put.status == 200
    assert (put.json["rules"], put.json["revision"], put.headers["etag"]) == ([RULE], 1, '"1"')
    assert client.get("hooks", scope="read").json == put.json
    assert client.put("hooks", {"rules": []}, headers={"If-Match": '"7"'}).code == "revision.mismatch"
    assert client.put("hooks", {"rules": []}, headers={"If-Match": '"1"'}).json["revision"] == 2


def test_hooks_that_cannot_be_meant_are_refused(client: Client) -> None:
    for rule in (
        {"on": ["fail"], "to": ["ops"]},
        {"on": [], "to": ["ops"]},
        {"on": ["late"], "to": ["ops"]},
        {"on": ["failed"], "to": ["https://example.org"]},
        {"on": ["late"], "to": ["ops"], "late_after": "soon"},
    ):
        assert client.put("hooks", {"rules": [rule]}).status in (400, 422), rule
    assert client.put("hooks", {"rules": [RULE]}, scope="write").status == 403
    assert client.get("hooks", scope="read").json["revision"] == 0


def test_a_run_that_starts_after_the_hooks_were_set_has_their_notices(client: Client, tmp_path: Path) -> None:
    client.put("hooks", {"rules": [{"on": ["completed"], "to": ["ops"]}]})
    with Service(client.home) as service:
        prepared = prepare(load_text(A_WORKFLOW, "w.yaml"), {}, tmp_path)
        with service.driving.driver() as driver:
            (run_id,) = service.changes.create(prepared, driver)
            driver.drive(run_id)

    page = client.get("notices", scope="read").json

    assert [(one["event"], one["target"], one["run_id"], one["status"]) for one in page["notices"]] == [
        ("completed", "ops", run_id, "waiting")
    ]
    assert page["next"] is None
    assert client.get("notices", status="sent").json["notices"] == []
    assert client.get("notices", limit=0).status in (400, 422)


def test_numbers_that_no_database_counts_to_are_refused(client: Client) -> None:
    for number in (2**63 - 1, 2**63, 10**30):
        assert client.get("notices", run_id=number).status == 422
        assert client.get("audit", before=number).status == 422
