"""Steps and the links between them: needs, next, groups, order, files."""

from __future__ import annotations

import pytest

from mulligan.core.model.workflow import Action, Backoff, Command, Edge, Expression, Need, Triage, encode
from mulligan.errors import LanguageError

from .reading import step, steps, workflow

AB = "- {step: b, shell: make}\n- {step: c, shell: make}\n"


def test_needs_take_all_three_forms() -> None:
    found = steps(
        AB + "- {step: a, shell: make, needs: [b, {step: c, on: always}]}\n- {step: d, shell: make, needs: b}\n"
        "- {step: e, shell: make, needs: {step: c, on: success_or_skipped}}"
    )

    assert found["a"].needs == (Need("b"), Need("c", "always"))
    assert found["d"].needs == (Need("b"),)
    assert found["e"].needs == (Need("c", "success_or_skipped"),)


def test_a_need_that_is_named_twice_counts_once() -> None:
    assert steps(AB + "- {step: a, shell: make, needs: [b, b]}")["a"].needs == (Need("b"),)


def test_a_step_may_be_called_by_a_number() -> None:
    found = steps("- {step: 1, shell: make}\n- {step: 2, shell: make, needs: [1]}")

    assert found["2"].needs == (Need("1"),)


NEXTS = [
    ("b", (Edge("b", 0),)),
    ("[b, c]", (Edge("b", 0), Edge("c", 1))),
    ("{to: b, when: output == 'x'}", (Edge("b", 0, when=Expression("output == 'x'", ("output",))),)),
    (
        "[{to: b, on: failure, codes: [TIMEOUT], exit_codes: 7, priority: 2, then: continue}, {to: c, on: always}]",
        (
            Edge("b", 0, on="failure", codes=("TIMEOUT",), exit_codes=(7,), priority=2, then="continue"),
            Edge("c", 1, on="always"),
        ),
    ),
    ("[{to: b, on: failure, handles: false}]", (Edge("b", 0, on="failure", handles=False),)),
    ("end", (Edge("end", 0),)),
]


@pytest.mark.parametrize(("written", "edges"), NEXTS)
def test_next_takes_every_form(written: str, edges: tuple[Edge, ...]) -> None:
    assert steps(AB + f"- {{step: a, shell: make, next: {written}}}")["a"].edges == edges


def test_a_loop_edge_may_have_a_delay() -> None:
    found = steps(
        """
        - {step: a, shell: make, max_visits: 5}
        - {step: b, needs: [a], shell: make, next: {to: a, when: 'steps.b.visits < 3', delay: 2s, factor: 2}}
        """
    )

    assert found["b"].edges == (
        Edge("a", 0, when=Expression("steps.b.visits < 3", ("steps.b",)), backoff=Backoff(2.0, 2.0)),
    )
    assert found["a"].max_visits == 5


def test_the_other_keys_of_a_steps_place() -> None:
    found = steps(
        """
        - {step: x, shell: make, next: [a]}
        - step: a
          shell: make
          take: first
          no_match: fail
          join: each
          start: true
          when: "true"
          continue_on_error: true
          triage: {when: exhausted, timeout: 1h, default: retry}
          on_lost: fail
          affinity: any
          deadline: 1h
        """
    )["a"]

    assert (found.take, found.no_match, found.join, found.is_start) == ("first", "fail", "each", True)
    assert found.when == Expression("true")
    assert found.triage == Triage("exhausted", 3600.0, "retry")
    assert (found.on_lost, found.affinity, found.deadline, found.continue_on_error) == ("fail", "any", 3600.0, True)


def test_triage_may_be_just_true_or_false() -> None:
    assert step("shell: make\ntriage: true").triage == Triage()
    assert step("shell: make\ntriage: false").triage is None


def test_where_a_step_stands_in_its_file_is_no_part_of_the_workflow() -> None:
    text = "name: x\nsteps:\n  - {step: a, shell: make}\n"

    assert encode(workflow(f"# moved\n{text}")) == encode(workflow(text))


