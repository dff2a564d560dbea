"""Parameters: what a text stands for, how values are combined, and how they go into texts."""

from __future__ import annotations

import pytest

from .reading import jobs, loaded, names, refusal, warned

VALUES = [
    # ranges of whole numbers: both ends belong to them
    ('"1:3"', ["1", "2", "3"]),
    ('"3:3"', ["3"]),
    ('"0:10:5"', ["0", "5", "10"]),
    ('"0:9:5"', ["0", "5"]),
    ('"3:1:-1"', ["3", "2", "1"]),
    ('"-2:0"', ["-2", "-1", "0"]),
    ('" 1 : 3 "', ["1", "2", "3"]),
    # unquoted: to YAML 1.2 that is a text, and not a time of day
    ("1:3", ["1", "2", "3"]),
    ("1:10:9", ["1", "10"]),
    # of floats where one of its numbers is one; the dust of binary fractions is no reason to leave out the last
    ('"0.1:0.5:0.1"', ["0.1", "0.2", "0.3", "0.4", "0.5"]),
    ('"0.5:2"', ["0.5", "1.5"]),
    ('"1:2:0.5"', ["1", "1.5", "2"]),
    ('"1:0:-0.5"', ["1", "0.5", "0"]),
    ('"0.0:1.0"', ["0", "1"]),
    ('"1e-3:3e-3:1e-3"', ["0.001", "0.002", "0.003"]),
    # lists: whole numbers, else numbers, else texts without their quotes
    ('"[1,2,3]"', ["1", "2", "3"]),
    ('"[1, 2.5, x]"', ["1", "2.5", "x"]),
    ('"[\'adam\', \\"sgd\\", rms]"', ["adam", "sgd", "rms"]),
    ("\"['a,b', c]\"", ["a,b", "c"]),
    ('"[0.0001, 1e-5, 1.0]"', ["0.0001", "0.00001", "1"]),
    ('"[7]"', ["7"]),
    ('"[a, b,]"', ["a", "b"]),
    # braces say nothing
    ('"{1:3}"', ["1", "2", "3"]),
    ('"{[a,b]}"', ["a", "b"]),
    # one value
    ('"5"', ["5"]),
    ('"2.50"', ["2.5"]),
    ("hello", ["hello"]),
    ("'\"1:3\"'", ["1:3"]),
    # what is no range of numbers is a text
    ('"a:b"', ["a:b"]),
    ('"12:xx"', ["12:xx"]),
    # what is beyond all numbers is a text, too
    ('"[1e999, 1]"', ["1e999", "1"]),
    # what YAML says itself
    ("5", ["5"]),
    ("0.25", ["0.25"]),
    ("true", ["true"]),
    ("[1, 2.5, x, '1:3']", ["1", "2.5", "x", "1:3"]),
    # all digits of a number count
    ('"[12345678901234567890, 12345678901234567891]"', ["12345678901234567890", "12345678901234567891"]),
]


@pytest.mark.parametrize("text", ["12:xx", "1:10:", "1:2:3:4", "[a, b"])
def test_one_value_that_looks_like_several_is_told_of_once(text: str) -> None:
    said = warned(f"""
        name: w
        parameters: {{p: "{text}"}}
        jobs:
          - {{name: "a_{{p}}", command: x, use_parameters: [p]}}
          - {{name: "b_{{p}}", command: x, use_parameters: [p]}}
    """)

    assert said == (
        f"warning[language.parameter]: w.yaml:3:17: "
        f"parameter 'p' has one value, '{text}', which is neither a range nor a list\n"
        f'  3 | parameters: {{p: "{text}"}}\n'
        f"    |                 {'^' * (len(text) + 2)} a range is '1:10' or '1:10:2', a list is '[a,b]'"
    )


@pytest.mark.parametrize(("written", "values"), VALUES)
def test_a_parameter_stands_for_these_values(written: str, values: list[str]) -> None:
    found = jobs(f"- {{name: 'j <{{p}}>', command: 'echo {{p}}', parameters: {{p: {written}}}}}")

    assert [step["shell"] for step in found.values()] == [f"echo {value}" for value in values]


FORMATS = [
    ("{p}", "7", "7"),
    ("{p:03d}", "7", "007"),
    ("{p:01d}", "7", "7"),
    ("{p:02d}", "123", "123"),
    ("{p:04d}", "-7", "-007"),
    ("{p:.2f}", "0.5", "0.50"),
    ("{p:.0f}", "2.7", "3"),
    ("{p:.3f}", "'1e-3'", "0.001"),
    # the other kind of number, where it fits
    ("{p:.2f}", "1", "1.00"),
    ("{p:03d}", "2.0", "002"),
    # both forms in one text, which Torc itself does not do
    ("{p:03d} {p} {p:.1f}", "7", "007 7 7.0"),
    # other braces are the command's own
    ("awk '{print $1}' {p} ${p} {q} {{p}}", "7", "awk '{print $1}' 7 ${p} {q} {7}"),
    ("echo ${#p} ${p:-x} {}", "7", "echo ${#p} ${p:-x} {}"),
]


