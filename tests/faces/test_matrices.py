"""A matrix as one group, in what the commands show."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran

from .pages import Page

pytestmark = pytest.mark.usefixtures("folder")

# Of 12 steps those with an even seed fail, in two ways.
SWEEP = """\
name: sweep
steps:
  - step: "sim_{seed:02d}"
    matrix: {seed: 1..COUNT, solver: [euler]}
    shell: |
      echo ${matrix.seed}
      test ${matrix.seed % 2} = 1 || exit ${matrix.seed % 4 + 3}
    capture: json
  - {step: compare, needs: [{step: sim, on: always}], shell: "true"}
"""


def swept(count: int = 12) -> None:
    ran(SWEEP.replace("COUNT", str(count)))


def rows(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines()[2:]]


def test_a_large_matrix_is_one_row_of_show_with_what_failed_below():
    swept(20)

    said = mulligan("show", 1)

    assert "sim × 20  failed  20" in said.plain[1]
    assert "10 failed, 10 completed; failures: 5 with EXIT_NONZERO 3, 5 with EXIT_NONZERO 5" in said.out
    assert rows(said.out) == ["sim", *(f"sim_{seed:02d}" for seed in range(2, 17, 2)), "…", "compare"]
    assert said.out.splitlines()[-2].split() == "… 2 more failed mulligan show 1 sim".split()


def test_a_run_in_brief_counts_its_steps_and_lists_what_failed():
    swept(20)

    said = mulligan("show", 1, "--brief").out.splitlines()

    assert said[1] == "21 steps: 10 failed, 11 completed"
    assert [line.split()[0] for line in said[3:]] == [
        "sim",
        *(f"sim_{seed:02d}" for seed in range(2, 17, 2)),
        "…",
        "compare",
    ]
    assert said[-2].split() == "… 2 more failed mulligan show 1 sim".split()


def test_a_run_in_brief_counts_the_steps_that_need_no_attention():
    steps = "".join(f"  - {{step: s{n}, shell: 'exit {n % 10 == 3:d}'}}\n" for n in range(25))
    ran(f"name: wide\nfail_fast: never\nsteps:\n{steps}")

    said = mulligan("show", 1, "--brief").out.splitlines()

    assert said[1] == "25 steps: 3 failed, 22 completed"
    assert [line.split()[0] for line in said[3:6]] == ["s3", "s13", "s23"]
    assert said[6].split() == "… 22 more completed mulligan show 1 --all".split()


def test_brief_and_all_exclude_each_other():
    assert mulligan("show", "--brief", "--all").code == 2


def test_a_single_one_more_is_shown_and_not_counted():
    swept(18)

    assert rows(mulligan("show", 1).out) == ["sim", *(f"sim_{seed:02d}" for seed in range(2, 19, 2)), "compare"]


def test_a_small_matrix_is_shown_whole_below_its_row():
    swept(2)

    assert rows(mulligan("show", 1).out) == ["sim", "sim_01", "sim_02", "compare"]


def test_a_matrix_is_shown_alone_with_what_failed_first():
    swept()

    said = mulligan("show", 1, "sim")

    lines = said.out.splitlines()
    assert (
        lines[0] == "sim × 12 of run 1: 6 failed, 6 completed; failures: 3 with EXIT_NONZERO 3, 3 with EXIT_NONZERO 5"
    )
    assert [line.split()[:2] for line in lines[2:]] == [
        *([f"sim_{seed:02d}", "failed"] for seed in range(2, 13, 2)),
        *([f"sim_{seed:02d}", "completed"] for seed in range(1, 13, 2)),
    ]
    assert "mulligan items 1 sim" in said.err


def test_one_step_is_shown_with_its_values_and_its_attempts_also_in_the_newest_run():
    swept()

    said = mulligan("show", "sim_02")

    lines = said.out.splitlines()
    assert lines[0] == "step 'sim_02' of run 1, sim with seed=2, solver=euler: failed; EXIT_NONZERO 5: 2"
    assert lines[2].split()[2:4] == ["sim_02", "1"]
    assert "mulligan logs 1 sim_02" in said.err


def test_a_step_or_a_matrix_as_json():
    swept(3)

    one, group = mulligan("show", 1, "sim_03", "--json").json, mulligan("show", 1, "sim", "--json").json

    assert (one["name"], one["output"], one["matrix"]) == (
        "sim_03",
        3,
        {"name": "sim", "values": {"seed": 3, "solver": "euler"}},
    )
    assert [tried["status"] for tried in one["tries"]] == ["succeeded"]
    assert (group["statuses"], group["attempts"]) == ({"completed": 2, "failed": 1}, 3)
    assert [step["name"] for step in group["steps"]] == ["sim_02", "sim_01", "sim_03"]
    assert list(mulligan("show", 1, "--json").json["matrices"]["sim"]["combinations"]) == ["sim_01", "sim_02", "sim_03"]


def test_what_a_matrix_gave_is_a_list():
    swept(3)

    assert mulligan("show", 1, "--output", "sim").json == [1, None, 3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", 1, "smi"), "'smi' is not a step of run 1"),
        (("logs", 1, "sim"), "'sim' is a matrix of 3 steps in run 1: name one of them"),
    ],
)
def test_what_is_no_step_is_refused(words: tuple[object, ...], message: str):
    swept(3)

    said = mulligan(*words)

    assert said.code == 2
    assert message in said.err


def test_the_story_of_a_matrix_is_that_of_its_steps():
    swept(2)

    assert {line["place"] for line in mulligan("explain", 1, "sim", "--json").json} == {"sim_01", "sim_02"}


# what later steps read

SUMMED = """\
name: summed
steps:
  - step: "sim_{i}"
    matrix: {i: 1..4}
    shell: test ${matrix.i} != 3 && echo ${matrix.i * 10}
    capture: json
  - step: sum
    needs: [{step: sim, on: always}]
    when: size(steps.sim.failed) < 2
    shell: echo ${steps.sim.output.filter(one, one != null)}
    capture: json