def test_a_failure_edge_beside_the_chosen_one_may_lead_to_a_whole_matrix() -> None:
    found = steps(
        """
        - {step: a, shell: make, next: [{to: tell, on: failure, handles: false}]}
        - {step: "tell_{i}", shell: make, matrix: {i: [1, 2]}}
        """
    )

    assert [edge.to for edge in found["a"].edges] == ["tell_1", "tell_2"]


def test_in_a_sequence_each_step_needs_the_one_before_it() -> None:
    found = steps(
        """
        - {step: a, shell: make}
        - {step: b, shell: make, next: [{to: fix, on: failure}]}
        - {step: c, shell: make}
        - {step: fix, shell: make}
        - {step: d, shell: make, needs: []}
        - {step: e, shell: make, matrix: {i: [1, 2]}}
        - {step: f, shell: make}
        """,
        "order: sequential",
    )

    assert {name: each.needs for name, each in found.items()} == {
        "a": (),
        "b": (Need("a"),),
        "c": (Need("b"),),
        # the target of an edge
        "fix": (),
        # its own needs, though there are none
        "d": (),
        "e_1": (Need("d"),),
        "e_2": (Need("d"),),
        "f": (Need("e", is_group=True),),
    }


def test_in_a_sequence_a_step_that_only_failures_lead_to_is_target_skipped() -> None:
    found = steps(
        """
        - {step: a, shell: make, next: {to: fix, on: failure, then: rerun}}
        - {step: fix, shell: make clean}
        - {step: b, shell: make}
        """,
        "order: sequential",
    )

    assert found["fix"].needs == ()
    assert found["b"].needs == (Need("a"),)


def test_in_a_sequence_a_step_of_a_matrix_that_an_edge_leads_to_needs_nothing() -> None:
    found = steps(
        """
        - {step: "a_{i}", matrix: {i: [1, 2]}, shell: make, next: "b_{i}"}
        - {step: "b_{i}", matrix: {i: [1, 2, 3]}, shell: make}
        - {step: c, shell: make}
        """,
        "order: sequential",
    )

    assert {name: each.needs for name, each in found.items() if each.needs} == {
        "b_3": (Need("a", is_group=True),),
        "c": (Need("b", is_group=True),),
    }


def test_in_a_sequence_matrices_without_a_name_of_their_own_are_told_apart() -> None:
    found = steps(
        """
        - {step: "{i}", matrix: {i: [1, 2]}, shell: make}
        - {step: "{i}", matrix: {i: [3, 4]}, shell: make}
        """,
        "order: sequential",
    )

    assert found["3"].needs == found["4"].needs == (Need("1 to 2", is_group=True),)


def test_a_number_as_a_name_is_kept_as_it_is_written() -> None:
    found = steps("- {step: 001, shell: make, next: 002}\n- {step: 002, shell: make, needs: [{step: 001}]}")

    assert found["001"].edges == (Edge("002", 0),)
    assert found["002"].needs == (Need("001"),)


def test_a_pattern_is_a_group_of_all_steps_it_matches() -> None:
    found = workflow(
        """
        steps:
          - {step: sim_1, shell: make}
          - {step: sim_2, shell: make}
          - {step: presim_3, shell: make}
          - {step: a, shell: make, needs: [{match: 'sim_.*', on: always}]}
          - {step: b, shell: make, needs: [{match: 'sim_.*'}]}
        """
    )

    assert found.groups == {"match sim_.*": ("sim_1", "sim_2")}
    assert found.steps[3].needs == (Need("match sim_.*", "always", is_group=True),)
    assert found.steps[4].needs == (Need("match sim_.*", "success", is_group=True),)


def test_a_step_that_matches_its_own_pattern_does_not_wait_for_itself() -> None:
    found = workflow("steps:\n  - {step: s1, shell: make}\n  - {step: s2, shell: make, needs: [{match: 's.'}]}\n")

    assert found.groups == {"match s. without s2": ("s1",)}


