"""What an author accepts, as comments and as keys, and the steps that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.analysis.coverage.accepts import Accept, UnreadableAccept, accepts_of_comments
from mulligan.analysis.coverage.results import Finding
from mulligan.errors import LanguageError
from mulligan.service.authoring.area import Workflows

PARKED = "triage_waits_forever"


def accepted(text: str, **lines: int) -> list[tuple[str, str, str]]:
    found = list(accepts_of_comments(text, lines))
    assert all(isinstance(one, Accept) for one in found), found
    return [(one.step, one.what, one.reason) for one in found if isinstance(one, Accept)]


def findings_of(path: Path) -> list[Finding]:
    return list(Workflows.play(path).cover(pairs=False).findings)


def write(folder: Path, text: str, name: str = "flow.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


TEXT = """\
# coverage: accept WORKER_LOST because somebody looks in the morning
name: x

# coverage: accept CONNECTION because of the firewall
steps:
  # coverage: accept TIMEOUT because it hangs now and then

  # and this is another comment
  - step: a
    shell: |
      ./a.sh   # coverage: accept OUT_OF_MEMORY, exit 11 and SIGNALED because the machine is small
  - step: b  # coverage: accept any because it is new
    shell: ./b.sh
    # coverage: accept remediation 'stop, and go' fails because it is
    # coverage: accept HTTP_5XX because: the last line of a step is its own
outputs:
  # coverage: accept EXCEPTION because it stands beside a key at the top level
  x: "1"
"""


def test_a_comment_belongs_to_the_step_in_whose_lines_it_stands_or_above_which_it_stands() -> None:
    assert accepted(TEXT, a=9, b=12) == [
        ("", "WORKER_LOST", "somebody looks in the morning"),
        ("", "CONNECTION", "of the firewall"),
        ("a", "TIMEOUT", "it hangs now and then"),
        ("a", "OUT_OF_MEMORY", "the machine is small"),
        ("a", "exit 11", "the machine is small"),
        ("a", "SIGNALED", "the machine is small"),
        ("b", "any", "it is new"),
        ("b", "remediation 'stop, and go' fails", "it is"),
        ("b", "HTTP_5XX", "the last line of a step is its own"),
        ("", "EXCEPTION", "it stands beside a key at the top level"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "# coverage: 90 percent of the lines",
        "# the coverage: accept nothing because of it",
        "shell: echo coverage: accept TIMEOUT because",
        'url: "http://coverage:accept"',
    ],
)
def test_other_comments_and_texts_accept_nothing(line: str) -> None:
    assert accepted(f"steps:\n- step: a\n  {line}\n", a=2) == []


@pytest.mark.parametrize(
    "said", ["accept TIMEOUT", "accept TIMEOUT because", "accept because it is so", "acept TIMEOUT"]
)
def test_a_comment_without_a_failure_or_a_reason_is_not_understood(said: str) -> None:
    found = list(accepts_of_comments(f"steps:\n  # coverage: {said}\n  - step: a\n", {"a": 3}))

    if said.startswith("acept"):
        assert found == []  # another word, which somebody else may use
    else:
        assert [(type(one), one.line) for one in found] == [(UnreadableAccept, 2)]


@pytest.mark.parametrize(
    ("comment", "column"),
    [("# coverage: accept TIMEOUT", 17), ("# coverage: accept TIMEOUTS because it is so", 24)],
)
def test_a_comment_that_cannot_be_applied_refuses_the_file(tmp_path: Path, comment: str, column: int) -> None:
    path = write(tmp_path, f"steps:\n  - step: a\n    {comment}\n    shell: ./a.sh\n")

    with pytest.raises(LanguageError) as refused:
        Workflows.play(path).cover()

    (problem,) = refused.value.problems
    assert (problem.code, problem.line, problem.column) == ("language.coverage_comment", 3, column)


def test_a_finding_is_accepted_by_its_code_at_its_step_only(tmp_path: Path) -> None:
    text = """\
steps:
  # coverage: accept triage_waits_forever because she is always here
  - {step: a, shell: ./a.sh, triage: true}
  - {step: b, shell: ./b.sh, triage: true}
"""
    found = {finding.step: finding.accepted for finding in findings_of(write(tmp_path, text))}

    assert found == {"a": "she is always here", "b": ""}


def test_the_key_accepts_what_a_comment_accepts(tmp_path: Path) -> None:
    text = """\
{"coverage": {"accept": {"triage_waits_forever": "she is always here"}},
 "steps": [{"step": "a", "shell": "./a.sh", "triage": true}]}
"""
    (finding,) = findings_of(write(tmp_path, text, "flow.json"))

    assert (finding.code, finding.accepted) == (PARKED, "she is always here")


def test_a_name_in_the_key_that_does_not_exist_is_refused_at_its_line(tmp_path: Path) -> None:
    text = """\
coverage:
  accept:
    WORKER_LOSS: somebody looks in the morning
steps:
  - step: a
    shell: ./a.sh
    coverage:
      accept: {TIMEOUT: it hangs, TIMEOUTS: it hangs}
"""
    with pytest.raises(LanguageError) as refused:
        Workflows.play(write(tmp_path, text)).cover()

    assert [(one.line, one.column) for one in refused.value.problems] == [(3, 5), (8, 35)]


def test_a_python_file_has_comments_and_the_key(tmp_path: Path) -> None:
    text = """\
from mulligan import Workflow