@pytest.mark.parametrize(("text", "value", "filled"), FORMATS)
def test_values_go_into_texts(text: str, value: str, filled: str) -> None:
    (step,) = jobs(f'- {{name: "j{{p}}", command: "{text}", parameters: {{p: {value}}}}}').values()

    assert step["shell"] == filled


def test_parameters_are_combined_each_with_each_and_the_last_one_runs_fastest() -> None:
    found = names("- {name: 'j_{a}_{b}', command: x, parameters: {a: '1:2', b: '[x,y]'}}")

    assert found == ["j_1_x", "j_1_y", "j_2_x", "j_2_y"]


def test_with_zip_the_first_goes_with_the_first() -> None:
    found = names("- {name: 'j_{a}_{b}', command: x, parameters: {a: '1:2', b: '[x,y]'}, parameter_mode: zip}")

    assert found == ["j_1_x", "j_2_y"]


def test_product_can_be_said() -> None:
    found = names("- {name: 'j_{a}_{b}', command: x, parameters: {a: 1:2, b: 1:2}, parameter_mode: product}")

    assert len(found) == 4


def test_parameters_of_the_workflow_are_for_those_who_name_them() -> None:
    top = "parameters: {a: '1:2', b: '[x,y]', unused: '1:3'}"

    found = names(
        """
        - {name: 'one_{a}', command: x, use_parameters: [a]}
        - {name: 'both_{a}_{b}', command: x, use_parameters: [b, a], parameter_mode: zip}
        - {name: 'none_{a}', command: x}
        - {name: 'own_{a}', command: x, use_parameters: [b], parameters: {a: '8:9'}}
        """,
        top,
    )

    assert found == ["one_1", "one_2", "both_1_x", "both_2_y", "none__a_", "own_8", "own_9"]


def test_a_parameter_goes_into_every_text_of_a_job() -> None:
    found = loaded("""
        name: w
        files:
          - {name: 'in_{i}', path: 'in/{i:02d}', parameters: {i: 1:2}}
          - {name: 'out_{i}', path: 'o{i}', parameters: {i: 1:2}}
        resource_requirements: [{name: r1, num_cpus: 1, memory: 1g}, {name: r2, num_cpus: 2, memory: 2g}]
        failure_handlers: [{name: h1, rules: [{exit_codes: [1]}]}, {name: h2, rules: [{exit_codes: [2]}]}]
        slurm_schedulers: [{name: s1, account: a}, {name: s2, account: a}]
        jobs:
          - {name: 'pre_{i}', command: 'true', parameters: {i: 1:2}}
          - name: 'j_{i}'
            command: run {i}
            invocation_script: wrap {i}
            resource_requirements: r{i}
            failure_handler: h{i}
            scheduler: s{i}
            depends_on: ['pre_{i}']
            input_files: ['in_{i}']
            output_file_regexes: ['^out_{i}$']
            parameters: {i: 1:2}
    """)
    second = found.steps[3]

    assert second.name == "j_2"
    assert second.action is not None and second.action.params["text"] == "wrap 2 run 2"
    assert second.resources is not None and second.resources.cpus == 2
    assert 2 in second.rules[0].exit_codes
    assert [need.of for need in second.needs] == ["pre_2"]
    assert (second.reads, second.writes) == (("in_2",), ("out_2",))


# -- one job for several values ------------------------------------------------------------------------------------


def test_a_name_without_the_parameter_is_one_job_that_waits_for_all() -> None:
    found = jobs("""
        - {name: 'work_{i}', command: 'echo {i}', parameters: {i: '1:3'}}
        - {name: gather, command: ./gather, depends_on: ['work_{i}'], parameters: {i: '1:3'}}
    """)

    assert found["gather"] == {"shell": "./gather", "needs": ["work_1", "work_2", "work_3"]}


def test_a_name_with_one_of_two_parameters_is_a_job_for_each_value_of_that() -> None:
    found = jobs("""
        - {name: 'w_{i}_{k}', command: 'echo {i}', parameters: {i: '1:2', k: '[a,b]'}}
        - {name: 'sum_{i}', command: 'sum {i}', depends_on: ['w_{i}_{k}'], parameters: {i: '1:2', k: '[a,b]'}}
    """)

    assert found["sum_1"] == {"shell": "sum 1", "needs": ["w_1_a", "w_1_b"]}
    assert found["sum_2"] == {"shell": "sum 2", "needs": ["w_2_a", "w_2_b"]}


