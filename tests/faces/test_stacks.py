"""Steps alike as one card: which ones are, what the arrows between stacks say, and how a stack stands in a run."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.model.workflow import Action, Edge, Need, Step, Workflow
from mulligan.language import load_text
from mulligan.service.rendering.drawing import draw_mermaid, draw_svg
from mulligan.service.rendering.drawing.grouped_steps import FAN_MIN, build_stacked_picture
from mulligan.service.rendering.drawing.layout import compute_layout
from mulligan.service.rendering.drawing.picture import Picture

SVG = "{http://www.w3.org/2000/svg}"


def drawn(steps: str, statuses: dict[str, str] | None = None) -> Picture:
    return build_stacked_picture(load_text(f"steps:\n{steps}", "w.yaml"), statuses)


def titles(picture: Picture) -> list[str]:
    return [node.title for node in picture.nodes]


def arrows(picture: Picture) -> list[tuple[str, str, str]]:
    """Every link but the light ones to `end`, by the names of what it joins."""
    names = {node.key: node.name or node.title or "barrier" for node in picture.nodes}
    return [(names[link.source], names[link.target], link.label) for link in picture.links if link.kind != "leaf"]


def fan(count: int, extra: str = "") -> str:
    return "".join(f"  - {{step: job_{number:02d}, needs: [load]{extra}, shell: make}}\n" for number in range(count))


LOAD = "  - {step: load, shell: make}\n"
SIM = "  - {step: 'sim_{i}', matrix: {i: 1..5}, needs: [load], shell: make}\n"


def test_a_matrix_is_one_card_and_a_need_of_it_one_arrow_without_a_barrier():
    picture = drawn(LOAD + SIM + "  - {step: plot, needs: [sim], shell: make}\n")

    assert titles(picture) == ["load", "sim × 5", "plot", "end"]
    assert arrows(picture) == [("load", "sim", ""), ("sim", "plot", "")]
    assert picture.nodes[1].members == ("sim_1", "sim_2", "sim_3", "sim_4", "sim_5")


def test_combinations_that_follow_one_another_one_by_one_are_one_arrow_that_says_so():
    picture = drawn(LOAD + SIM + "  - {step: 'plot_{i}', matrix: {i: 1..5}, needs: ['sim_{i}'], shell: make}\n")

    assert arrows(picture) == [("load", "sim", ""), ("sim", "plot", "one to one")]


def test_an_arrow_that_some_of_a_stack_have_says_how_many():
    plots = "  - {step: plot, needs: [sim_1, sim_4], shell: make}\n  - {step: all, needs: [sim, load], shell: make}\n"
    picture = drawn(LOAD + SIM + plots)

    assert ("sim", "plot", "2 of 5") in arrows(picture)
    assert ("sim", "all", "") in arrows(picture)


def test_an_arrow_between_stacks_that_are_linked_in_parts_says_how_many_edges_there_are():
    tasks = "  - {step: 'part_{i}', matrix: {i: 1..2}, needs: ['sim_{i}', sim_5], shell: make}\n"

    assert ("sim", "part", "3 of 5") in arrows(drawn(LOAD + SIM + tasks))


def test_conditions_that_differ_by_the_values_of_a_matrix_are_not_written_out():
    sim = "  - {step: 'sim_{i}', matrix: {i: 1..5}, shell: make, next: [{to: mend, when: 'size(inputs) > matrix.i'}]}\n"

    assert arrows(drawn(sim + "  - {step: mend, shell: make}\n")) == [("sim", "mend", "depends on values")]


def test_a_card_has_what_all_its_steps_have_in_common():
    sim = "  - {step: 'sim_{i}', matrix: {i: 1..5}, shell: make, retry: 2, when: 'matrix.i > 2'}\n"
    node = drawn(sim).nodes[0]

    assert (node.action, node.notes, node.condition) == ("shell", ("retry",), "")


def test_many_steps_with_like_names_and_the_same_links_are_one_card():
    picture = drawn(LOAD + fan(FAN_MIN) + "  - {step: alone, needs: [load], shell: make}\n")

    assert titles(picture) == ["load", f"job_… × {FAN_MIN}", "alone", "end"]


def test_a_few_steps_alike_are_drawn_each():
    assert len(drawn(LOAD + fan(FAN_MIN - 1)).nodes) == FAN_MIN + 1


def test_steps_that_do_something_else_or_lead_elsewhere_stay_outside_of_a_fan():
    other = "  - {step: job_x, needs: [load], agent: do}\n  - {step: job_y, needs: [load], shell: make, next: last}\n"
    picture = drawn(LOAD + fan(FAN_MIN) + other + "  - {step: last, shell: make}\n")

    assert titles(picture) == ["load", f"job_… × {FAN_MIN}", "job_x", "job_y", "last", "end"]


def test_parallel_chains_are_a_card_per_link_of_the_chain():
    chains = "".join(
        f"  - {{step: job_{n}, shell: make}}\n  - {{step: post_{n}, needs: [job_{n}], shell: make}}\n" for n in range(9)
    )

    assert arrows(drawn(chains)) == [("job_…", "post_…", "one to one")]


def test_a_chain_of_steps_with_like_names_is_no_stack():
    chain = "  - {step: s0, shell: make}\n" + "".join(
        f"  - {{step: s{n}, needs: [s{n - 1}], shell: make}}\n" for n in range(1, 20)
    )

    assert len(drawn(chain).nodes) == 21


def test_a_stack_of_a_run_has_one_status_and_says_how_many_are_in_which():
    statuses = {"load": "completed", **{f"sim_{number}": "completed" for number in range(1, 5)}, "sim_5": "failed"}
    node = drawn(LOAD + SIM, statuses).nodes[1]

    assert (node.status, node.statuses, node.counts) == (
        "failed",
        {"completed": 4, "failed": 1},
        "1 failed, 4 completed",
    )


def test_the_counts_of_a_stack_are_in_both_drawings():
    workflow = load_text(f"steps:\n{LOAD}{SIM}", "w.yaml")
    statuses = {f"sim_{number}": "failed" if number < 3 else "running" for number in range(1, 6)}
    root = ElementTree.fromstring(draw_svg(workflow, statuses))

    (card,) = (group for group in root.iter(f"{SVG}g") if group.get("data-step") == "sim")
    assert card.get("class") == "node action stack is-running"
    assert [text.text for text in card.iter(f"{SVG}text")] == ["sim × 5", "shell", "2 failed, 3 running", "▸"]
    assert 's1["sim #215; 5<br/>shell<br/>2 failed, 3 running"]' in draw_mermaid(workflow, statuses)


def test_every_step_is_drawn_where_that_is_asked_for():
    workflow = load_text(f"steps:\n{LOAD}{SIM}", "w.yaml")

    assert all(step.name in draw_mermaid(workflow, is_expanded=True) for step in workflow.steps)
    assert "sim_3" not in draw_mermaid(workflow)


@st.composite
def swept(draw: st.DrawFn) -> Workflow:
    """Steps of three matrices in any order, with needs and edges from anywhere to anywhere."""
    count = draw(st.integers(2, 12))
    names = [f"s{number}" for number in range(count)]
    steps = []
    for number, name in enumerate(names):
        needs = draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=2)) if number else []
        targets = draw(st.lists(st.sampled_from([*names, "end"]), unique=True, max_size=2))
        sweep = draw(st.sampled_from(["", "a", "b", "c"]))
        steps.append(
            Step(
                name=name,
                action=Action("shell"),
                needs=tuple(Need(need) for need in needs),
                edges=tuple(Edge(to, index) for index, to in enumerate(targets)),
                sweep=sweep,
                matrix={"i": number} if sweep else {},
            )
        )
    return Workflow(name="w", steps=tuple(steps), end=Step(name="end"))


@settings(max_examples=examples(10, 60))
@given(swept())
def test_whatever_is_stacked_no_step_is_lost_and_nothing_overlaps(workflow: Workflow):
    picture = build_stacked_picture(workflow)

    members = [name for node in picture.nodes for name in node.members or (node.title,)]
    assert sorted(members) == sorted([*(step.name for step in workflow.steps), "end"])
    keys = {node.key for node in picture.nodes}
    assert all(link.source in keys and link.target in keys for link in picture.links)
    boxes = compute_layout(picture).boxes
    assert not any(
        one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom
        for one, other in combinations(boxes, 2)
    )
