"""Who waits for whom: by name, by regular expression, by files and user data."""

from __future__ import annotations

import pytest

from .reading import jobs, loaded, names, refusal

MANY = "- {name: 'w_{i}', command: x, parameters: {i: '1:20'}}"


def test_depends_on_names_jobs() -> None:
    found = jobs("""
        - {name: a, command: x}
        - {name: b, command: x}
        - {name: c, command: x, depends_on: [a, b]}
    """)

    assert found["c"]["needs"] == ["a", "b"]


def test_a_job_may_depend_on_one_that_comes_later_in_the_file() -> None:
    found = jobs("- {name: a, command: x, depends_on: [b]}\n- {name: b, command: x}")

    assert found["a"]["needs"] == ["b"]


def test_what_is_named_twice_is_needed_once() -> None:
    found = jobs("""
        - {name: a, command: x}
        - {name: b, command: x, depends_on: [a, a], depends_on_regexes: ['^a$', a]}
    """)

    assert found["b"]["needs"] == ["a"]


EXPRESSIONS = [
    # found anywhere in the name, as in Torc
    ("rep", ["prep_1", "prep_2", "report"]),
    ("^prep", ["prep_1", "prep_2"]),
    ("^prep_[0-9]+$", ["prep_1", "prep_2"]),
    ("prep_1$", ["prep_1"]),
    ("_2", ["prep_2"]),
    ("^(prep_1|report)$", ["prep_1", "report"]),
    ("^prep_1|report", ["prep_1", "report"]),
    ("^prepx?_1", ["prep_1"]),
    (r"^prep_\d$", ["prep_1", "prep_2"]),
    (r"prep.\d", ["prep_1", "prep_2"]),
    (r"^re\w+t\z", ["report"]),
    (r"\Aprep_1\z", ["prep_1"]),
    ("(?i)PREP_1", ["prep_1"]),
    ("[p]rep_[12]$", ["prep_1", "prep_2"]),
    ("^p", ["prep_1", "prep_2"]),
    # Rust's, which Python would take for something else or not at all
    ("^[[:alpha:]]+$", ["report"]),
    ("^[[:alpha:]_]+[[:digit:]]$", ["prep_1", "prep_2"]),
    ("^[[:^digit:]]+1$", ["prep_1"]),
    ("^[^[:punct:]]+$", ["report"]),
    (r"\x{70}rep_[\x{32}-\x{34}]", ["prep_2"]),
    ("^(?<stage>prep)_1$", ["prep_1"]),
    ("^[]p]rep_1$", ["prep_1"]),
]


@pytest.mark.parametrize(("expression", "matched"), EXPRESSIONS)
def test_an_expression_stands_for_all_jobs_in_whose_names_it_is_found(expression: str, matched: list[str]) -> None:
    found = jobs(f"""
        - {{name: 'prep_{{i}}', command: x, parameters: {{i: '1:2'}}}}
        - {{name: report, command: x}}
        - {{name: zzz, command: x, depends_on_regexes: ['{expression}']}}
    """)

    assert found["zzz"]["needs"] == matched


# What Rust understands and Python has no equal of, and which part of it that is.
NOT_UNDERSTOOD = [
    (r"^\p{L}+$", r"\p{L}"),
    (r"^[\pL_]+$", r"\pL"),
    ("^[a[bc]]$", "["),
    ("^[[:letter:]]$", "[:letter:]"),
    ("^[a-z&&[^b]]$", "&&"),
    (r"\b{start}a", r"\b{start}"),
    (r"\<a", r"\<"),
    (r"\x{ffffffff}", "ffffffff"),
    ("^a(?i)b", "(?i)"),
]


@pytest.mark.parametrize(("expression", "part"), NOT_UNDERSTOOD)
def test_what_cannot_be_had_of_rusts_expressions_is_refused(expression: str, part: str) -> None:
    text = f"name: w\njobs:\n- {{name: a, command: x, depends_on_regexes: ['{expression}']}}\n"

    assert refusal(text) == (
        f"error[language.pattern]: w.yaml:3:46: the expression is '{expression}', but '{part}' is not supported\n"
        f"  3 | - {{name: a, command: x, depends_on_regexes: ['{expression}']}}\n"
        f"    |                                              {'^' * (len(expression) + 2)} "
        r"use classes such as [a-z], [[:alpha:]], \d and \w; (?i) only at the very start"
    )


