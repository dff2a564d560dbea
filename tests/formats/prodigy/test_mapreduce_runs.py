"""MapReduce workflows and worktrees of Prodigy's, run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.support.git_repository import Repository
from tests.support.runner import Live, Ran, wait_until

from mulligan.core.model import events as e


@pytest.fixture
def repository(live_file: Live, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The folder that runs are started in, as a repository."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    found = Repository(live_file.folder, monkeypatch, has_commit=True)
    monkeypatch.delenv("MULLIGAN_OUTPUT_DIR")
    return found


def run(live: Live, text: str) -> Ran:
    return live.run(text, named="prodigy")


# -- in place --------------------------------------------------------------------------------------------------------

SOME_FAIL = """\
name: some-fail
map:
  input: printf 'a\\nb\\nc\\n'
  agent_template:
    - shell: test ${item} != b || test -e fixed
    - shell: echo "${item} is ${item_id}, ${item_index} of ${item_total}"
reduce:
  - shell: echo "${map.successful} of ${map.total}, ${map.failed} failed, ${map.results[0].output}"
  - write_file: {path: results.json, content: "${map.results}", format: json}
"""


def test_a_failing_command_without_a_handler_fails_its_item_and_the_others_go_on(live_file: Live) -> None:
    ran = run(live_file, SOME_FAIL)

    assert ran.status == "completed"
    assert ran.steps["echo"]["output"] == "2 of 3, 1 failed, a is item_0, 0 of 3"
    changes: dict[str, list[str]] = {"commits": [], "files_modified": []}
    why = "exit code 1"
    assert json.loads((live_file.folder / "results.json").read_text()) == [
        {"item_id": "item_0", "status": "Success", "output": "a is item_0, 0 of 3", **changes},
        {"item_id": "item_1", "status": {"Failed": why}, "output": None, "commits": [], "error": why},
        {"item_id": "item_2", "status": "Success", "output": "c is item_2, 2 of 3", **changes},
    ]


@pytest.mark.nightly
def test_what_failed_runs_again_alone(live_file: Live) -> None:
    ran = run(live_file, SOME_FAIL)
    live_file.write("fixed")

    live_file.service.changes.retry(ran.run_id, from_step="map", items=[])
    again = live_file.resume(ran.run_id)

    assert again.steps["echo"]["output"].startswith("3 of 3, 0 failed")
    assert [fact.index for fact in again.facts(e.ItemEntered)] == [0, 1, 2, 1]


def test_a_variable_of_an_item_is_read_by_the_commands_behind_it(live_file: Live) -> None:
    live_file.write("items.json", '[{"n": 2}, {"n": 3}]')

    ran = run(
        live_file,
        "map:\n  input: items.json\n  agent_template:\n"
        "    - {shell: 'echo $(( 10 * ${item.n} ))', capture: ten, capture_format: number}\n"
        "    - {shell: 'echo large', capture: size, when: '${ten} > 25'}\n"
        "    - {shell: 'echo ${ten} ${size:-small}'}\n",
    )

    assert ran.steps["map"]["output"]["results"] == ["20 small", "30 large"]


def test_too_many_failures_stop_the_map(live_file: Live) -> None:
    ran = run(
        live_file,
        "map: {input: 'seq 9', max_parallel: 1, agent_template: [{shell: 'test ${item} -gt 4'}]}\n"
        "error_policy: {max_failures: 2}\nreduce: [{shell: touch reduced}]\n",
    )

    assert ran.status == "failed"
    assert [fact.index for fact in ran.facts(e.ItemEntered)] == [0, 1]
    assert not (live_file.folder / "reduced").exists()


# -- in a repository -------------------------------------------------------------------------------------------------

TOGETHER = """\
name: together
env: {{MEETING: {folder}}}
map:
  input: echo '["first", "second"]'
  agent_template:
    - shell: |
        touch "$MEETING/${{item}}"
        while ! {{ test -e "$MEETING/first" && test -e "$MEETING/second"; }}; do sleep 0.01; done
        echo ${{item}} > {file}
"""


# Nothing is merged, so what is in the checkout was put there directly.
IN_FOLDERS = """\
name: folders
map:
  input: echo pkg
  agent_template:
    - shell: touch made && git add made && git commit -qm 'made in ${item}'
      working_dir: ${item}
reduce:
  - shell: cd .. && basename "$PWD" > "$ELSEWHERE/reduced"
    working_dir: ${env.BELOW}
  - shell: test -e reduced
    working_dir: ${env.ELSEWHERE}
merge:
  - shell: "true"