workflow = Workflow("w")
# coverage: accept triage_waits_forever because she is always here
workflow.step("a", shell="./a.sh", triage=True)
workflow.step("b", shell="./b.sh", triage=True, coverage={"accept": {"any": "it is new"}})
workflow.step("c", shell="./c.sh", triage=True)
"""
    found = [(one.step, one.line, one.accepted) for one in findings_of(write(tmp_path, text, "w.py"))]

    assert found == [("a", 5, "she is always here"), ("b", 6, "it is new"), ("c", 7, "")]


def test_a_comment_above_several_calls_of_a_flow_is_for_all_of_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """\
from mulligan import flow, step


@step
def fetch() -> int:
    return 1


@step(coverage={"accept": {"OUT_OF_MEMORY": "it is small"}})
def load(number: int) -> int:
    return number


@flow
def night() -> None:
    # coverage: accept EXCEPTION, TIMEOUT because it is new
    load(fetch())
"""
    coverage = Workflows.play(write(Path(), text, "night.py")).cover(pairs=False)

    accepted = {(cell.step, cell.failure) for cell in coverage.cells if cell.accepted}
    unused = [(one.message.split()[0], one.line) for one in coverage.findings if one.code == "accept_unused"]
    assert accepted == {("fetch", "EXCEPTION"), ("load", "EXCEPTION"), ("load", "OUT_OF_MEMORY")}
    assert unused == [("'TIMEOUT'", 16)]


def test_a_comment_in_a_file_of_another_system_is_read(tmp_path: Path) -> None:
    text = """\
name "torc"
job "a" {
    // coverage: accept triage_waits_forever because she is always here
    command "./a.sh"
    failure_handler "ask"
}
failure_handler "ask" {
    rule { exit_codes 7; max_retries 1 }
}
"""
    path = write(tmp_path, text, "flow.kdl")

    (finding,) = [one for one in findings_of(path) if one.code == "accept_unused"]

    assert (finding.step, finding.line) == ("a", 3)


def test_one_reason_accepts_all_steps_of_a_matrix(tmp_path: Path) -> None:
    text = """\
steps:
  - step: run_{n}
    matrix: {n: [1, 2, 3]}
    shell: ./run.sh
    # coverage: accept triage_waits_forever because she is always here
    triage: true
"""
    (finding,) = findings_of(write(tmp_path, text))

    assert (finding.step, finding.line, finding.accepted) == ("run", 6, "she is always here")


def test_an_accepted_failure_is_marked_in_its_cell_and_is_no_finding(tmp_path: Path) -> None:
    text = """\
steps:
  - step: a
    # coverage: accept EXIT_NONZERO, OUT_OF_MEMORY because it is started by hand
    shell: ./a.sh
  - {step: b, needs: [a], shell: ./b.sh}
"""
    coverage = Workflows.play(write(tmp_path, text)).cover(pairs=False)

    assert coverage.findings == ()
    assert {cell.failure for cell in coverage.cells if cell.accepted} == {"EXIT_NONZERO", "OUT_OF_MEMORY"}
    assert {cell.step for cell in coverage.cells if cell.accepted} == {"a"}


def test_a_failure_that_is_dealt_with_needs_no_acceptance(tmp_path: Path) -> None:
    text = """\
steps:
  # coverage: accept EXIT_NONZERO because it is started by hand
  - {step: a, shell: ./a.sh, on_failure: cp yesterday today}
  - {step: b, needs: [a], shell: ./b.sh}
"""
    coverage = Workflows.play(write(tmp_path, text)).cover(pairs=False)

    assert [(finding.code, finding.line) for finding in coverage.findings] == [("accept_unused", 2)]
    assert not any(cell.accepted for cell in coverage.cells)


def test_an_accept_is_not_called_unused_if_only_one_step_was_played(tmp_path: Path) -> None:
    text = """\
steps:
  # coverage: accept EXIT_NONZERO because it is started by hand
  - {step: a, shell: ./a.sh}
  - {step: b, needs: [a], shell: ./b.sh}
"""
    coverage = Workflows.play(write(tmp_path, text)).cover(step="b", pairs=False)

    assert [finding for finding in coverage.findings if finding.code == "accept_unused"] == []


def test_steps_without_an_answer_to_the_same_failures_are_one_finding(tmp_path: Path) -> None:
    text = """\
order: sequential
steps:
  - {step: a, shell: ./a.sh}
  - {step: b, shell: ./b.sh}
  # coverage: accept unhandled_failure because it is new
  - {step: c, shell: ./c.sh}
  - {step: d, shell: ./d.sh}
  - {step: e, shell: ./e.sh}
"""
    found = [
        (one.step, one.line, one.accepted) for one in Workflows.play(write(tmp_path, text)).cover(pairs=False).findings
    ]

    assert found == [("a", 3, ""), ("c", 6, "it is new")]


def test_a_step_of_a_group_is_found_and_accepted_by_its_own_lines(tmp_path: Path) -> None:
    text = """\
timeout: 1h
steps:
  - step: both
    retry: 1
    group:
      steps:
        - {step: one, shell: ./one.sh}
        - step: two
          # coverage: accept timeout_never_strikes because the run is given more time on weekends
          shell: ./two.sh
          timeout: 5h
        - step: three
          shell: ./three.sh
          timeout: 6h
"""
    found = [(one.step, one.line, one.accepted[:3]) for one in findings_of(write(tmp_path, text))]

    assert found == [("both/two", 11, "the"), ("both/three", 14, "")]
