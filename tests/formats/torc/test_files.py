"""Files and user data: what commands name, what waits for what, and what must be there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mulligan.formats import convert, examine

from .reading import job, jobs, loaded, ours, refusal, warned, warnings

FILES = "files: [{name: raw, path: in/raw.csv}, {name: clean, path: out/clean.csv}]"


def test_files_are_named_at_the_top_and_read_and_written_by_steps() -> None:
    found = ours(f"""
        name: w
        {FILES}
        jobs:
          - {{name: a, command: x, input_files: [raw], output_files: [clean]}}
          - {{name: b, command: x, input_files: [clean]}}
    """)

    assert found["files"] == {"raw": "in/raw.csv", "clean": "out/clean.csv"}
    assert found["steps"] == [
        {"step": "a", "shell": "x", "reads": ["raw"], "writes": ["clean"]},
        {"step": "b", "shell": "x", "reads": ["clean"]},
    ]


def test_files_have_parameters_and_their_names_are_made_to_fit() -> None:
    found = ours("""
        name: w
        parameters: {i: 1:2}
        files:
          - {name: 'out-{lr:.2f}', path: 'out/{lr:.2f}.txt', parameters: {lr: '[0.1,0.25]'}}
          - {name: '{i}', path: 'i/{i:02d}', use_parameters: [i]}
          - {name: 'z_{i}_{k}', path: 'z{i}{k}', parameter_mode: zip, parameters: {i: 1:2, k: '[a,b]'}}
        jobs: [{name: a, command: x, output_file_regexes: [.]}]
    """)

    assert found["files"] == {
        "out_0_10": "out/0.10.txt",
        "out_0_25": "out/0.25.txt",
        "_1": "i/01",
        "_2": "i/02",
        "z_1_a": "z1a",
        "z_2_b": "z2b",
    }
    assert found["steps"][0]["writes"] == list(found["files"])


# -- what commands name --------------------------------------------------------------------------------------------

NAMED = [
    ("cat ${files.input.raw}", "cat in/raw.csv", {"reads": ["raw"]}),
    ("x > ${files.output.clean}", "x > out/clean.csv", {"writes": ["clean"]}),
    (
        "x < '${files.input.raw}' > \\\"${files.output.clean}\\\"",
        "x < 'in/raw.csv' > \"out/clean.csv\"",
        {"reads": ["raw"], "writes": ["clean"]},
    ),
    # the same one twice
    ("x ${files.input.raw} ${files.input.raw}", "x in/raw.csv in/raw.csv", {"reads": ["raw"]}),
    # a path that goes on
    ("x ${files.input.raw}.bak", "x in/raw.csv.bak", {"reads": ["raw"]}),
    # what is the shell's stays
    (
        "f=${files.input.raw}; echo ${f%.csv} $HOME ${x:-y}",
        "f=in/raw.csv; echo ${f%.csv} $HOME ${x:-y}",
        {"reads": ["raw"]},
    ),
]


@pytest.mark.parametrize(("command", "shell", "links"), NAMED)
def test_what_a_command_names_is_filled_in_and_read_or_written(command: str, shell: str, links: dict) -> None:
    assert job(f'- {{name: a, command: "{command}"}}', FILES) == {"shell": shell, **links}


def test_what_a_command_names_joins_what_the_job_lists() -> None:
    """In Torc it takes the place of the list, and what the list names is forgotten."""
    found = job("- {name: a, command: 'x ${files.input.raw}', input_files: [clean]}", FILES)

    assert found["reads"] == ["clean", "raw"]


def test_an_invocation_script_stands_before_the_command_and_names_files_too() -> None:
    found = job(
        "- {name: a, command: 'run ${files.input.clean}', invocation_script: 'srun -i ${files.input.raw}'}", FILES
    )

    assert found == {"shell": "srun -i in/raw.csv run out/clean.csv", "reads": ["raw", "clean"]}


def test_a_parameter_may_be_part_of_the_name_of_a_file_in_a_command() -> None:
    top = "files: [{name: 'f_{i:02d}', path: 'f/{i}.txt', parameters: {i: 1:2}}]"

    found = jobs("- {name: 'a{i}', command: 'x > ${files.output.f_{i:02d}}', parameters: {i: 1:2}}", top)

    assert [step["shell"] for step in found.values()] == ["x > f/1.txt", "x > f/2.txt"]
    assert [step["writes"] for step in found.values()] == [["f_01"], ["f_02"]]


# -- user data -----------------------------------------------------------------------------------------------------

VALUES = [
    ("{a: 1, b: [true, null]}", '{"a":1,"b":[true,null]}'),
    ("text", '"text"'),
    ("3.5", "3.5"),
    ("[]", "[]"),
    ("false", "false"),
    ('"größer ${x}"', '"größer ${x}"'),
]


@pytest.mark.parametrize(("data", "text"), VALUES)
def test_a_command_gets_user_data_as_compact_json(data: str, text: str) -> None:
    found = job(
        "- {name: a, command: \"x '${user_data.input.u}'\"}",
        f"user_data: [{{name: u, data: {data}, is_ephemeral: true}}]",
    )

    assert found == {"shell": f"x '{text}'"}


def test_who_reads_user_data_needs_who_writes_it() -> None:
    found = jobs(
        """
        - {name: a, command: x, output_user_data: [u]}
        - {name: b, command: x, output_user_data_regexes: [^v]}
        - {name: c, command: x, input_user_data: [u], input_user_data_regexes: ['^v2$']}
        - {name: d, command: 'x ${user_data.input.w}'}
        - {name: e, command: 'x ${user_data.output.w}'}
        """,
        "user_data: [{name: u}, {name: v1}, {name: v2}, {name: w, data: 1}]",
    )

    assert found["c"]["needs"] == ["a", "b"]
    assert found["d"] == {"shell": "x ${run.data.w}", "needs": ["e"]}


# -- what is refused -----------------------------------------------------------------------------------------------

REFUSED = [
    # a slip, in a list and in a command
    (
        "files: [{name: mesh, path: m}]\njobs: [{name: a, command: x, input_files: [mehs]}]",
        "error[language.unknown_file]: w.yaml:3:44: there is no file 'mehs'\n"
        "  3 | jobs: [{name: a, command: x, input_files: [mehs]}]\n"
        "    |                                            ^^^^ did you mean 'mesh'?",
    ),
    (
        "files: [{name: mesh, path: m}]\njobs: [{name: a, command: 'x ${files.output.mehs}'}]",
        "error[language.unknown_file]: w.yaml:3:27: there is no file 'mehs'\n"
        "  3 | jobs: [{name: a, command: 'x ${files.output.mehs}'}]\n"
        "    |                           ^^^^^^^^^^^^^^^^^^^^^^^^ did you mean 'mesh'?",
    ),
    (
        "jobs: [{name: a, command: 'x ${user_data.input.u}'}]",
        "error[language.unknown_user_data]: w.yaml:2:27: there is no user data 'u'\n"
        "  2 | jobs: [{name: a, command: 'x ${user_data.input.u}'}]\n"
        "    |                           ^^^^^^^^^^^^^^^^^^^^^^^^",
    ),
    # nobody matches
    (
        "jobs: [{name: a, command: x, output_file_regexes: [^out]}]",
        "error[language.unknown_file]: w.yaml:2:52: no file matches '^out'\n"
        "  2 | jobs: [{name: a, command: x, output_file_regexes: [^out]}]\n"
        "    |                                                    ^^^^",
    ),
    # one name twice
    (
        "files: [{name: f, path: a}, {name: f, path: b}]\njobs: [{name: a, command: x, output_files: [f]}]",
        "error[language.duplicate_name]: w.yaml:2:36: there are two files 'f': first in line 2\n"
        "  2 | files: [{name: f, path: a}, {name: f, path: b}]\n"
        "    |                                    ^",
    ),
    (
        "user_data: [{name: u, data: 1}, {name: u}]\njobs: [{name: a, command: x}]",
        "error[language.duplicate_name]: w.yaml:2:40: there are two user data 'u': first in line 2\n"
        "  2 | user_data: [{name: u, data: 1}, {name: u}]\n"
        "    |                                        ^",
    ),
    # one name for several paths
    (
        "files: [{name: f, path: 'f{i}', parameters: {i: 1:2}}]\njobs: [{name: a, command: x, output_files: [f]}]",
        "error[language.parameter]: w.yaml:2:25: "
        "'path' depends on 'i', but the name 'f' does not\n"
        "  2 | files: [{name: f, path: 'f{i}', parameters: {i: 1:2}}]\n"
        "    |                         ^^^^^^ add '{i}' to the name, or remove it from 'path'",
    ),
    # a value that never comes
    (
        "user_data: [{name: u}]\njobs: [{name: a, command: x, input_user_data: [u]}]",
        "error[language.user_data]: w.yaml:2:20: job 'a' reads user data 'u', which has neither a value nor a writer\n"
        "  2 | user_data: [{name: u}]\n"
        "    |                    ^ add 'data: …', or let a job write it",
    ),
    (
        "user_data: [{name: u, data: .inf}]\njobs: [{name: a, command: x}]",
        "error[language.number]: w.yaml:2:29: '.inf' is a number that JSON does not have\n"
        "  2 | user_data: [{name: u, data: .inf}]\n"
        "    |                             ^^^^",
    ),
    # Torc's documents show parameters there, and Torc refuses them
    (
        "user_data: [{name: u, data: 1, parameters: {i: 1:2}}]\njobs: [{name: a, command: x}]",
        "error[language.unknown_key]: w.yaml:2:32: 'parameters' is not a key of user data 'u'\n"
        "  2 | user_data: [{name: u, data: 1, parameters: {i: 1:2}}]\n"
        "    |                                ^^^^^^^^^^ there are 'name', 'data' and 'is_ephemeral'",
    ),
    (
        "files: [{name: f, path: f, st_mtime: 1}]\njobs: [{name: a, command: x, output_files: [f]}]",
        "error[language.unknown_key]: w.yaml:2:28: 'st_mtime' is not a key of file 'f'\n"
        "  2 | files: [{name: f, path: f, st_mtime: 1}]\n"
        "    |                            ^^^^^^^^ "
        "there are 'name', 'path', 'parameters', 'parameter_mode' and 'use_parameters'",
    ),
    (
        "files: [{name: f, path: '${HOME}/f'}]\njobs: [{name: a, command: x, output_files: [f]}]",
        "error[language.type]: w.yaml:2:25: 'f' in 'files' is '${HOME}/f', a text without '${…}' is expected\n"
        "  2 | files: [{name: f, path: '${HOME}/f'}]\n"
        "    |                         ^^^^^^^^^^^",
    ),
]


@pytest.mark.parametrize(("entries", "said"), REFUSED)
def test_what_cannot_be_read_or_written_is_refused_where_it_stands(entries: str, said: str) -> None:
    assert refusal(f"name: w\n{entries}\n") == said


# -- what is said --------------------------------------------------------------------------------------------------


def test_user_data_without_a_name_is_left_out_and_that_is_said() -> None:
    said = warned("name: w\nuser_data: [{data: 1}]\njobs: [{name: a, command: x}]\n")

    assert said == (
        "warning[language.user_data]: w.yaml:2:13: user data without a name is ignored\n"
        "  2 | user_data: [{data: 1}]\n"
        "    |             ^"
    )


def test_a_job_that_does_not_set_the_user_data_that_it_writes_is_warned_of_once() -> None:
    said = warned(
        "name: w\nuser_data: [{name: u}, {name: v}]\njobs:\n"
        "- {name: a, command: x, output_user_data: [u, v]}\n- {name: b, command: x, output_user_data: [v]}\n"
    )

    assert said == (
        "warning[language.user_data]: w.yaml:4:43: "
        "job 'a' writes user data 'u', and its command does not set it\n"
        "  4 | - {name: a, command: x, output_user_data: [u, v]}\n"
        "    |                                           ^ let it run: mulligan data set u VALUE"
    )


def test_user_data_that_no_command_has_in_it_is_data_of_the_run_and_there_is_one_warning() -> None:
    text = (
        "name: w\nuser_data: [{name: u, data: 1}, {name: v, data: [2]}, {name: w, data: 3}]\njobs:\n"
        "- {name: a, command: 'x ${user_data.input.w}', input_user_data: [v]}\n"
    )

    assert warned(text) == (
        "warning[language.user_data]: w.yaml:2:20: "
        "no command refers to user data 'u' and 'v': there is no server to get it from\n"
        "  2 | user_data: [{name: u, data: 1}, {name: v, data: [2]}, {name: w, data: 3}]\n"
        "    |                    ^ write ${user_data.input.u} in a command, or: mulligan data get u"
    )
    assert ours(text)["data"] == {"u": 1, "v": [2]}
    assert not warnings(text.replace("command: 'x ", "command: 'mulligan data get v; x "))


def test_user_data_that_is_too_large_for_a_run_is_kept_and_there_is_a_warning() -> None:
    text = f"name: w\nuser_data: [{{name: u, data: {'x' * 70_000}}}]\njobs: [{{name: a, command: x}}]\n"

    assert warnings(text) == ["the user data 'u' is too large: kept but not used"]
    assert [item["name"] for item in ours(text)["x-torc"]["user_data"]] == ["u"]


QUOTED = [
    ("x ${user_data.input.u}", "x ${run.data.u}"),
    ('x "${user_data.input.u}"', 'x "${run.data.u}"'),
    ("x '${user_data.input.u} and'", "x ''\"${run.data.u}\"' and'"),
    ("x ${user_data.input.u.v}", 'x ${run.data["u.v"]}'),
]


@pytest.mark.parametrize(("command", "shell"), QUOTED)
def test_user_data_that_a_job_writes_is_filled_in_when_the_step_starts(command: str, shell: str) -> None:
    found = jobs(
        "- {name: a, command: mulligan data set u 1, output_user_data: [u, u.v]}\n"
        f"- name: b\n  command: {json.dumps(command)}\n",
        "user_data: [{name: u}, {name: u.v}]",
    )

    assert found["b"] == {"shell": shell, "needs": ["a"]}


def test_a_file_that_no_job_uses_is_told_of_where_it_stands() -> None:
    said = warnings("name: w\nfiles: [{name: f, path: f}]\njobs: [{name: a, command: x}]\n")

    assert said == ["the file 'f' is declared and never read or written"]


def test_of_the_files_of_one_entry_that_no_job_uses_there_is_one_warning() -> None:
    file = "{name: 'f_{i}_{k}', path: 'f{i}{k}', parameters: {i: 1:3, k: 1:6}}"
    job = "{name: a, command: x, output_files: [f_1_1]}"

    assert warnings(f"name: w\nfiles: [{file}]\njobs: [{job}]\n") == [
        "the file 'f_1_2' and 16 others of the same entry are declared and never read or written"
    ]


UNORDERED = """
name: w
files: [{name: f, path: f.txt}]
jobs:
- {name: a, command: echo a > f.txt, output_files: [f]}
- {name: b, command: echo b > f.txt, output_files: [f]}
- {name: c, command: cat f.txt, input_files: [f]}
"""


def test_two_jobs_may_write_one_file_at_the_same_time_as_in_torc_and_there_is_a_warning() -> None:
    assert warned(UNORDERED) == (
        "warning[language.writers]: w.yaml:6:52: steps 'a' and 'b' both write 'f', and neither comes first\n"
        "  6 | - {name: b, command: echo b > f.txt, output_files: [f]}\n"
        "    |                                                    ^ let one need the other, or write another file"
    )
    assert [need.of for need in loaded(UNORDERED).steps[2].needs] == ["a", "b"]


def test_what_torc_allows_is_allowed_in_the_converted_file_too(tmp_path: Path) -> None:
    (tmp_path / "torc.yaml").write_text(UNORDERED)

    ours = tmp_path / "ours.yaml"
    ours.write_text(convert(tmp_path / "torc.yaml").text)

    assert [warning.shown_code for warning in examine(ours).warnings] == ["language.writers"]
