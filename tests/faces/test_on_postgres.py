"""The same verbs where runs are kept on a PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

import pytest

from .commands import mulligan, ran

PARKED = """\
name: parked
steps:
  - step: simulate
    shell: test -e fixed || { echo diverged >&2; exit 42; }
    triage: true
  - {step: publish, needs: [simulate], shell: echo published}
"""


@pytest.fixture(autouse=True)
def _on_postgres(folder: Path, monkeypatch: pytest.MonkeyPatch, schema_url: str) -> None:
    monkeypatch.setenv("MULLIGAN_STORE", schema_url)


def test_a_run_is_listed_shown_explained_and_its_logs_are_here():
    ran(PARKED)

    listed = mulligan("list").plain[1].splitlines()
    assert listed[1] == "1  running  Ns  parked  'simulate' waits for a person: mulligan pending"
    assert mulligan("show", 1, "--json").json["steps"]["simulate"]["status"] == "pending_failed"
    assert mulligan("explain", 1).out.endswith("'simulate' waits for a person to classify EXIT_NONZERO 42: diverged\n")
    assert mulligan("logs", 1, "simulate").err == "-- run 1, 'simulate', attempt 1\ndiverged\n"
    assert mulligan("replay", 1, "--verify").code == 0


def test_a_parked_step_is_classified_and_the_run_goes_on():
    ran(PARKED)
    Path("fixed").touch()

    said = mulligan("classify", 1, "simulate", "retry", "--reason", "fixed", "--follow", "--json")

    assert (said.code, said.json["status"]) == (0, "completed")
    assert mulligan("pending", "--json").json == []


def test_a_run_is_paused_cancelled_retried_and_forked():
    ran(PARKED)

    assert mulligan("pause", 1).code == 0
    assert mulligan("cancel", 1, "--json").json["status"] == "cancelled"
    Path("fixed").touch()
    assert mulligan("retry", 1, "--follow", "--json").json["status"] == "completed"
    assert mulligan("fork", 1, "--from", "publish", "--json").json["status"] == "completed"


def test_the_doctor_looks_at_the_server_and_its_clock():
    checks = {check["name"]: check for check in mulligan("doctor", "--json").json["checks"]}

    assert (checks["store"]["health"], checks["clock"]["health"]) == ("ok", "ok")
    assert checks["store"]["found"].startswith("PostgreSQL can be written, schema ")


def test_the_doctor_says_so_where_there_is_no_server(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", f"postgresql:///nowhere?host={folder}")

    said = mulligan("doctor", "--json")

    checks = {check["name"]: check for check in said.json["checks"]}
    assert (said.code, checks["store"]["health"], checks["tasks"]["health"]) == (1, "problem", "ok")


def test_what_was_tried_is_summed_up_over_runs():
    ran(PARKED)
    ran(PARKED)

    [line] = mulligan("stats", "--json").json

    assert (line["step"], line["rung"], line["runs"], line["tried"], line["worked"]) == ("simulate", "triage", 2, 2, 0)