"""


def test_items_work_side_by_side_and_come_together_in_the_branch(
    live_file: Live, repository: Repository, tmp_path: Path
) -> None:
    ran = run(live_file, TOGETHER.format(folder=tmp_path, file="${item}.txt"))

    assert ran.status == "completed"
    assert (repository.read("first.txt"), repository.read("second.txt")) == ("first\n", "second\n")
    assert (repository.branches, repository.worktrees) == (["main"], [])
    assert repository.git("status", "--porcelain") == "?? flow.yaml"


@pytest.mark.nightly
def test_a_folder_that_a_value_names_is_in_the_worktree_and_not_in_the_checkout(
    live_file: Live, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.write("pkg/x", "x")
    repository.commit("pkg")
    monkeypatch.setenv("ELSEWHERE", str(tmp_path))
    monkeypatch.setenv("BELOW", "pkg")

    ran = run(live_file, IN_FOLDERS)

    assert ran.status == "completed"
    assert repository.git("log", "-1", "--format=%s", "mulligan/run-1", "--", "pkg/made") == "made in pkg"
    assert repository.read("pkg/made") is None
    assert (tmp_path / "reduced").read_text() == "run-1\n"


def test_a_conflict_fails_the_later_item_alone_and_its_work_stays(
    live_file: Live, repository: Repository, tmp_path: Path
) -> None:
    ran = run(live_file, TOGETHER.format(folder=tmp_path, file="base.txt"))

    (failed,) = ran.steps["map"]["output"]["failures"]
    assert failed["code"] == "MERGE_CONFLICT"
    assert f"mulligan items {ran.run_id} map --retry" in failed["message"]
    winner = ["second", "first"][failed["index"]]
    assert repository.read("base.txt") == f"{winner}\n"
    assert repository.worktrees == [f"run-1-item-map-{failed['index']}"]
    assert ran.steps["merge"]["output"]["kept"] == [
        str(live_file.home.folder / f"worktrees/run-1-item-map-{failed['index']}")
    ]


@pytest.mark.nightly
def test_a_failed_item_is_repaired_and_merged_in_a_later_round(live_file: Live, repository: Repository) -> None:
    text = (
        "map: {input: 'seq 2', agent_template: [{shell: 'echo ${item} > ${item}.txt; test ${item} = 1 || test -e ok'}]}"
    )
    ran = run(live_file, text)
    assert (repository.read("1.txt"), repository.read("2.txt")) == ("1\n", None)

    (kept,) = ran.steps["merge"]["output"]["kept"]
    Path(kept, "ok").touch()
    live_file.service.changes.retry(ran.run_id, from_step="map", items=[])
    again = live_file.resume(ran.run_id)

    assert again.status == "completed"
    assert repository.read("2.txt") == "2\n"
    assert (repository.branches, repository.worktrees) == (["main"], [])


@pytest.mark.nightly
def test_a_run_that_failed_goes_on_in_its_worktree_and_says_where_that_is(
    live_file: Live, repository: Repository, tmp_path: Path
) -> None:
    text = f"- {{shell: echo one > one.txt}}\n- {{shell: 'test -e one.txt && test -e {tmp_path}/ok'}}\n"
    ran = run(live_file, text)

    worktree = live_file.home.folder / "worktrees/run-1"
    assert ran.shown["end"]["output"] == {
        "status": "failed",
        "reason": f"its work is in {worktree} on branch 'mulligan/run-1'; a retry continues there",
    }
    assert repository.read("one.txt") is None
    (tmp_path / "ok").touch()
    live_file.service.changes.retry(ran.run_id)
    again = live_file.resume(ran.run_id)
    assert (again.status, repository.read("one.txt")) == ("completed", "one\n")
    assert [fact.place for fact in again.facts(e.AttemptStarted, place="echo_one")] == ["echo_one"]


def test_a_worker_that_is_killed_while_an_item_works_loses_nothing(
    live_file: Live, repository: Repository, tmp_path: Path
) -> None:
    live_file.write(
        "flow.yaml",
        "map:\n  input: seq 2\n  max_parallel: 1\n  agent_template:\n"
        f"    - shell: echo ${{item}} > ${{item}}.txt; touch {tmp_path}/here; test ${{item}} = 1 ||\n"
        f"        while ! test -e {tmp_path}/go; do sleep 0.01; done\n",
    )
    with live_file.process("run", "flow.yaml", "--format", "prodigy") as process:
        worktree = live_file.home.folder / "worktrees/run-1-item-map-1"
        wait_until(lambda: (worktree / "2.txt").exists(), "the second item never began")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    (tmp_path / "go").touch()
    ran = live_file.resume(1)

    assert ran.status == "completed"
    assert (repository.read("1.txt"), repository.read("2.txt")) == ("1\n", "2\n")
    assert (repository.branches, repository.worktrees) == (["main"], [])
