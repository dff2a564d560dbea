"""Values in paths: none leads a run out of the folder that its author wrote, and nothing of somebody else's goes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.runner import Live, opened
from tests.support.work import Work

pytestmark = pytest.mark.usefixtures("forked_children")

LOGS = 'logs: {stdout: "logs/${f}"}'
LOGS_ALONE = 'logs: {stdout: "${f}"}'
CWD = 'cwd: "logs/${f}"'
CWD_ALONE = 'cwd: "${f}"'

FLOW = """
name: hostile
inputs: {{values: {{type: array}}}}
steps:
  - step: each
    map: {{over: "${{inputs.values}}", as: f, on_item_failure: collect}}
    do:
      - {{shell: 'echo hostile; touch ran', {field}}}
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    (tmp_path / "runner").mkdir()
    with opened(tmp_path / "runner") as found:
        yield found


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    found = Work(tmp_path)
    yield found
    found.close()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of the user's that has nothing to do with any run."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "file").write_text("mine")
    (folder / "link").symlink_to("file")
    return folder


def content(folder: Path) -> list[tuple[str, str]]:
    return sorted(
        (path.name, os.readlink(path) if path.is_symlink() else path.read_text()) for path in folder.iterdir()
    )


def failures(live: Live, field: str, values: list[str]) -> list[tuple[int, str]]:
    ran = live.run(FLOW.format(field=field), inputs={"values": values})
    output: dict[str, Any] = ran.steps["each"]["output"]
    return [(failure["index"], failure["code"]) for failure in output["failures"]]


@pytest.mark.parametrize("field", [LOGS, LOGS_ALONE, CWD, CWD_ALONE])
def test_no_value_leads_out_of_the_folder_that_is_written_before_it(live: Live, elsewhere: Path, field: str) -> None:
    (live.folder / "logs").mkdir()
    for start in (live.folder, live.folder / "logs"):
        (start / "planted").symlink_to(elsewhere)
    up = os.path.relpath(elsewhere, live.folder / "logs")
    values = [up, f"{up}/file", f"{up}/link", f"{up}/new", "planted", "planted/new", "planted/link", "../new", ".."]
    values += [str(elsewhere), f"{elsewhere}/new", str(elsewhere.parent), "a/../../new", "a/..", "./../new"]
    before = content(elsewhere)

    found = failures(live, field, values)

    # A link to a folder elsewhere is something to be replaced for a log, which is not done, and no way out.
    led = [value for index, value in enumerate(values) if (index, "INPUT_INVALID") not in found]
    assert led == (["planted"] if "logs:" in field else [])
    assert content(elsewhere) == before
    assert os.readlink(live.folder / "logs" / "planted") == str(elsewhere)
    assert not (live.folder / "new").exists()


@pytest.mark.parametrize("field", [LOGS, LOGS_ALONE])
def test_a_value_that_stays_below_is_as_good_as_ever(live: Live, field: str) -> None:
    assert failures(live, field, ["a/b.log", "..c", "d e", "./f"]) == []

    folder = live.folder / ("logs" if field == LOGS else ".")
    assert [(folder / name).read_text() for name in ("a/b.log", "..c", "d e", "f")] == ["hostile\n"] * 4


def test_a_value_may_name_a_folder_of_the_run_in_full(live: Live) -> None:
    (live.folder / "sub").mkdir()

    assert failures(live, CWD_ALONE, ["sub", str(live.folder / "sub"), "."]) == []

    assert (live.folder / "sub" / "ran").exists()
    assert (live.folder / "ran").exists()


@pytest.mark.parametrize("value", ["home/mulligan.db-journal", "home/runs/9/logs/a#1.out", "home/workers/new"])
def test_no_log_is_linked_among_the_files_of_the_runs(work: Work, value: str) -> None:
    around = str(work.home.parent)

    done = work.run_shell("echo hostile", home=around, logs={"stdout": value}, folders={"logs.stdout": ""})
    kept = work.run_shell(
        "echo kept", home=around, logs={"stdout": "home/runs/7/output/a.log"}, folders={"logs.stdout": ""}
    )

    assert (done.outcome.code, kept.outcome.log_warning) == ("INPUT_INVALID", "")
    assert not os.path.lexists(work.home.parent / value)
    assert (work.home / "runs/7/output/a.log").read_text() == "kept\n"


def test_the_author_may_have_logs_linked_in_the_home(work: Work) -> None:
    done = work.run_shell(
        "echo out", logs={"stdout": f"{work.home}/links/7"}, folders={"logs.stdout": f"{work.home}/links/"}
    )

    assert (done.outcome.exit_code, done.outcome.log_warning) == (0, "")
    assert (work.home / "links" / "7").read_text() == "out\n"