outputs:
  sum: ${steps.sum.output}
  failed: "${steps.sim.failed.map(one, one.matrix.i)}"
  second: ${steps.sim.output[1]}
"""


def test_what_a_whole_matrix_gave_is_read_by_later_steps_conditions_and_outputs():
    assert ran(SUMMED).json == {"sum": [10, 20, 40], "failed": [3], "second": 20}


def test_a_matrix_that_would_be_called_end_takes_nothing_from_the_end():
    said = ran(
        "name: last\nsteps:\n  - {step: 'end_{i}', matrix: {i: 1..2}, shell: echo 1}\n"
        "end: {shell: echo over}\noutputs: {said: '${steps.end.output}'}\n"
    )

    assert said.json == {"said": "over"}
    assert rows(mulligan("show", 1).out)[:3] == ["end_1", "end_2", "end"]


def test_one_step_is_tried_alone_with_a_list_in_the_place_of_a_matrix(folder: Path):
    (folder / "flow.yaml").write_text(SUMMED)

    assert mulligan("step", "flow.yaml", "sum", "--result", "sim=[1, null, 3, 4]").out == "[1,3,4]\n"
    assert mulligan("step", "flow.yaml", "sum", "--result", "sim=[1]").code == 2
    assert "for example 'sim_1'" in mulligan("step", "flow.yaml", "sim").err


# the graph


def test_a_run_is_drawn_with_a_card_for_its_matrix():
    swept(20)

    said = mulligan("graph", "--run", 1)

    assert 's0["sim #215; 20<br/>shell<br/>10 failed, 10 completed"]' in said.out
    assert "sim_01" in mulligan("graph", "--run", 1, "--expand").out
    assert [node["statuses"] for node in mulligan("graph", "--run", 1, "--json").json["nodes"]] == [
        {"completed": 10, "failed": 10},
        {},
        {},
    ]


@pytest.mark.parametrize("words", [(), ("flow.yaml", "--run", 1), ("--run", 1, "--format", "torc")])
def test_a_picture_is_of_a_file_or_of_a_run(words: tuple[object, ...]):
    assert (mulligan("graph", *words).code, mulligan("graph", *words).err.partition(":")[0]) == (2, "error[usage]")


# items and statistics


def test_the_steps_of_a_matrix_are_its_items_with_what_differs_in_columns_and_what_is_shared_above():
    swept(4)

    assert mulligan("items", 1, "sim", "--failed").out.splitlines() == [
        "all with solver=euler",
        "ITEM  STATUS  TRIES  STEP    SEED",
        "1     failed  1      sim_02  2     EXIT_NONZERO 5: 2",
        "3     failed  1      sim_04  4     EXIT_NONZERO 3: 4",
    ]
    assert [
        (item["name"], item["item"]["seed"], item["output"]) for item in mulligan("items", 1, "sim", "--json").json
    ] == [
        ("sim_01", 1, 1),
        ("sim_02", 2, None),
        ("sim_03", 3, 3),
        ("sim_04", 4, None),
    ]


def test_one_step_of_a_matrix_has_its_history_as_an_item_has():
    swept(2)

    assert [tried["place"] for tried in mulligan("items", 1, "sim", "--item", 1, "--json").json[0]["history"]] == [
        "sim_02"
    ]
    assert mulligan("items", 1, "sim", "--item", 2).code == 2


def test_a_matrix_gets_no_round_by_its_items():
    swept(2)

    said = mulligan("items", 1, "sim", "--retry")

    assert (said.code, "mulligan retry 1" in said.err) == (2, True)


MAPPED = """\
name: mapped
steps:
  - step: check
    map: {over: "OVER", as: one}
    do: [{shell: "true"}]
