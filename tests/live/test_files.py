"""Declared files, live: a reader needs the writer, and what is declared must be there."""

from __future__ import annotations

import pytest
from tests.support.runner import Live

from mulligan.core.model import events as e
from mulligan.errors import InputInvalid


def test_a_reader_starts_when_its_writer_has_completed(live_file: Live):
    ran = live_file.run("""
        name: mesh
        files: {mesh: out/mesh.vtk, result: out/result.txt}
        steps:
          - {step: solve, shell: "wc -l < ${files.mesh} > ${files.result}", reads: [mesh], writes: result}
          - {step: mesh, shell: "mkdir -p out; echo points > ${files.mesh}", writes: [mesh]}
    """)

    assert ran.status == "completed"
    assert live_file.read("out/result.txt").strip() == "1"


def test_a_reader_is_skipped_when_its_writer_fails(live_file: Live):
    ran = live_file.run("""
        name: mesh
        files: {mesh: mesh.vtk}
        steps:
          - {step: mesh, shell: exit 3, writes: mesh}
          - {step: solve, shell: cat mesh.vtk, reads: mesh}
    """)

    assert {name: step["status"] for name, step in ran.steps.items()} == {"mesh": "failed", "solve": "skipped"}


MISSING = """
name: missing
files: {first: first.txt, second: second.txt}
fail_fast: never
steps:
  - {step: shell, shell: touch first.txt, writes: [first, second]}
  - {step: python, python: 'def main(): return 1', writes: third}
  - {step: failing, shell: exit 7, writes: fourth}
  - {step: folder, shell: 'mkdir made', writes: made}
"""


def test_what_is_declared_and_not_there_after_exit_0_is_output_missing(live_file: Live):
    ran = live_file.run(MISSING.replace("second.txt}", "second.txt, third: third.txt, fourth: fourth.txt, made: made}"))

    found = {name: step["failure"] for name, step in ran.steps.items() if step["failure"]}
    assert {name: (failure["code"], failure["message"]) for name, failure in found.items()} == {
        "shell": ("OUTPUT_MISSING", "declared files missing after exit code 0: second"),
        "python": ("OUTPUT_MISSING", "declared files missing after exit code 0: third"),
        # What it did not write is not the trouble.
        "failing": ("EXIT_NONZERO", "exit code 7"),
    }
    assert ran.steps["folder"]["status"] == "completed"


def test_a_missing_output_may_be_retried_and_routed_as_any_failure(live_file: Live):
    ran = live_file.run("""
        name: late
        files: {page: page.html, never: never.html}
        steps:
          - step: late
            shell: '[ $MULLIGAN_ATTEMPT = 1 ] || touch page.html'
            writes: page
            retry: {rules: [{codes: [OUTPUT_MISSING], max_retries: 1, delay: 0s}]}
          - {step: lost, shell: 'true', writes: never, next: [{to: mend, on: failure, codes: [OUTPUT_MISSING]}]}
          - {step: mend, shell: 'true'}
    """)

    assert ran.status == "completed"
    assert [fact.failure.code for fact in ran.facts(e.AttemptFailed, place="late")] == ["OUTPUT_MISSING"]
    assert ran.steps["mend"]["status"] == "completed"


def test_files_are_looked_for_where_run_was_called_whatever_the_folder_of_the_step(live_file: Live):
    ran = live_file.run("""
        name: folders
        files: {here: here.txt, there: sub/there.txt}
        order: sequential
        fail_fast: never
        steps:
          - {step: make, shell: mkdir sub}
          - {step: well, shell: touch there.txt, cwd: sub, writes: there}
          - {step: wrong, shell: touch here.txt, cwd: sub, writes: here}
    """)

    assert ran.steps["well"]["status"] == "completed"
    assert ran.steps["wrong"]["failure"]["message"] == "declared files missing after exit code 0: here"


def test_a_map_has_written_its_files_when_all_its_items_are_done(live_file: Live):
    ran = live_file.run("""
        name: mapped
        files: {parts: parts.txt}
        steps:
          - {step: each, map: {over: [1, 2, 3], as: n}, do: ['echo ${n} >> parts.txt'], writes: parts}
          - {step: count, shell: wc -l < parts.txt, reads: parts}
    """)

    assert ran.steps["count"]["output"].strip() == "3"


def test_each_step_of_a_matrix_may_have_a_file_of_its_own(live_file: Live):
    ran = live_file.run("""
        name: swept
        files: {part_1: one.txt, part_2: two.txt}
        fail_fast: never
        steps:
          - {step: 'read_{n}', matrix: {n: [1, 2]}, shell: 'cat one.txt two.txt', reads: 'part_{n}'}
          - {step: 'make_{n}', matrix: {n: [1, 2]}, shell: touch one.txt, writes: ['part_{n}']}
    """)

    assert {name: step["status"] for name, step in ran.steps.items()} == {
        "read_1": "failed",
        "read_2": "skipped",
        "make_1": "completed",
        "make_2": "failed",
    }
    assert ran.steps["make_2"]["failure"]["message"] == "declared files missing after exit code 0: part_2"


READS = """
name: reads
files: {data: data.csv}
steps: [{step: load, shell: cat data.csv, reads: data}]
"""


def test_an_input_that_nobody_writes_and_is_not_there_is_refused_before_the_run_starts(live_file: Live):
    with pytest.raises(InputInvalid) as refused:
        live_file.run(READS)

    assert refused.value.render() == (
        f"error[input.invalid]: file 'data.csv' does not exist, and no step writes it\n  looked in {live_file.folder}"
    )
    assert live_file.service.reader.runs() == []

    live_file.write("data.csv", "1\n")
    assert live_file.run(READS).steps["load"]["output"] == "1"


def test_an_input_of_a_child_is_looked_for_before_the_run_starts_too(live_file: Live):
    live_file.write("child.yaml", READS)

    with pytest.raises(InputInvalid) as refused:
        live_file.run("name: parent\nsteps: [{step: call, workflow: {file: child.yaml}}]")

    assert refused.value.message == "file 'data.csv' does not exist, and no step writes it"


def test_a_child_reads_what_its_parent_has_written_and_the_other_way_round(live: Live):
    live.write("child.yaml", READS.replace("cat data.csv", "cat data.csv; touch done.txt"))

    ran = live.run("""
        name: parent
        files: {made: ./data.csv}
        steps:
          - {step: make, shell: echo 7 > data.csv, writes: made}
          - {step: call, needs: [make], workflow: {file: child.yaml}}
          - {step: after, needs: [call], shell: ls done.txt}
    """)

    assert ran.status == "completed"
    [child] = live.children(ran.run_id)
    assert child.steps["load"]["output"] == "7"


def test_a_child_that_does_not_write_what_it_declares_fails_its_caller(live_file: Live):
    live_file.write("child.yaml", "name: child\nfiles: {f: f.txt}\nsteps: [{step: a, shell: 'true', writes: f}]")

    ran = live_file.run("name: parent\nsteps: [{step: call, workflow: {file: child.yaml}}]")

    failure = ran.steps["call"]["failure"]
    assert (failure["code"], failure["cause"][0]["code"]) == ("CHILD_FAILED", "OUTPUT_MISSING")