def test_an_expression_that_matches_the_job_itself_stands_for_the_others() -> None:
    found = jobs("- {name: a, command: x}\n- {name: b, command: x}\n- {name: c, command: x, depends_on_regexes: [.]}")

    assert found["c"]["needs"] == ["a", "b"]


def test_an_expression_that_matches_only_the_job_itself_waits_for_nobody() -> None:
    assert "needs" not in jobs("- {name: a, command: x, depends_on_regexes: [a]}")["a"]


# -- barriers ------------------------------------------------------------------------------------------------------


def test_many_jobs_are_one_group() -> None:
    found = jobs(f"{MANY}\n- {{name: all, command: x, depends_on_regexes: ['^w_']}}")

    assert found["all"]["needs"] == [{"match": "w_.*"}]


def test_many_jobs_that_are_named_each_are_one_group_too() -> None:
    found = jobs(f"{MANY}\n- {{name: all, command: x, depends_on: ['w_{{i}}'], parameters: {{i: 1:20}}}}")

    assert found["all"]["needs"] == [{"match": "w_.*"}]


GROUPS = [
    # others begin alike
    ("[w_other]", r"^w_\d+$", "w_[0-9]+"),
    # a number more
    ("[w_1_2]", r"^w_\d+$", "w_[0-9]+"),
    # no expression of ours tells them apart
    ("[w_99]", r"^w_\d$|^w_1\d$", "|".join(f"w_{number}" for number in range(1, 20))),
    ("[]", r"^w_1", "w_1.*"),
]


@pytest.mark.parametrize(("others", "expression", "ours"), GROUPS)
def test_a_group_is_those_that_were_matched_and_no_others(others: str, expression: str, ours: str) -> None:
    entries = "".join(f"- {{name: {name}, command: x}}\n" for name in others.strip("[]").split(",") if name)

    found = jobs(f"{MANY}\n{entries}- {{name: all, command: x, depends_on_regexes: ['{expression}']}}")

    assert found["all"]["needs"] == [{"match": ours}]


def test_many_that_are_named_and_have_nothing_in_common_stay_named() -> None:
    entries = "".join(f"- {{name: {letter}, command: x}}\n" for letter in "abcdefghij")

    found = jobs(f"{entries}- {{name: all, command: x, depends_on: [a, b, c, d, e, f, g, h, i]}}")

    assert found["all"]["needs"] == list("abcdefghi")


def test_a_barrier_between_thousands_is_one_group_and_not_a_million_needs() -> None:
    stages = """
        name: sweep
        jobs:
          - {name: 'a_{i}', command: x, parameters: {i: '1:1000'}}
          - {name: 'b_{i}', command: x, parameters: {i: '1:1000'}, depends_on_regexes: ['^a_']}
          - {name: 'c_{i}', command: x, parameters: {i: '1:1000'}, depends_on_regexes: ['^b_'], depends_on: ['b_{i}']}
    """

    found = loaded(stages)

    assert {name: len(members) for name, members in found.groups.items()} == {"match a_.*": 1000, "match b_.*": 1000}
    assert sum(len(step.needs) for step in found.steps) == 3000


def test_files_between_thousands_are_one_group_too() -> None:
    stages = """
        name: sweep
        files: [{name: 'f_{i}', path: 'f/{i}', parameters: {i: '1:500'}}]
        user_data: [{name: u}]
        jobs:
          - name: 'a_{i}'
            command: 'x > ${files.output.f_{i}}'
            output_user_data: [u]
            parameters: {i: '1:500'}
          - {name: 'b_{i}', command: x, parameters: {i: '1:500'}, input_file_regexes: ['^f_']}
          - {name: 'c_{i}', command: x, parameters: {i: '1:500'}, input_user_data: [u]}
    """

    found = loaded(stages)

    assert {name: len(members) for name, members in found.groups.items()} == {"match a_.*": 500}
    assert sum(len(step.needs) for step in found.steps) == 1000


def test_a_job_that_reads_the_files_of_many_needs_them_as_a_group() -> None:
    top = "files: [{name: 'f{i}', path: 'f{i}', parameters: {i: 1:20}}, {name: raw, path: raw}]"

    found = jobs(
        """
        - {name: 'w_{i}', command: x, output_files: ['f{i}'], parameters: {i: '1:20'}}
        - {name: all, command: x, input_files: ['f{i}', raw], parameters: {i: '1:20'}}
        """,
        top,
    )

    assert found["all"] == {"shell": "x", "needs": [{"match": "w_.*"}], "reads": ["raw"]}