ANYWHERE = """
name: anywhere
inputs: {dir: {type: string}}
steps:
  - {step: cwd, shell: pwd, cwd: "${any_path(inputs.dir)}"}
  - {step: root, shell: pwd, cwd: "/${inputs.dir}"}
  - {step: log, shell: echo hello, logs: {stdout: "${any_path(inputs.dir)}/log-${attempt}"}}
"""


def test_the_author_may_let_a_value_name_any_path(live: Live, elsewhere: Path) -> None:
    ran = live.run(ANYWHERE, inputs={"dir": str(elsewhere)})

    assert ran.status == "completed"
    assert (ran.steps["cwd"]["output"], ran.steps["root"]["output"]) == (str(elsewhere), str(elsewhere))
    assert (elsewhere / "log-1").read_text() == "hello\n"


OVER = """
name: over
inputs: {file: {type: string}}
steps:
  - {step: each, map: {over: {file: "lists/${inputs.file}"}}, do: "echo ${item}"}
"""


def test_items_are_read_from_no_file_that_a_value_leads_out_to(live: Live, elsewhere: Path) -> None:
    (live.folder / "lists").mkdir()
    (live.folder / "lists" / "good").write_text("a\nb\n")
    (live.folder / "lists" / "planted").symlink_to(elsewhere / "file")

    ran = [live.run(OVER, inputs={"file": file}) for file in ("good", "../secret", "planted", str(elsewhere / "file"))]

    assert ran[0].steps["each"]["output"]["results"] == ["a", "b"]
    assert [one.steps["each"]["failure"]["code"] for one in ran[1:]] == ["INPUT_INVALID"] * 3


DATABASE = """
name: database
inputs: {name: {type: string}}
steps:
  - {step: make, sql: {connection: "sqlite:///data/${inputs.name}.db", query: create table t (n int)}}
"""


def test_no_database_is_made_where_a_value_leads_out_to(live: Live, elsewhere: Path) -> None:
    (live.folder / "data").mkdir()
    up = os.path.relpath(elsewhere, live.folder / "data")

    ran = [live.run(DATABASE, inputs={"name": name}) for name in ("good", f"{up}/new", f"{elsewhere}/new")]

    assert [one.status for one in ran] == ["completed", "failed", "failed"]
    assert [one.steps["make"]["failure"]["code"] for one in ran[1:]] == ["INPUT_INVALID"] * 2
    assert not (elsewhere / "new.db").exists()


# -- what is there already --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folders", [{}, {"logs.stdout": "sub/"}])
def test_no_file_and_no_link_of_somebody_elses_is_replaced_by_one_to_a_log(
    work: Work, elsewhere: Path, folders: dict[str, str]
) -> None:
    sub = work.folder / "sub"
    sub.mkdir()
    (sub / "file").write_text("mine")
    (sub / "link").symlink_to(elsewhere / "file")
    (sub / "broken").symlink_to("/nowhere/runs/1/logs")

    for name in ("file", "link", "broken"):
        for text in ("echo out", "true"):
            work.run_shell(text, logs={"stdout": f"sub/{name}"}, folders=folders)

    assert (sub / "file").read_text() == "mine"
    assert os.readlink(sub / "link") == str(elsewhere / "file")
    assert os.readlink(sub / "broken") == "/nowhere/runs/1/logs"


def test_the_link_to_a_log_of_another_home_stays_until_that_log_is_gone(work: Work, elsewhere: Path) -> None:
    log = elsewhere / "runs" / "3" / "logs" / "a#1.out"
    log.parent.mkdir(parents=True)
    log.write_text("theirs")
    (work.folder / "job.o").symlink_to(log)

    first = work.run_shell("echo one", logs={"stdout": "job.o"})
    log.unlink()
    second = work.run_shell("echo two", logs={"stdout": "job.o"})

    assert "a link that Mulligan did not create" in first.outcome.log_warning
    assert second.outcome.log_warning == ""
    assert (work.folder / "job.o").read_text() == "two\n"


def test_a_step_that_plants_a_link_while_it_runs_leads_its_log_nowhere_else(work: Work, elsewhere: Path) -> None:
    before = content(elsewhere)

    done = work.run_shell(
        f"rm -rf logs; mkdir -p logs; ln -s {elsewhere} logs/a; echo hostile",
        logs={"stdout": "logs/a/new"},
        folders={"logs.stdout": "logs/"},
    )

    assert done.outcome.exit_code == 0
    assert "it leads out" in done.outcome.log_warning
    assert content(elsewhere) == before


def test_a_path_that_the_author_wrote_out_may_lead_anywhere(work: Work, elsewhere: Path) -> None:
    up = os.path.relpath(elsewhere, work.folder)

    work.run_shell("echo out; echo err >&2", logs={"stdout": f"{elsewhere}/a.log", "stderr": f"{up}/b.log"})

    assert ((elsewhere / "a.log").read_text(), (elsewhere / "b.log").read_text()) == ("out\n", "err\n")
