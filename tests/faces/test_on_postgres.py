"""The same verbs where runs are kept on a PostgreSQL server."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.commands import mulligan, process, ran, workflow

from mulligan.cli.words.options import service_at

PARKED = """\
name: parked
steps:
  - step: simulate
    shell: test -e fixed || { echo diverged >&2; exit 42; }
    triage: true
  - {step: publish, needs: [simulate], shell: echo published}
"""
LOOKING = (("pending",), ("workers",), ("breakers",), ("show", 1))


@pytest.fixture(autouse=True)
def _on_postgres(folder: Path, monkeypatch: pytest.MonkeyPatch, store_schema_url: str) -> None:
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)


def test_a_run_is_listed_shown_explained_and_its_logs_are_here():
    ran(PARKED)

    listed = mulligan("list").plain[1].splitlines()
    assert listed[1] == "1  running  Ns  Ns  parked  'simulate' is parked, EXIT_NONZERO 42: diverged"
    assert mulligan("show", 1, "--json").json["steps"]["simulate"]["status"] == "pending_failed"
    assert mulligan("explain", 1).out.endswith("'simulate' waits for a person to classify EXIT_NONZERO 42: diverged\n")
    assert mulligan("logs", 1, "simulate").err == "-- run 1, 'simulate', attempt 1\ndiverged\n"
    assert mulligan("replay", 1, "--verify").code == 0


@pytest.mark.parametrize("words", [("list",), *(pytest.param(one, marks=pytest.mark.nightly) for one in LOOKING)])
def test_who_only_looks_makes_no_folder(folder: Path, words: tuple[object, ...]):
    mulligan(*words)

    assert list(folder.iterdir()) == []


@pytest.mark.nightly
def test_a_large_output_is_shown_whole_although_no_file_has_it():
    ran("name: w\nsteps: [{step: count, shell: seq 30000}]")

    said = mulligan("show", 1, "--output", "count")

    assert said == (0, "".join(f"{number}\n" for number in range(1, 30001)), "")


@pytest.mark.nightly
def test_a_report_has_the_logs_also_where_the_files_are_on_another_host(folder: Path):
    ran(PARKED)
    with_logs = mulligan("report", 1, "-o", "-")

    for log in (folder / ".mulligan" / "runs" / "1" / "logs").iterdir():
        log.unlink()
    without = mulligan("report", 1, "-o", "-")

    assert '<figcaption>stderr</figcaption><pre tabindex="0">diverged</pre>' in with_logs.out
    assert '<figcaption>stderr</figcaption><pre tabindex="0">diverged</pre>' in without.out


# The keys that programs rely on, of a run and of a step.
RUN_KEYS = {"run_id", "status", "degraded", "round", "steps", "failures", "outputs", "end"}
STEP_KEYS = set("status visits attempts recovered handled output failure failure_route waiting_for".split())


@pytest.mark.nightly
def test_a_run_with_routes_and_called_runs_is_told_as_it_is_elsewhere():
    workflow("name: inner\nsteps:\n  - {step: greet, shell: test -e ok}\n", "inner.yaml")
    said = ran(
        "name: outer\nsteps:\n"
        "  - {step: call, workflow: inner.yaml, next: [{to: no, on: failure, codes: [TIMEOUT]},"
        " {to: mend, on: failure, then: rerun}]}\n"
        "  - {step: no, shell: 'true'}\n"
        "  - {step: mend, shell: touch ok}\n",
        "--json",
    )

    assert set(said.json) >= RUN_KEYS and all(set(step) >= STEP_KEYS for step in said.json["steps"].values())
    assert said.json["failures"][0]["failure_route"] == {
        "status": "selected",
        "edge": 1,
        "to": "mend",
        "visit": 1,
        "then": "rerun",
        "reason": None,
        "passed": [{"edge": 0, "to": "no", "reason": "codes_do_not_match"}],
    }
    assert mulligan("explain", 1, "--tree").plain[1] == (
        "THEN call  called 'inner.yaml' as run 2\n"
        "THEN call/greet  failed with EXIT_NONZERO 1\n"
        "THEN call/end  the run failed: failure of 'greet' not handled (1 step, 1 failed)\n"
        "THEN call  failed with CHILD_FAILED: child run 2 failed at 'greet': EXIT_NONZERO 1; "
        "routed to 'mend'; 'call' will run again when it completes\n"
        "THEN call  edge to 'no' not taken: it matches only TIMEOUT\n"
        "THEN mend  completed; handled the failure of 'call'\n"
        "THEN call  will run again: 'mend' completed\n"
        "THEN call  visit 2 started\n"
        "THEN call  continued run 2 in its round 2\n"
        "THEN call  round 2 started by run 1: attempt 2 of 'call'; running again: 'greet'\n"
        "THEN call/greet  visit 2 started\n"
        "THEN call/greet  completed\n"
        "THEN call/end  the run completed (1 step)\n"
        "THEN call  child run 2 completed\n"
        "THEN call  completed\n"
        "THEN no  skipped: no edge to it was taken\n"
        "THEN end  the run completed (degraded: 1 handled) (3 steps, 1 skipped)\n"
    )
    assert mulligan("show", 1, "--json").json["steps"]["call"]["children"] == [2]


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_the_failed_items_of_a_completed_run_get_a_round_of_their_own():
    ran(
        "name: checked\nsteps:\n  - step: check\n"
        "    map: {over: '${[0, 1]}', as: n, on_item_failure: collect}\n"
        "    do: [{shell: 'test ${n} = 0 || test -e fixed'}]\n"
    )
    foretold = mulligan("items", 1, "check", "--retry", "--dry-run", "--json").json
    Path("fixed").touch()

    said = mulligan("items", 1, "check", "--retry", "--follow", "--json")

    assert foretold["items"] == {"check": [1]}
    assert (said.code, said.json["round"], said.json["degraded"]) == (0, 2, False)
    assert [item["attempts"] for item in mulligan("items", 1, "check", "--json").json] == [1, 2]
    assert mulligan("replay", 1, "--verify").code == 0


def test_the_doctor_looks_at_the_server_and_its_clock():
    checks = {check["name"]: check for check in mulligan("doctor", "--json").json["checks"]}

    assert (checks["store"]["health"], checks["clock"]["health"]) == ("ok", "ok")
    assert checks["store"]["found"].startswith("PostgreSQL is writable, schema ")


def test_the_doctor_says_so_where_there_is_no_server(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", f"postgresql:///nowhere?host={folder}")

    said = mulligan("doctor", "--json")

    checks = {check["name"]: check for check in said.json["checks"]}
    assert (said.code, checks["store"]["health"], checks["tasks"]["health"]) == (1, "problem", "ok")


@pytest.mark.nightly
def test_what_was_tried_is_summed_up_over_runs():
    ran(PARKED)
    ran(PARKED)

    [line] = mulligan("stats", "--json").json

    assert (line["step"], line["rung"], line["runs"], line["tried"], line["worked"]) == ("simulate", "triage", 2, 2, 0)


@pytest.mark.nightly
def test_a_run_goes_on_with_a_corrected_file():
    ran("name: p\nsteps:\n  - {step: a, shell: echo 1}\n  - {step: b, needs: [a], shell: exit 3}\n")

    fixed = workflow("name: p\nsteps:\n  - {step: a, shell: echo 1}\n  - {step: b, needs: [a], shell: echo 2}\n")
    said = mulligan("retry", "--file", fixed, "--follow", "--json")

    assert (said.code, said.json["steps"]["a"]["visits"], said.json["steps"]["b"]["output"]) == (0, 1, "2")
    assert mulligan("replay", 1, "--verify").code == 0


@pytest.mark.nightly
def test_the_same_key_is_the_same_run_and_other_inputs_are_refused():
    flow = workflow(
        "name: once\ninputs: {n: {type: integer, default: 1}}\nsteps: [{step: a, shell: 'echo ${inputs.n}'}]"
    )

    codes = [mulligan("run", flow, "--key", "k", *words).code for words in ((), (), ("-i", "n=2"))]

    assert (codes, len(mulligan("list", "--json").json)) == ([0, 0, 2], 1)


@pytest.mark.nightly
def test_a_detached_run_is_left_to_a_worker_that_is_there():
    worker = process("worker", "--parallel", "1")
    try:
        with service_at(None) as service:
            deadline = time.monotonic() + 60.0
            while not service.reader.store.workers():
                assert time.monotonic() < deadline, "the worker never came"
                time.sleep(0.02)

        said = mulligan("run", workflow("name: held\nsteps: [{step: a, shell: sleep 60}]"), "--detach", "--json")

        assert (said.code, said.json["run_id"], said.json["pid"], said.json["log"]) == (0, 1, worker.pid, "")
    finally:
        worker.kill()
        worker.communicate()
