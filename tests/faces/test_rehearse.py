"""`mulligan rehearse`, and fakes in `mulligan step`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan, workflow

pytestmark = pytest.mark.usefixtures("folder")

NIGHTLY = """\
name: nightly
secrets: {warehouse: {env: NO_SUCH_VARIABLE_HERE}}
steps:
  - step: fetch
    http: {url: https://example.invalid/orders}
    retry: {codes: [HTTP_5XX], max_retries: 2}
    validate: size(output.body) > 0
  - step: load
    needs: fetch
    sql: {connection: "${secrets.warehouse}", query: select count(*) as n from orders}
    on_failure: {shell: echo "rolled back", strategy: cleanup}
  - {step: report, needs: load, shell: 'echo "${steps.load.output[0].n} loaded"'}
outputs: {said: "${steps.report.output}"}
"""
FILE = "fetch: [{status: 503}, {body: [1, 2]}]\nload: {rows: [{n: 2}]}\n"


def test_some_steps_are_faked_and_the_rest_is_real() -> None:
    said = mulligan("rehearse", workflow(NIGHTLY), "--fake", "fetch=[1, 2]", "--fake", 'load=[{"n": 2}]')

    assert said.code == 0
    assert said.json == {"said": "2 loaded"}
    assert "fetch   completed (faked)\n" in said.err
    assert "report  completed\n" in said.err


def test_nothing_of_it_is_kept_and_no_command_is_proposed_that_would_look_for_it() -> None:
    said = mulligan("rehearse", workflow(NIGHTLY), "--fake", "fetch=CONNECTION:no route", "--fake", "load=[]")

    assert said.code == 1
    assert not Path(".mulligan").exists()
    assert "mulligan retry" not in said.err
    assert "mulligan logs" not in said.err
    assert said.err.endswith("the run was removed; to keep it: --home DIR\n")


def test_with_a_home_it_is_kept_and_says_which_steps_were_faked() -> None:
    mulligan("rehearse", workflow(NIGHTLY), "--home", "kept", "--fake", "fetch=[1]", "--fake", 'load=[{"n": 1}]')

    found = mulligan("show", 1, "--home", "kept", "--json").json
    shown = mulligan("show", 1, "--home", "kept").out

    assert {name: step["faked"] for name, step in found["steps"].items()} == {
        **{"fetch": True, "load": True},
        "report": False,
    }
    assert [line.split()[-1] for line in shown.splitlines()[2:4]] == ["faked", "faked"]


def test_a_file_of_fakes_says_each_attempt_and_a_word_comes_before_it() -> None:
    Path("fakes.yaml").write_text(FILE, encoding="utf-8")

    well = mulligan("rehearse", workflow(NIGHTLY), "--fakes", "fakes.yaml")
    ill = mulligan("rehearse", workflow(NIGHTLY), "--fakes", "fakes.yaml", "--fake", "load=TIMEOUT", "--json")

    assert (well.code, well.json) == (0, {"said": "2 loaded"})
    assert "retry 1 of 2 at once (rule for HTTP_5XX)" in well.err
    assert (ill.code, ill.json["steps"]["load"]["failure"]["code"]) == (1, "TIMEOUT")
    assert "cleanup handler started" in ill.err


def test_a_faked_output_is_checked() -> None:
    said = mulligan("rehearse", workflow(NIGHTLY), "--fake", "fetch=[]", "--fake", 'load=[{"n": 2}]', "--json")

    assert said.json["steps"]["fetch"]["failure"]["code"] == "VALIDATION_FAILED"


@pytest.mark.parametrize(
    ("fake", "code"), [("nosuch=1", "step.unknown"), ("fetch", "input.invalid"), ("load=3", "input.invalid")]
)
def test_a_fake_that_makes_no_sense_is_refused_before_anything_runs(fake: str, code: str) -> None:
    said = mulligan("rehearse", workflow(NIGHTLY), "--fake", fake)

    assert (said.code, said.err.partition(":")[0]) == (2, f"error[{code}]")


def test_a_step_is_tried_with_what_faked_steps_would_give_it() -> None:
    said = mulligan("step", workflow(NIGHTLY), "report", "--fake", 'load=[{"n": 5}]')

    assert (said.code, said.out) == (0, "5 loaded\n")


def test_a_step_that_is_tried_finds_what_it_reads_in_a_file_of_fakes() -> None:
    Path("fakes.yaml").write_text(FILE, encoding="utf-8")

    assert mulligan("step", workflow(NIGHTLY), "report", "--fakes", "fakes.yaml").out == "2 loaded\n"


def test_a_step_that_is_tried_may_be_faked_itself_so_that_its_check_is_tried() -> None:
    well = mulligan("step", workflow(NIGHTLY), "fetch", "--fake", "fetch=[1]", "--json")
    ill = mulligan("step", workflow(NIGHTLY), "fetch", "--fake", "fetch=[]")

    assert (well.code, well.json["steps"]["fetch"]["faked"]) == (0, True)
    assert (ill.code, "VALIDATION_FAILED" in ill.err) == (1, True)


def test_a_step_that_reads_a_failed_one_is_not_tried() -> None:
    said = mulligan("step", workflow(NIGHTLY), "report", "--fake", "load=TIMEOUT")

    assert (said.code, said.err.partition(":")[0]) == (2, "error[input.invalid]")