def test_many_to_many_costs_the_sum_and_not_the_product() -> None:
    found = workflow(
        """
        steps:
          - {step: 'a_{i}', shell: make, matrix: {i: 1..1000}}
          - {step: 'b_{i}', shell: make, matrix: {i: 1..1000}, needs: [a]}
        """
    )

    assert len(found.groups["a"]) == 1000
    assert {each.needs for each in found.steps[1000:]} == {(Need("a", is_group=True),)}


READERS = [
    # over needs, directly and far away
    "- {step: a, wait: 1}\n- {step: b, wait: 1, needs: a}\n- {step: c, needs: b, shell: 'ls ${steps.a.output}'}",
    # over an edge
    "- {step: a, shell: make, next: b}\n- {step: b, shell: 'echo ${steps.a.output}'}",
    # over a failure edge
    "- {step: a, shell: make, next: [{to: b, on: failure}]}\n- {step: b, shell: 'echo ${steps.a.failure.code}'}",
    # back from a remediation
    "- {step: a, shell: 'ls ${steps.b.output}', next: [{to: b, on: failure, then: rerun}]}\n- {step: b, shell: make}",
    # around a loop
    "- {step: a, shell: 'ls ${steps.b.output} ${steps.a.output}', next: b}\n- {step: b, shell: make, next: a}",
    # itself, once it has run
    "- {step: a, shell: make, on_failure: 'echo ${steps.a.attempts}', undo: 'echo ${steps.a.output}'}",
    # a step with a hyphen
    '- {step: a-b, shell: make}\n- {step: b, needs: [a-b], when: \'steps["a-b"].status == "failed"\', shell: make}',
]


@pytest.mark.parametrize("written", READERS)
def test_a_step_may_be_read_where_a_path_leads_from_it(written: str) -> None:
    assert steps(written)


def test_the_end_and_the_outputs_may_read_every_step() -> None:
    found = workflow(
        """
        steps:
          - {step: a, shell: make}
        end: {shell: 'echo ${steps.a.status}'}
        outputs: {x: "${steps.a.output}"}
        """
    )

    assert found.end.action is not None


def test_a_reader_of_a_file_needs_its_writer() -> None:
    found = steps(
        """
        - {step: use, shell: make, reads: [mesh]}
        - {step: make, shell: make, writes: [mesh]}
        - {step: both, shell: make, needs: [make], reads: mesh}
        """,
        "files: {mesh: out/mesh.vtk}",
    )

    assert found["use"].needs == (Need("make"),)
    assert found["use"].reads == ("mesh",)
    assert found["make"].writes == ("mesh",)
    assert found["both"].needs == (Need("make"),)


@pytest.mark.parametrize("does", ["map: {over: [1]}, do: [make]", "wait: 1s", "approve: {message: go}"])
def test_what_no_worker_carries_out_has_a_check_that_looks_for_its_files(does: str) -> None:
    found = steps(
        f"""
        - {{step: plain, {does}, writes: [f]}}
        - {{step: checked, {does}, writes: [g], validate: {{shell: make}}}}
        - {{step: quiet, {does}}}
        """,
        "files: {f: x, g: y}",
    )

    checks = {name: step.validator for name, step in found.items()}
    assert checks["plain"] == Command(action=Action("shell", {"text": ":"}), writes=("f",))
    assert checks["checked"] == Command(action=Action("shell", {"text": "make", "strict": True}), writes=("g",))
    assert checks["quiet"] is None


def test_two_writers_with_an_order_are_both_waited_for_by_who_comes_after() -> None:
    found = steps(
        """
        - {step: first, shell: make, writes: [f]}
        - {step: between, shell: make, needs: [first], reads: [f]}
        - {step: second, shell: make, needs: [between], writes: [f]}
        - {step: after, shell: make, reads: [f]}
        """,
        "files: {f: x}",
    )

    assert found["between"].needs == (Need("first"),)
    assert found["after"].needs == (Need("first"), Need("second"))


def test_a_writer_that_waits_for_the_reader_is_not_waited_for() -> None:
    found = steps(
        "- {step: w, shell: make, needs: [r], writes: [f]}\n- {step: r, shell: make, reads: [f]}", "files: {f: x}"
    )

    assert found["r"].needs == ()


