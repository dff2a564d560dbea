"""`mulligan doctor`: each thing looked at, what was found, and what to do about it."""

from __future__ import annotations

import os
import sqlite3
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran

from mulligan.service.decisions.agent_checks import agents_here
from mulligan.service.home import Home
from mulligan.service.host import doctor
from mulligan.service.host.doctor import Check
from mulligan.worker.supervisor.task_cgroups import CgroupParent

pytestmark = pytest.mark.usefixtures("folder")

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 15, 3, 12, tzinfo=UTC)
SET_THE_CLOCK = "set the clock, and keep it right: NTP"


def test_a_fit_machine_is_told_line_by_line_and_nothing_is_made():
    said = mulligan("doctor", "--json")

    assert [check["name"] for check in said.json["checks"]] == [
        *("python", "sqlite", "store", "versions", "disk", "bash", "tasks", "processes", "memory", "limits"),
        *("requirements", "extras", "agents", "clock"),
    ]
    by_name = {check["name"]: check for check in said.json["checks"]}
    for name in ("python", "sqlite", "store", "bash", "tasks"):
        assert by_name[name]["health"] == "ok", by_name[name]
    assert not Path(".mulligan").exists()


def test_the_lines_are_aligned_and_each_begins_with_its_verdict():
    lines = mulligan("doctor").out.splitlines()

    assert all(line.split()[0] in ("ok", "warning", "problem") for line in lines)
    assert "tasks" in lines[6]
    assert lines[6].endswith("a step that runs 'true' completed")


def test_a_store_that_is_there_is_opened_and_written(folder: Path):
    ran("name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n")

    checks = {check["name"]: check for check in mulligan("doctor", "--json").json["checks"]}

    assert checks["store"]["health"] == "ok"
    assert checks["store"]["found"].startswith(f"'{folder}/.mulligan' is writable, schema ")


def test_a_store_that_is_no_database_is_a_problem_and_the_exit_code_says_so(folder: Path):
    Path(".mulligan").mkdir()
    Path(".mulligan/mulligan.db").write_text("this is no database, and it is long enough to be looked at" * 20)

    said = mulligan("doctor", "--json")

    [store] = [check for check in said.json["checks"] if check["name"] == "store"]
    assert (said.code, said.json["ok"], store["health"]) == (1, False, "problem")
    assert store["found"] == f"'{folder}/.mulligan/mulligan.db' is not a database"
    assert f"problem with store: {store['advice']}\n" in mulligan("doctor").err


def test_a_store_of_a_newer_version_is_a_problem():
    ran("name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n")
    database = sqlite3.connect(".mulligan/mulligan.db")
    database.execute("PRAGMA user_version = 9999")
    database.close()

    [store] = [check for check in mulligan("doctor", "--json").json["checks"] if check["name"] == "store"]

    assert (store["health"], store["advice"]) == ("problem", "use the Mulligan that wrote it, or a newer one")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_a_home_that_cannot_be_made_is_a_problem(folder: Path):
    folder.chmod(0o500)

    [store] = [check for check in mulligan("doctor", "--json").json["checks"] if check["name"] == "store"]
    folder.chmod(0o700)

    assert (store["health"], store["found"]) == ("problem", f"'{folder}' is not writable")


# Each judgement, good and bad

JUDGEMENTS = [
    (doctor.python((3, 10, 4)), "problem", "install Python 3.11 or newer"),
    (doctor.python((3, 11, 0)), "ok", ""),
    # the fix, and the two older lines that have it too
    (doctor.sqlite("3.51.3"), "ok", ""),
    (doctor.sqlite("3.50.7"), "ok", ""),
    (doctor.sqlite("3.44.6"), "ok", ""),
    (doctor.sqlite("3.54.1"), "ok", ""),
    *(
        (doctor.sqlite(old), "problem", "install an apsw with SQLite 3.51.3 or newer: pip install -U apsw")
        for old in ("3.51.2", "3.50.6", "3.44.5", "3.45.9", "3.40.1")
    ),
    (doctor.versions("0.2.0", []), "ok", ""),
    # 0.2.1 knows the same schema: otherwise the store would refuse one of the two
    (doctor.versions("0.2.0", [("a.1", "0.2.0"), ("b.1", "0.2.1")]), "ok", ""),
    (
        doctor.versions("0.2.0", [("a.1", "0.2.0"), ("b.1", "")]),
        "warning",
        "the store refuses workers of 0.1: they end by themselves; start them again with this version",
    ),
    (
        doctor.versions("0.2.0", [("b.1", "")], is_migrated=False),
        "warning",
        "end the older workers before this version opens the store",
    ),
    (doctor.disk(Path("/"), 2 << 30), "ok", ""),
    (doctor.disk(Path("/"), 500 << 20), "warning", "make room, or keep runs elsewhere: --home DIR"),
    (
        doctor.disk(Path("/"), 1 << 20),
        "problem",
        "make room: logs and events cannot be written on a full disk",
    ),
    (doctor.bash("/bin/bash"), "ok", ""),
    (doctor.bash(None), "problem", "install bash, which runs shell steps"),
    (doctor.subreaper("linux"), "ok", ""),
    (
        doctor.subreaper("darwin"),
        "warning",
        "a process that leaves the session of its task may survive it: use Linux if that matters",
    ),
    (doctor.memory_kills(True), "ok", ""),
    (
        doctor.memory_kills(False),
        "warning",
        "OUT_OF_MEMORY is detected by measured memory alone: give steps a limit",
    ),
    (doctor.memory_limits(None), "ok", ""),
    (doctor.memory_limits(CgroupParent("/tasks", "/own", True)), "ok", ""),
    (doctor.clock(NOW, 0.1, NOW - timedelta(hours=1), 0.5), "ok", ""),
    # a machine that woke up in 1970
    (doctor.clock(NOW - timedelta(days=20_000), 0.0, None, None), "problem", SET_THE_CLOCK),
    # a run from the future
    (doctor.clock(NOW, 0.0, NOW + timedelta(hours=1), None), "problem", SET_THE_CLOCK),
    (doctor.clock(NOW, 30.0, None, None), "warning", SET_THE_CLOCK),
    # against the database server
    (doctor.clock(NOW, 0.0, None, -12.0), "warning", SET_THE_CLOCK),
]