def test_one_job_reads_and_writes_the_files_of_all_values() -> None:
    top = "files: [{name: 'f{i}', path: 'f{i}.txt', parameters: {i: '1:2'}}, {name: sum, path: sum.txt}]"

    found = jobs(
        "- {name: gather, command: x, input_files: ['f{i}'], output_files: [sum], parameters: {i: '1:2'}}", top
    )

    assert found["gather"] == {"shell": "x", "reads": ["f1", "f2"], "writes": ["sum"]}


def test_a_value_that_is_there_twice_is_one_job() -> None:
    assert names("- {name: 'j{i}', command: 'x {i}', parameters: {i: '[1,1,2]'}}") == ["j1", "j2"]


# -- what is refused -----------------------------------------------------------------------------------------------

REFUSED = [
    # zip of different lengths
    (
        "- {name: 'j{a}', command: x, parameter_mode: zip, parameters: {a: 1:3, b: 1:2}}",
        "error[language.parameter]: w.yaml:3:75: with 'zip' all parameters must have the same number of values: "
        "'a' has 3, 'b' has 2\n"
        "  3 | - {name: 'j{a}', command: x, parameter_mode: zip, parameters: {a: 1:3, b: 1:2}}\n"
        "    |                                                                           ^^^",
    ),
    # a parameter of the workflow that is not there
    (
        "- {name: 'j{a}', command: x, use_parameters: [lerning_rate]}",
        "error[language.parameter]: w.yaml:3:47: the workflow has no parameter 'lerning_rate'\n"
        "  3 | - {name: 'j{a}', command: x, use_parameters: [lerning_rate]}\n"
        "    |                                               ^^^^^^^^^^^^ "
        "declare it under 'parameters' of the workflow",
    ),
    # a million
    (
        "- {name: 'j{a}', command: x, parameters: {a: 1:1000, b: 1:1000}}",
        "error[language.parameter]: w.yaml:3:3: "
        "the parameters have 1,000,000 combinations, but at most 100,000 are allowed\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: 1:1000, b: 1:1000}}\n"
        "    |   ^",
    ),
    (
        "- {name: 'j{a}', command: x, parameters: {a: 1:999999999999}}",
        "error[language.parameter]: w.yaml:3:46: "
        "parameter 'a' has 999,999,999,999 values, but at most 100,000 are allowed\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: 1:999999999999}}\n"
        "    |                                              ^^^^^^^^^^^^^^",
    ),
    # a range that leads nowhere
    (
        "- {name: 'j{a}', command: x, parameters: {a: 5:1}}",
        "error[language.parameter]: w.yaml:3:46: "
        "the range of parameter 'a' has no values: its step points away from its end\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: 5:1}}\n"
        "    |                                              ^^^ write '5:1:-1', or swap the ends",
    ),
    (
        "- {name: 'j{a}', command: x, parameters: {a: 1:5:0}}",
        "error[language.parameter]: w.yaml:3:46: "
        "the range of parameter 'a' has a step or an end that is too small or too large\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: 1:5:0}}\n"
        "    |                                              ^^^^^",
    ),
    (
        "- {name: 'j{a}', command: x, parameters: {a: 1:1e999}}",
        "error[language.parameter]: w.yaml:3:46: "
        "the range of parameter 'a' has a step or an end that is too small or too large\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: 1:1e999}}\n"
        "    |                                              ^^^^^^^",
    ),
    (
        "- {name: 'j{a}', command: x, parameters: {a: [.inf]}}",
        "error[language.number]: w.yaml:3:47: '.inf' is a number that JSON does not have\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: [.inf]}}\n"
        "    |                                               ^^^^",
    ),
    # no values
    (
        "- {name: 'j{a}', command: x, parameters: {a: '[]'}}",
        "error[language.parameter]: w.yaml:3:46: parameter 'a' has no values\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: '[]'}}\n"
        "    |                                              ^^^^",
    ),
    (
        "- {name: 'j{a}', command: x, parameters: {a: ''}}",
        "error[language.parameter]: w.yaml:3:46: parameter 'a' has no values\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: ''}}\n"
        "    |                                              ^^",
    ),
    # what is no value
    (
        "- {name: 'j{a}', command: x, parameters: {a: [[1], 2]}}",
        "error[language.type]: w.yaml:3:47: a value of parameter 'a' is a list, a text or a number is expected\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: [[1], 2]}}\n"
        "    |                                               ^",
    ),
    (
        "- {name: 'j{a}', command: x, parameters: {a: {from: 1}}}",
        "error[language.type]: w.yaml:3:46: "
        "parameter 'a' is a mapping, a text such as '1:10' or '[a,b]', a number or a list is expected\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: {from: 1}}}\n"
        "    |                                              ^",
    ),
    (
        "- {name: 'j{a}', command: x, parameters: {a: }}",
        "error[language.type]: w.yaml:3:46: "
        "parameter 'a' is empty, a text such as '1:10' or '[a,b]', a number or a list is expected\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: }}\n"
        "    |                                              ^",
    ),
    (
        "- {name: 'j{a}', command: x, parameters: {a: 1:2}, parameter_mode: zipp}",
        "error[language.choice]: w.yaml:3:68: 'parameter_mode' is 'zipp'; 'product' or 'zip' is expected\n"
        "  3 | - {name: 'j{a}', command: x, parameters: {a: 1:2}, parameter_mode: zipp}\n"
        "    |                                                                    ^^^^ did you mean 'zip'?",
    ),
    # one job, and its command differs
    (
        "- {name: gather, command: 'sum {i}', parameters: {i: 1:3}}",
        "error[language.parameter]: w.yaml:3:27: "
        "'command' depends on 'i', but the name 'gather' does not\n"
        "  3 | - {name: gather, command: 'sum {i}', parameters: {i: 1:3}}\n"
        "    |                           ^^^^^^^^^ add '{i}' to the name, or remove it from 'command'",
    ),
    # so few digits that two values have one name
    (
        "- {name: 'j{x:.1f}', command: 'run {x}', parameters: {x: '[0.01,0.02]'}}",
        "error[language.parameter]: w.yaml:3:31: "
        "'command' depends on 'x', but the name 'j0.0' does not\n"
        "  3 | - {name: 'j{x:.1f}', command: 'run {x}', parameters: {x: '[0.01,0.02]'}}\n"
        "    |                               ^^^^^^^^^ add '{x}' to the name, or remove it from 'command'",
    ),
]