def test_files_of_many_that_have_nothing_in_common_stay_named() -> None:
    letters = "abcdefghij"
    top = "files: [" + ", ".join(f"{{name: f{letter}, path: f{letter}}}" for letter in letters) + "]"
    entries = "".join(f"- {{name: {letter}, command: x, output_files: [f{letter}]}}\n" for letter in letters)

    found = jobs(f"{entries}- {{name: all, command: x, input_file_regexes: [^f.], depends_on: [a]}}", top)
    named = jobs(f"{entries}- {{name: all, command: x, input_files: [{', '.join('f' + x for x in letters)}]}}", top)

    assert found["all"] == {"shell": "x", "needs": ["a", {"match": "a|b|c|d|e|f|g|h|i|j"}]}
    assert named["all"] == {"shell": "x", "reads": [f"f{letter}" for letter in letters]}


def test_thousands_of_expressions_find_one_job_each() -> None:
    found = loaded("""
        name: chain
        jobs:
          - {name: 'a_{i}', command: x, parameters: {i: '1:1000'}}
          - {name: 'b_{i}', command: x, parameters: {i: '1:1000'}, depends_on_regexes: ['a_{i}$']}
          - {name: 'c_{i}', command: x, parameters: {i: '1:1000'}, depends_on_regexes: ['^b_{i}$']}
    """)

    assert [need.of for need in found.steps[1999].needs] == ["a_1000"]
    assert [need.of for need in found.steps[2004].needs] == ["b_5"]


# -- names that do not fit -----------------------------------------------------------------------------------------


def test_a_name_that_does_not_fit_is_made_to_fit_and_found_by_its_own() -> None:
    found = jobs("""
        - {name: 'lr=0.1 a', command: x}
        - {name: b, command: x, depends_on: ['lr=0.1 a'], depends_on_regexes: ['^lr=0\\.1']}
    """)

    assert list(found) == ["lr_0_1_a", "b"]
    assert found["b"]["needs"] == ["lr_0_1_a"]


def test_what_fits_keeps_its_name_and_what_does_not_gives_way() -> None:
    found = names("""
        - {name: a.b, command: x}
        - {name: a b, command: x}
        - {name: a_b, command: x}
        - {name: a_b_2, command: x}
        - {name: end, command: x}
    """)

    assert found == ["a_b_3", "a_b_4", "a_b", "a_b_2", "end_2"]


def test_names_of_any_script_are_told_apart() -> None:
    assert names("- {name: größe, command: x}\n- {name: 'ü', command: x}\n- {name: 'ö', command: x}") == [
        "gr__e",
        "_",
        "__2",
    ]


# -- what a failed dependency does ---------------------------------------------------------------------------------


def test_a_job_that_is_not_cancelled_with_others_needs_only_their_end() -> None:
    top = "files: [{name: f, path: f}, {name: g, path: g}]\nuser_data: [{name: u}]"

    found = jobs(
        """
        - {name: a, command: x, output_files: [f]}
        - {name: b, command: x, output_user_data: [u]}
        - {name: c, command: x}
        - name: d
          command: x
          depends_on: [c]
          input_files: [f, g]
          input_user_data: [u]
          cancel_on_blocking_job_failure: false
        """,
        top,
    )

    assert found["d"]["needs"] == [{"step": name, "on": "always"} for name in ("c", "a", "b")]
    assert found["d"]["reads"] == ["g"]


def test_many_that_only_have_to_end_are_one_group() -> None:
    found = jobs(
        f"{MANY}\n- {{name: all, command: x, depends_on_regexes: [^w], cancel_on_blocking_job_failure: false}}"
    )

    assert found["all"]["needs"] == [{"match": "w_.*", "on": "always"}]


@pytest.mark.parametrize("said", ["true", "null"])
def test_a_job_is_cancelled_with_others_unless_it_says_otherwise(said: str) -> None:
    found = jobs(
        f"- {{name: a, command: x}}\n- {{name: b, command: x, depends_on: [a], cancel_on_blocking_job_failure: {said}}}"
    )

    assert found["b"]["needs"] == ["a"]


# -- what is refused -----------------------------------------------------------------------------------------------