@pytest.mark.parametrize(
    ("check", "health", "advice"), JUDGEMENTS, ids=[f"{i}-{case[0].name}" for i, case in enumerate(JUDGEMENTS)]
)
def test_what_was_found_is_judged_and_advised(check: Check, health: str, advice: str):
    assert (check.health, check.advice) == (health, advice)


def test_an_old_sqlite_is_told_with_what_it_does():
    assert doctor.sqlite("3.45.1").found == "SQLite 3.45.1, which can damage databases in WAL mode"


def test_workers_of_other_versions_are_named():
    workers = [("b.1", ""), ("a.1", "0.2.0"), *((f"c.{number}", "0.2.1") for number in range(6))]

    assert doctor.versions("0.2.0", workers).found == (
        "this is Mulligan 0.2.0, workers: 1 of this version; 'b.1' is 0.1, 'c.0' is 0.2.1, 'c.1' is 0.2.1, "
        "'c.2' is 0.2.1, 'c.3' is 0.2.1 and 2 more"
    )


def test_a_skewed_clock_is_told_with_its_figure():
    assert (
        doctor.clock(NOW, 0.0, None, -12.0).found
        == "2026-11-15 03:12:00 UTC; it differs by -12.0s from that of the database server"
    )


def test_who_keeps_steps_to_their_memory_is_told():
    assert [doctor.memory_limits(ground).found for ground in (None, CgroupParent("/tasks", "/own", True))] == [
        "memory limits of steps are enforced by measuring: no control group here can be divided",
        "the kernel enforces memory limits of shell steps, in groups below '/tasks'",
    ]


def test_what_makes_environments_of_python_steps_is_named_and_missing_it_is_a_warning():
    assert doctor.requirements("uv at '/bin/uv'") == Check(
        "requirements", "ok", "environments of python steps are made by uv at '/bin/uv'"
    )
    assert doctor.requirements(None).health == "warning"


def test_models_that_can_be_asked_are_named_and_a_missing_key_is_a_warning():
    Path("agents.yaml").write_text("box: {kind: openai, url: http://box}\nkeyed: {kind: openai, key: {env: NO_KEY}}\n")

    ready, problems = agents_here({"MULLIGAN_AGENTS": "agents.yaml", "ANTHROPIC_API_KEY": "sk-12345"})

    assert ready == ["box", "anthropic"]
    assert problems == ["agent 'keyed' has no key: environment variable 'NO_KEY' is not set where the worker runs"]
    assert doctor.agents(ready, []) == Check("agents", "ok", "models that can be asked: box, anthropic")
    assert doctor.agents(ready, problems).health == "warning"
    assert doctor.agents([], []) == Check("agents", "ok", "no model is set up here")


def test_extras_that_are_not_there_are_named_with_what_they_lack():
    missing = {"dask": ["distributed"], "duckdb": ["pytz"], "server": []}

    told = "installed: server; missing: dask (distributed), duckdb (pytz): pip install 'mulligan[…]'"
    assert doctor.extras(missing) == Check("extras", "ok", told)
    assert doctor.extras({"server": []}) == Check("extras", "ok", "installed: server")
    assert doctor.extras({"png": ["resvg-py"]}).found.startswith("installed: none; missing: png (resvg-py)")


def test_every_extra_of_the_package_is_looked_for(monkeypatch: pytest.MonkeyPatch):
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    monkeypatch.setattr(doctor, "_is_installed", lambda library: library != "psycopg")

    [found] = [
        check.found for check in doctor.examine_machine(Home(Path(".mulligan"))).checks if check.name == "extras"
    ]

    others = sorted({*known} - {"postgres", "private-postgres"})
    lacking = "postgres (psycopg), private-postgres (psycopg)"
    assert found == f"installed: {', '.join(others)}; missing: {lacking}: pip install 'mulligan[…]'"


def test_an_installer_that_is_named_and_missing_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_INSTALLER", "/nowhere/uv")

    [found] = [check for check in mulligan("doctor", "--json").json["checks"] if check["name"] == "requirements"]

    assert found["health"] == "problem"
    assert "MULLIGAN_INSTALLER is '/nowhere/uv'" in found["found"]