@pytest.mark.parametrize(("job", "said"), REFUSED)
def test_what_makes_no_jobs_is_refused_where_it_stands(job: str, said: str) -> None:
    assert refusal(f"name: w\njobs:\n{job}\n") == said


def test_a_misspelt_parameter_of_the_workflow_is_told_apart() -> None:
    said = refusal("name: w\nparameters: {alpha: 1:2}\njobs:\n- {name: 'j', command: x, use_parameters: [alhpa]}\n")

    assert said == (
        "error[language.parameter]: w.yaml:4:44: the workflow has no parameter 'alhpa'\n"
        "  4 | - {name: 'j', command: x, use_parameters: [alhpa]}\n"
        "    |                                            ^^^^^ did you mean 'alpha'?"
    )


def test_jobs_without_number_are_refused_before_they_are_made() -> None:
    job = "- {{name: {0}, command: x, parameters: {{a: 1:90000}}}}\n"

    said = refusal("name: w\njobs:\n" + "".join(job.format(name) for name in "xyz"))

    assert said == (
        "error[language.parameter]: w.yaml:5:3: "
        "the parameters of this file expand to more than 200,000 jobs and files\n"
        "  5 | - {name: z, command: x, parameters: {a: 1:90000}}\n"
        "    |   ^"
    )


# -- what is said --------------------------------------------------------------------------------------------------


def test_a_variable_of_the_shells_is_not_the_parameter_and_that_is_said() -> None:
    said = warned("""
        name: w
        jobs: [{name: 'j{i}', command: 'echo ${i} {i}', parameters: {i: 1:2}}]
    """)

    assert said == (
        "warning[language.parameter]: w.yaml:3:38: '${i}' is a shell variable, not the parameter 'i'\n"
        "  3 | jobs: [{name: 'j{i}', command: 'echo ${i} {i}', parameters: {i: 1:2}}]\n"
        "    |                                      ^^^^ for the parameter write '{i}'"
    )


def test_a_format_that_torc_has_not_stays_and_that_is_said() -> None:
    said = warned("name: w\njobs: [{name: 'j{i}', command: 'echo {i:>5} {i}', parameters: {i: 1:2}}]\n")

    assert said == (
        "warning[language.parameter]: w.yaml:2:38: '{i:>5}' is left as written: '>5' is not a format that Torc knows\n"
        "  2 | jobs: [{name: 'j{i}', command: 'echo {i:>5} {i}', parameters: {i: 1:2}}]\n"
        "    |                                      ^^^^^^ write '{i:03d}', '{i:.2f}' or '{i}'"
    )


def test_a_format_that_a_value_does_not_take_stays_and_that_is_said() -> None:
    said = warned("name: w\njobs: [{name: 'j{i}', command: 'echo {i:03d}', parameters: {i: '[1,x]'}}]\n")

    assert said == (
        "warning[language.parameter]: w.yaml:2:32: "
        "'{i:03d}' is left as written where 'i' is 'x', which is not a whole number\n"
        "  2 | jobs: [{name: 'j{i}', command: 'echo {i:03d}', parameters: {i: '[1,x]'}}]\n"
        "    |                                ^^^^^^^^^^^^^^"
    )