def test_each_step_of_a_matrix_reads_and_writes_the_files_of_its_own_values() -> None:
    found = steps(
        """
        - {step: "use_{n}", matrix: {n: [1, 2]}, shell: make, reads: ["part_{n}", all]}
        - {step: "make_{n}", matrix: {n: [1, 2]}, map: {over: [1]}, do: [make], writes: "part_{n}"}
        """,
        "files: {part_1: one, part_2: two, all: all}",
    )

    assert [found[f"use_{n}"].reads for n in (1, 2)] == [("part_1", "all"), ("part_2", "all")]
    assert [found[f"make_{n}"].writes for n in (1, 2)] == [("part_1",), ("part_2",)]
    assert [found[f"use_{n}"].needs for n in (1, 2)] == [(Need("make_1"),), (Need("make_2"),)]
    checks = [found[f"make_{n}"].validator for n in (1, 2)]
    assert [check.writes for check in checks if check] == [("part_1",), ("part_2",)]


def test_a_remediation_may_need_what_runs_whatever_happens() -> None:
    found = steps(
        """
        - {step: a, shell: make, next: [{to: fix, on: failure}]}
        - {step: note, shell: make, needs: [{step: a, on: always}]}
        - {step: fix, shell: make, needs: [note]}
        """
    )

    assert found["fix"].needs == (Need("note"),)


def test_a_success_edge_may_have_a_priority_and_equal_ones_are_no_matter():
    found = workflow(
        """
        steps:
          - {step: a, shell: x, take: first, next: [{to: b, priority: 2}, {to: c, priority: 1}, {to: d, priority: 1}]}
          - {step: b, shell: x}
          - {step: c, shell: x}
          - {step: d, shell: x}
        """
    )

    assert [edge.priority for edge in found.steps[0].edges] == [2, 1, 1]


def test_an_undo_always_has_a_time_limit():
    found = workflow(
        """
        steps:
          - {step: a, shell: x, undo: y}
          - {step: b, shell: x, undo: {shell: y, timeout: 1m}}
        """
    )

    assert [step.undo.timeout for step in found.steps if step.undo] == [300.0, 60.0]


@pytest.mark.parametrize(
    "steps",
    [
        # nothing runs beside it: it is the last word about the whole run
        "[{step: a, shell: make}, {step: ask, approve: 'fine?', needs: [a]}]",
        # what repairs a failure runs only if there is one
        "[{step: a, shell: make, next: [{to: fix, on: failure, then: rerun}]}, {step: fix, shell: make},"
        " {step: more, shell: make, needs: [fix]}, {step: ask, approve: 'fine?', needs: [a]}]",
        # several people are asked at the end
        "[{step: a, shell: make}, {step: legal, approve: 'fine?', needs: [a]}, {step: ask, approve: 'fine?',"
        " needs: [a]}]",
        # the file says so
        "[{step: a, shell: make}, {step: ask, approve: 'fine?', next: end}]",
        # an edge, a group of needs, a member of a matrix
        "[{step: ask, approve: 'fine?', next: a}, {step: a, shell: make}, {step: b, shell: make}]",
        "[{step: ask_1, approve: 'fine?'}, {step: a, shell: make, needs: [{match: 'ask_.*'}]}, {step: b, shell: make}]",
        "[{step: 'ask_{i}', matrix: {i: [1, 2]}, approve: 'fine?'}, {step: a, shell: make, needs: [ask_1, ask_2]},"
        " {step: b, shell: make}]",
    ],
)
def test_an_approval_is_accepted_that_something_waits_for_or_that_ends_the_run(steps):
    assert workflow(f"steps: {steps}").steps


def test_an_approval_is_accepted_whose_answer_is_an_output_of_the_run():
    steps = "[{step: a, shell: make}, {step: ask, approve: 'fine?'}]"
    assert workflow(f"steps: {steps}\noutputs: {{agreed: '${{steps.ask.output.approved}}'}}").steps
    with pytest.raises(LanguageError, match="nothing waits for the approval 'ask'"):
        workflow(f"steps: {steps}")