REFUSED = [
    # a slip
    (
        "- {name: prepare, command: x}\n- {name: b, command: x, depends_on: [prepaer]}",
        "error[language.unknown_job]: w.yaml:4:38: there is no job 'prepaer'\n"
        "  4 | - {name: b, command: x, depends_on: [prepaer]}\n"
        "    |                                      ^^^^^^^ did you mean 'prepare'?",
    ),
    # parameters that the job has not
    (
        "- {name: 'w{i}', command: x, parameters: {i: 1:3}}\n- {name: b, command: x, depends_on: ['work{i}']}",
        "error[language.unknown_job]: w.yaml:4:38: there is no job 'work{i}'\n"
        "  4 | - {name: b, command: x, depends_on: ['work{i}']}\n"
        "    |                                      ^^^^^^^^^ use a regular expression to match several",
    ),
    # of many that are missing, one is enough to see what is wrong
    (
        "- {name: 'b{i}', command: x, depends_on: ['w_{i}'], parameters: {i: '7:9'}}",
        "error[language.unknown_job]: w.yaml:3:43: there is no job 'w_7'\n"
        "  3 | - {name: 'b{i}', command: x, depends_on: ['w_{i}'], parameters: {i: '7:9'}}\n"
        "    |                                           ^^^^^^^",
    ),
    # nobody matches
    (
        "- {name: a, command: x, depends_on_regexes: ['^work_']}",
        "error[language.unknown_job]: w.yaml:3:46: no job matches '^work_'\n"
        "  3 | - {name: a, command: x, depends_on_regexes: ['^work_']}\n"
        "    |                                              ^^^^^^^^",
    ),
    # no expression
    (
        "- {name: a, command: x, depends_on_regexes: ['work_(']}",
        "error[language.type]: w.yaml:3:46: the expression is 'work_(', a regular expression is expected\n"
        "  3 | - {name: a, command: x, depends_on_regexes: ['work_(']}\n"
        "    |                                              ^^^^^^^^",
    ),
    # one whose search never ends
    (
        "- {name: a, command: x, depends_on_regexes: ['(a+)+$']}",
        "error[language.pattern]: w.yaml:3:46: "
        "the expression is '(a+)+$', which may take exponential time: a repeated group contains a choice\n"
        "  3 | - {name: a, command: x, depends_on_regexes: ['(a+)+$']}\n"
        "    |                                              ^^^^^^^^ use a possessive quantifier or an atomic group: "
        "(a++)+ instead of (a+)+, (?>a|b)+ instead of (a|b)+",
    ),
    # a circle
    (
        "- {name: a, command: x, depends_on: [b]}\n- {name: b, command: x, depends_on_regexes: [^a]}",
        "error[language.cycle]: w.yaml:3:38: these steps need each other and could never start: a → b → a\n"
        "  3 | - {name: a, command: x, depends_on: [b]}\n"
        "    |                                      ^",
    ),
    # a name that is there twice
    (
        "- {name: a, command: x}\n- {name: a, command: y}",
        "error[language.duplicate_name]: w.yaml:4:10: there are two jobs 'a': first in line 3\n"
        "  4 | - {name: a, command: y}\n"
        "    |          ^",
    ),
    (
        "- {name: a_2, command: x}\n- {name: 'a_{i}', command: y, parameters: {i: 1:3}}",
        "error[language.duplicate_name]: w.yaml:4:10: there are two jobs 'a_2': first in line 3\n"
        "  4 | - {name: 'a_{i}', command: y, parameters: {i: 1:3}}\n"
        "    |          ^^^^^^^",
    ),
]


@pytest.mark.parametrize(("entries", "said"), REFUSED)
def test_what_cannot_be_waited_for_is_refused_where_it_stands(entries: str, said: str) -> None:
    assert refusal(f"name: w\njobs:\n{entries}\n") == said


def test_what_depends_on_a_job_whose_name_cannot_be_read_is_not_refused_for_that() -> None:
    said = refusal("""\
        name: w
        jobs:
          - {nmae: a, command: x}
          - {name: b, command: x, depends_on: [a], depends_on_regexes: [^a]}
    """)

    assert said == (
        "error[language.unknown_key]: w.yaml:3:6: 'nmae' is not a key of a job\n"
        "  3 |   - {nmae: a, command: x}\n"
        "    |      ^^^^ did you mean 'name'?"
    )
