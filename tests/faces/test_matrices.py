"""A matrix as one group, in what the commands show."""

from __future__ import annotations

from pathlib import Path

import pytest

from .commands import mulligan, ran

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
    assert "10 failed, 10 completed; 5 with EXIT_NONZERO 5, 5 with EXIT_NONZERO 3" in said.out
    assert rows(said.out) == ["sim", *(f"sim_{seed:02d}" for seed in range(2, 17, 2)), "…", "compare"]
    assert said.out.splitlines()[-2].split() == "… 2 more failed mulligan show 1 sim".split()


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
    assert lines[0] == "sim × 12 of run 1: 6 failed, 6 completed; 3 with EXIT_NONZERO 5, 3 with EXIT_NONZERO 3"
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
        (("logs", 1, "sim"), "'sim' is a matrix of 3 steps in run 1, and one of them must be named"),
    ],
)
def test_what_is_no_step_is_refused(words: tuple[object, ...], message: str):
    swept(3)

    said = mulligan(*words)

    assert said.code == 2
    assert message in said.err


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


def test_one_step_is_tried_alone_with_a_list_in_the_place_of_a_matrix(folder: Path):
    (folder / "flow.yaml").write_text(SUMMED)

    assert mulligan("step", "flow.yaml", "sum", "--result", "sim=[1, null, 3, 4]").out == "[1,3,4]\n"
    assert mulligan("step", "flow.yaml", "sum", "--result", "sim=[1]").code == 2
    assert "such as 'sim_1'" in mulligan("step", "flow.yaml", "sim").err


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