"""


@pytest.mark.parametrize(
    ("over", "lines"),
    [
        (
            "${[{'b': 's3://x', 'n': 1}, {'b': 's3://x', 'n': 2}]}",
            [
                "all with b=s3://x",
                "ITEM  STATUS     TRIES  N",
                "0     completed  1      1",
                "1     completed  1      2",
            ],
        ),
        # Without a value that is too long for its column, nothing is taken away from any.
        ("${['/data/in/a', '/data/in/b']}", ["ITEM  STATUS     TRIES  VALUE", "0     completed  1      /data/in/a"]),
        (
            "${['/data/2026/11/archive/a.csv', '/data/2026/11/archive/b.csv']}",
            ["all with /data/2026/11/archive/…", "ITEM  STATUS     TRIES  VALUE", "0     completed  1      …a.csv"],
        ),
        # Equal ones are told apart by their number alone.
        ("${[{'n': 1}, {'n': 1}]}", ["ITEM  STATUS     TRIES  VALUE", '0     completed  1      {"n": 1}']),
        (
            "${[{'a': 1, 'b': 1, 'c': 1, 'd': 1, 'e': 1, 'f': 1}, {'a': 2, 'b': 2, 'c': 2, 'd': 2, 'e': 2, 'f': 2}]}",
            ["ITEM  STATUS     TRIES  VALUE", "0     completed  1      a=1, b=1, c=1, d=1, e=1…"],
        ),
    ],
    ids=["mappings", "short texts", "long texts", "equal", "many values"],
)
def test_items_are_shown_with_what_tells_them_apart(over: str, lines: list[str]):
    ran(MAPPED.replace("OVER", over))

    assert mulligan("items", 1, "check").out.splitlines()[: len(lines)] == lines


def test_a_matrix_is_one_line_of_the_statistics():
    ran(SWEEP.replace("COUNT", "4").replace("    capture", "    retry: 1\n    capture"))

    assert [(line["step"], line["tried"]) for line in mulligan("stats", 1, "--json").json] == [("sim", 2)]


# the report


def test_a_matrix_is_one_row_of_the_report_with_a_fold_for_its_steps(folder: Path):
    swept(20)

    mulligan("report", 1, "-o", "report.html")

    html = (folder / "report.html").read_text()
    page = Page(html)
    assert page.problems == []
    # Of the table, of the fold and of the card in the graph.
    assert html.count("sim × 20") == 4
    assert "sim × 20: 10 failed, 10 completed" in page.text
    assert "sim 20 steps, 10 failures" in page.text
    assert "seed=2, solver=euler" in page.text
    assert [step["matrix"] for step in mulligan("report", 1, "--json").json["steps"]] == [*["sim"] * 20, "", ""]


def test_the_timeline_has_the_steps_of_a_matrix_below_one_line_and_their_items_below_them(folder: Path):
    ran(
        "name: nested\nsteps:\n"
        "  - {step: 'part_{i}', matrix: {i: 1..3}, map: {over: [1, 2]}, do: [{shell: 'true'}]}\n"
        "  - {step: alone, shell: 'true'}\n"
    )

    mulligan("report", 1, "-o", "report.html")

    text = Page((folder / "report.html").read_text()).text
    assert "part 3 steps" in text
    assert text.count(" 2 items") >= 3


# the last word of a run


def test_many_failed_steps_of_a_matrix_are_one_line_of_the_last_word():
    said = ran(SWEEP.replace("COUNT", "12"))

    last = said.err.partition("run 1 failed")[2].splitlines()[1:]
    assert last[0].strip() == (
        "✗ sim × 12  6 failed, 3 with EXIT_NONZERO 3, 3 with EXIT_NONZERO 5  (mulligan show 1 sim)"
    )
    assert not any("sim_02" in line for line in last)


def test_a_few_failed_steps_of_a_matrix_are_told_one_by_one():
    said = ran(SWEEP.replace("COUNT", "6"))

    last = said.err.partition("run 1 failed")[2]
    assert [f"sim_0{seed}" in last for seed in (2, 4, 6)] == [True] * 3
    assert "sim × 6" not in last


def test_what_another_round_would_run_of_a_matrix_is_told_together():
    swept(24)
    other = SWEEP.replace("COUNT", "24").replace("echo ${matrix.seed}", "echo seed ${matrix.seed}")
    Path("other.yaml").write_text(other, encoding="utf-8")

    again, corrected = mulligan("retry", 1, "--dry-run"), mulligan("retry", 1, "--file", "other.yaml", "--dry-run")

    assert again.out.splitlines()[1] == "12 of sim × 24  it failed"
    assert "kept: 12 of sim × 24" in again.err
    assert [line.split("  ")[0] for line in corrected.out.splitlines()] == [
        *("STEP", "12 of sim × 24", "12 of sim × 24", "compare")
    ]
    assert again.out.splitlines()[2] == "compare         it comes after 'sim_02'"
    assert len(mulligan("retry", 1, "--dry-run", "--json").json["steps"]) == 13


COMPARED = """\
name: compared
steps:
  - {step: sim, matrix: {seed: [1, 2, 3]}, shell: 'test ${matrix.seed} != 2 || test -e fixed'}
  - step: compare
    needs: [{step: sim, on: always}]
    env: {FAILED: "${size(steps.sim.failed)}"}
    shell: echo "$FAILED failed"
outputs: {said: "${steps.compare.output}"}
"""


def test_what_compares_a_matrix_compares_it_again_when_a_failed_combination_has_run_again():
    assert ran(COMPARED, "--json").json["outputs"] == {"said": "1 failed"}
    Path("fixed").touch()

    said = mulligan("retry", 1, "--follow", "--json").json

    assert (said["status"], said["outputs"]) == ("completed", {"said": "0 failed"})
    assert {name: step["visits"] for name, step in said["steps"].items()} == {
        "sim_1": 1,
        "sim_2": 2,
        "sim_3": 1,
        "compare": 2,
    }
