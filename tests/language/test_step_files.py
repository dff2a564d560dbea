"""What steps read and write: names from `files`, and plain paths."""

from __future__ import annotations

import pytest

from mulligan.core.model.text.paths import literal_prefix
from mulligan.core.model.workflow import Need
from mulligan.errors import LanguageError, Problem

from .reading import workflow as read


def problems(text: str) -> list[Problem]:
    with pytest.raises(LanguageError) as refused:
        read(text)
    return list(refused.value.problems)


def test_a_plain_path_is_called_by_its_shortest_form_and_its_reader_needs_the_writer():
    workflow = read("""
        name: w
        steps:
          - {step: solve, shell: make, reads: [./data/../data/mesh.vtk, base.txt]}
          - {step: mesh, shell: make, writes: data/mesh.vtk}
    """)

    solve, mesh = workflow.steps
    assert (solve.reads, mesh.writes) == (("data/mesh.vtk", "base.txt"), ("data/mesh.vtk",))
    assert solve.needs == (Need("mesh"),)


def test_a_path_and_the_name_under_which_it_is_declared_are_one_file():
    workflow = read("""
        name: w
        files: {mesh: data/mesh.vtk}
        steps:
          - {step: solve, shell: make, reads: ./data/mesh.vtk}
          - {step: mesh, shell: make, writes: mesh}
    """)

    assert [step.reads + step.writes for step in workflow.steps] == [("mesh",), ("mesh",)]
    assert workflow.steps[0].needs == (Need("mesh"),)


def test_a_path_with_a_value_is_called_by_its_text_and_stays_in_the_folder_before_the_value():
    workflow = read("""
        name: w
        inputs: {day: string}
        steps:
          - {step: fetch, shell: make, writes: "raw/${inputs.day}.csv"}
          - {step: clean, shell: make, reads: "raw/${inputs.day}.csv"}
    """)

    fetch, clean = workflow.steps
    assert fetch.writes == clean.reads == ("raw/${inputs.day}.csv",)
    assert clean.needs == (Need("fetch"),)
    before = literal_prefix(fetch.file_paths["raw/${inputs.day}.csv"])
    assert before is not None and before.parts[-1] == "raw/"


@pytest.mark.parametrize("written", ["out/part_{i:02d}.csv", "out/part_0${matrix.i}.csv"])
def test_each_step_of_a_matrix_has_a_path_of_its_own(written: str):
    workflow = read(f"""
        name: w
        steps:
          - {{step: part, matrix: {{i: [1, 2]}}, shell: make, writes: "{written}"}}
          - {{step: join, shell: make, reads: [out/part_01.csv, out/part_02.csv]}}
    """)

    first, second, join = workflow.steps
    assert (first.writes, second.writes) == (("out/part_01.csv",), ("out/part_02.csv",))
    assert (first.file_paths, join.needs) == ({}, (Need("part_1"), Need("part_2")))


def test_a_path_of_a_matrix_step_may_have_values_of_both_kinds():
    workflow = read("""
        name: w
        inputs: {day: string}
        steps:
          - {step: part, matrix: {i: [1, 2]}, shell: make, writes: "${inputs.day}/${matrix.i}.csv"}
    """)

    assert [step.writes for step in workflow.steps] == [("${inputs.day}/1.csv",), ("${inputs.day}/2.csv",)]
    assert [list(step.file_paths) for step in workflow.steps] == [list(step.writes) for step in workflow.steps]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        # Neither declared nor a path: a slip, as before.
        ("reads: mehs", "unknown_file"),
        ("reads: 'data/*.csv'", "unknown_file"),
        ("writes: 'out/{i}.csv'", "unknown_file"),
        ("writes: 'out/${inputs.nope}.csv'", "unknown_input"),
        ("writes: 'out/${secrets.token}.csv'", "secret"),
        ("matrix: {i: [1]}, writes: 'out/{j}.csv'", "matrix"),
        ("cache: {key: '${secrets.token}'}", "secret"),
        ("cache: {}", "missing_key"),
        ("cache: {kye: a}", "unknown_key"),
        ("cache: sometimes", "type"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_stands(said: str, code: str):
    (found, *_) = problems(f"""
        name: w
        files: {{mesh: data/mesh.vtk}}
        secrets: {{token: {{env: TOKEN}}}}
        steps:
          - {{step: a, shell: make, {said}}}
    """)

    assert (found.code, found.line) == (f"language.{code}", 6)


@pytest.mark.parametrize("action", ["wait: 1s", "approve: now?", "group: {steps: [{step: b, shell: make}]}"])
def test_a_step_that_no_worker_carries_out_has_no_result_to_take_over(action: str):
    (found,) = problems(f"name: w\nsteps:\n  - {{step: a, {action}, cache: true}}\n")

    assert found.code == "language.stray_key"
    assert read(f"name: w\nsteps:\n  - {{step: a, {action}, cache: false}}\n").steps[0].cache is False


def test_two_steps_that_write_one_path_in_two_ways_need_an_order():
    (found,) = problems("""
        name: w
        files: {mesh: mesh.vtk}
        steps:
          - {step: a, shell: make, writes: mesh}
          - {step: b, shell: make, writes: ./mesh.vtk}
    """)

    assert found.code == "language.writers"


def test_a_map_whose_items_read_what_the_items_of_another_write_needs_it():
    workflow = read("""
        name: w
        files: {ref: ref.fa}
        steps:
          - step: call
            map: {over: [a, b], as: n}
            do: [{shell: make, reads: ["bam/${n}.bam", ref], writes: "vcf/${n}.vcf"}]
          - step: align
            map: {over: [a, b], as: n}
            do: [{shell: make, writes: "bam/${n}.bam"}]
          - {step: fetch, shell: make, writes: ref}
          - step: again
            map: {over: [c], as: n}
            do: [{shell: make, writes: "bam/${n}.bam"}]
    """)

    call, align, _, again = workflow.steps
    assert {need.of for need in call.needs} == {"align", "fetch", "again"}
    assert (align.needs, again.needs) == ((), ())
    assert call.do[0].reads == ("bam/${n}.bam", "ref")
    assert list(call.do[0].file_paths) == ["bam/${n}.bam", "vcf/${n}.vcf"]
