"""The example projects do what their tutorials say, and what these leave out: both databases of the pipeline, every way
in which a simulation of the sweep fails, and an agent that does not help.

The tutorials themselves are played by `test_docs.py`.
"""

from __future__ import annotations

import errno
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from jsonschema import Draft202012Validator
from tests.support.runner import Live, opened, wait_until

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.failure import Failure
from mulligan.language import lint, load
from mulligan.language.schema import schema
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import plain
from mulligan.service.rendering.drawing import draw_svg

FOLDER = Path(__file__).parent.parent / "examples"
PROJECTS = ["pipeline", "sweep", "agent-loop"]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with opened(tmp_path) as found:
        yield found


def copied(live: Live, project: str) -> Path:
    """The workflow of a project, whose files are where its steps work."""
    shutil.copytree(FOLDER / project, live.folder, dirs_exist_ok=True)
    return live.folder / f"{project}.yaml"


@pytest.mark.parametrize("project", PROJECTS)
def test_a_project_loads_without_a_warning_fits_the_schema_and_can_be_drawn(project: str) -> None:
    path = FOLDER / project / f"{project}.yaml"

    workflow = load(path)
    written = plain(parse(decode(path.read_bytes(), path.name)))
    problems = [error.message for error in Draft202012Validator(schema()).iter_errors(written)]

    assert (workflow.name, lint(path), problems) == (project, [], [])
    assert all(step.name in draw_svg(workflow) for step in workflow.steps)


@pytest.mark.parametrize("project", PROJECTS)
def test_a_project_names_its_tutorial_and_the_index_names_both(project: str) -> None:
    text = (FOLDER / project / f"{project}.yaml").read_text(encoding="utf-8")
    index = (FOLDER / "README.md").read_text(encoding="utf-8")

    assert f"# Tutorial: docs/start/tutorials/{project}.md\n" in text
    assert f"({project}/)" in index
    assert f"(../docs/start/tutorials/{project}.md)" in index


@pytest.mark.parametrize("project", ["sweep", "agent-loop"])
def test_the_files_that_a_tutorial_has_its_reader_save_are_those_of_the_example(project: str) -> None:
    page = (FOLDER.parent / "docs" / "start" / "tutorials" / f"{project}.md").read_text(encoding="utf-8")

    saved = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))

    assert saved == {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / project).iterdir()}


# The pipeline.


@contextmanager
def open_shop(folder: Path) -> Iterator[str]:
    """The address of a shop that is open."""
    shop = [sys.executable, "shop.py"]
    subprocess.run([*shop, "start"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    try:
        yield (folder / "shop.url").read_text().strip()
    finally:
        subprocess.run([*shop, "stop"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.nightly
def test_the_pipeline_loads_into_both_databases_or_into_none(live: Live, schema_url: str) -> None:
    path = copied(live, "pipeline")
    with open_shop(live.folder) as url:
        failed = live.run(path, inputs={"shop": url, "postgres": schema_url, "rate": 9.2})
        rows_after_undo = rows_in_both(live, schema_url)
        asked = live.lines("shop.log")
        forked = live.resume(live.service.changes.fork(failed.run_id, "transform", {"rate": 0.92}).fork_run_id)

    # Too many requests, down twice, and once broken off in the middle of an answer.
    expected = {"HTTP_429": 1, "HTTP_5XX": 2, "CONNECTION": 1}
    assert Counter(fact.failure.code for fact in failed.facts(e.AttemptFailed)) == expected
    assert (failed.status, failed.steps["check"]["failure"]["code"]) == ("failed", "VALIDATION_FAILED")
    assert {fact.step for fact in failed.facts(e.UndoCompleted)} == {"sqlite", "postgres"}
    assert rows_after_undo == (0, 0)
    assert (forked.status, forked.shown["outputs"]) == ("completed", {"orders": 100, "euros": 133741.89})
    assert rows_in_both(live, schema_url) == (12, 12)
    # What was fetched is kept: the shop was not asked again.
    assert [line for line in live.lines("shop.log") if "GET" in line] == asked


def test_a_shop_that_is_closed_is_gone(live: Live) -> None:
    copied(live, "pipeline")

    with open_shop(live.folder) as url:
        port = int(url.rpartition(":")[2])

    wait_until(lambda: refuses(port))


def refuses(port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def rows_in_both(live: Live, schema_url: str) -> tuple[int, int]:
    ran = live.run(
        "steps: [{step: a, sql: {connection: 'sqlite:///warehouse.db', query: select count(*) as n from sales}}]"
    )
    with psycopg.connect(schema_url) as connection:
        [(there,)] = connection.execute("select count(*) from sales").fetchall()
    return ran.steps["a"]["output"][0]["n"], there


# The sweep.


def test_each_simulation_that_fails_is_retried_by_the_rule_for_its_failure(live: Live) -> None:
    ran = live.run(copied(live, "sweep"))

    assert ran.steps["simulate"]["output"]["failed"] == 3
    assert ran.shown["outputs"]["solved"] == 297
    failures = Counter(how(fact.failure) for fact in ran.facts(e.AttemptFailed))
    expected = {"EXIT_NONZERO 11": 3, "EXIT_NONZERO 3": 3, "SIGNALED 137": 2, "OUT_OF_MEMORY": 2, "TIMEOUT": 2}
    assert failures == expected
    adjusted = [fact.adjusted for fact in ran.facts(e.RetryScheduled) if fact.adjusted]
    assert sorted(adjusted_keys(one) for one in adjusted) == ["memory", "memory", "timeout", "timeout"]

    (live.folder / "solver.conf").write_text("damping = 0.5\n")
    live.service.changes.retry(ran.run_id, from_step="simulate", items=[])
    again = live.resume(ran.run_id)

    assert (again.status, again.shown["outputs"]["solved"]) == ("completed", 300)


def how(failure: Failure) -> str:
    code = failure.exit_code if failure.code in ("EXIT_NONZERO", "SIGNALED") else None
    return f"{failure.code} {code}" if code is not None else failure.code


def adjusted_keys(adjusted: Adjusted) -> str:
    return ", ".join(name for name in ("memory", "timeout", "cpus") if getattr(adjusted, name) is not None)


# The agent loop.


def test_the_loop_ends_when_a_person_approves_and_what_was_refused_goes_back_to_the_agent(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULLIGAN_AGENT_CODER", f"{sys.executable} robot.py")

    first = live.run(copied(live, "agent-loop"))
    live.service.changes.approve(first.run_id, "review", is_approved=False, reason="say what percent is")
    second = live.resume(first.run_id)
    live.service.changes.approve(first.run_id, "review", is_approved=True, reason="reads well")
    last = live.resume(first.run_id)

    assert [ran.exit_code for ran in (first, second, last)] == [4, 4, 0]
    assert {name: step["visits"] for name, step in last.steps.items() if step["visits"] > 1} == {
        "tests": 4,
        "fix": 2,
        "diff": 2,
        "review": 2,
    }
    assert '"""The total, less so many percent."""' in live.read("published.py")


def test_an_agent_that_changes_nothing_ends_the_loop_at_its_limit(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_AGENT_CODER", "echo I have looked at it")

    ran = live.run(copied(live, "agent-loop"))

    assert (ran.status, ran.steps["tests"]["failure"]["code"]) == ("failed", "LOOP_LIMIT")
    assert not (live.folder / "published.py").exists()
