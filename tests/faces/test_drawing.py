"""A workflow as a picture: whole texts for Mermaid, laws for SVG (nothing overlaps, nothing is lost, nothing leaks)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.model.workflow import (
    Action,
    Command,
    Edge,
    Expression,
    Handler,
    Map,
    Need,
    Rule,
    Step,
    Triage,
    Workflow,
)
from mulligan.language import load_text
from mulligan.service.rendering.drawing import draw_mermaid, draw_page_svg, draw_svg
from mulligan.service.rendering.drawing.layout import Layout, compute_layout
from mulligan.service.rendering.drawing.picture import build_picture, shorten
from mulligan.service.rendering.drawing.text_width import text_width, truncate_to_width

SVG = "{http://www.w3.org/2000/svg}"
SHELL = Command(action=Action(kind="shell"))


def step(name: str, kind: str = "shell", *, needs: tuple[str | Need, ...] = (), **fields: object) -> Step:
    conditions = tuple(Need(of=need) if isinstance(need, str) else need for need in needs)
    action = None if "map" in fields else Action(kind=kind)
    return Step(name=name, action=action, needs=conditions, **fields)


def workflow(*steps: Step, name: str = "example", **fields: object) -> Workflow:
    return Workflow(name=name, steps=steps, end=Step(name="end"), **fields)


def edges(*listed: Edge) -> tuple[Edge, ...]:
    return tuple(Edge(**{**{f: getattr(e, f) for f in e.__struct_fields__}, "index": i}) for i, e in enumerate(listed))


def edge(to: str, **fields: object) -> Edge:
    return Edge(to=to, index=0, **fields)


EVERY_KIND = workflow(
    step("fetch", "http", rules=(Rule(any=True),)),
    step("each", needs=("fetch",), map=Map(name="pkg"), do=(SHELL,), on_failure=Handler(commands=(SHELL,))),
    step("sub", "workflow", needs=(Need(of="fetch", on="success_or_skipped"),)),
    step("cool-down", "wait", needs=(Need(of="sub", on="always"),)),
    step("ask", "approve", needs=("each",), when=Expression("inputs.ask")),
    step(
        "ship",
        needs=("ask", "cool-down"),
        triage=Triage(),
        undo=SHELL,
        edges=edges(
            edge("tell", when=Expression("output.size > 3")),
            edge("fetch", when=Expression("output.again")),
            edge("mend", on="failure", codes=("TIMEOUT",), exit_codes=(3,), then="rerun"),
            edge("stand-in", on="failure", then="continue"),
            edge("page", on="failure", handles=False),
            edge("log", on="always"),
        ),
    ),
    step("mend", "agent"),
    step("stand-in"),
    step("page"),
    step("log", continue_on_error=True),
    step("tell", join="all"),
    name="every kind",
)

RELEASE = workflow(
    step("build", rules=(Rule(any=True),), on_failure=Handler(commands=(SHELL,))),
    step("check", needs=("build",), map=Map(name="pkg"), do=(SHELL,)),
    step(
        "deploy",
        needs=("check",),
        undo=SHELL,
        edges=edges(
            edge("announce"),
            edge("repair", on="failure", codes=("EXIT_NONZERO",), then="rerun"),
            edge("page_someone", on="failure", handles=False),
        ),
    ),
    step("repair", "agent"),
    step("page_someone"),
    step("announce", "http", continue_on_error=True),
    name="release",
)

HOSTILE_NAME = '"]; end %%{init: {}}%% <script>alert(1)</script> & `x` | #quot;\x00\x1b[31m\ud800'
HOSTILE = workflow(
    step("end-", edges=edges(edge("class", when=Expression('a < b && c == "]]>" | x')))),
    step("class", when=Expression("x == '<&>'")),
    step("style"),
    name=HOSTILE_NAME,
)


def layers(count: int, wide: int, seed: int = 7) -> Workflow:
    """`count` layers of `wide` steps, each needing two of the layer above."""
    choice = random.Random(seed)
    steps = [
        step(f"s{row}-{column}", needs=tuple(f"s{row - 1}-{i}" for i in choice.sample(range(wide), 2)) if row else ())
        for row in range(count)
        for column in range(wide)
    ]
    return workflow(*steps, name="layers")


def barrier(size: int) -> Workflow:
    before = tuple(step(f"a{number}") for number in range(size))
    after = tuple(step(f"b{number}", needs=(Need(of="all", is_group=True),)) for number in range(size))
    return workflow(*before, *after, groups={"all": tuple(one.name for one in before)})


def nested_loops() -> Workflow:
    back = {3: "s0", 4: "s2", 5: "s1", 6: "s6"}
    return workflow(
        *(
            step(
                f"s{number}",
                needs=(f"s{number - 1}",) if number else (),
                edges=edges(edge(back[number], when=Expression("x"))) if number in back else (),
            )
            for number in range(8)
        )
    )


PICTURES = {
    "one step": workflow(step("alone")),
    "no step": workflow(),
    "every kind": EVERY_KIND,
    "release": RELEASE,
    "hostile": HOSTILE,
    "layers": layers(6, 5),
    "barrier": barrier(9),
    "nested loops": nested_loops(),
    "islands": workflow(*(step(f"island-{number}") for number in range(12))),
    "long names": workflow(step("x" * 300), step("W" * 300, needs=("x" * 300,), when=Expression("y" * 999))),
    "wide letters": workflow(step("a", when=Expression("'中文字符' == '中文字符中文字符中文字符中文字符中文字符'"))),
}
every_picture = pytest.mark.parametrize("drawn", PICTURES.values(), ids=PICTURES.keys())


# Mermaid


def test_mermaid_shows_every_kind_of_step_and_edge():
    text = draw_mermaid(EVERY_KIND)

    assert (
        text
        == """\
---
title: "every kind"
---
flowchart TD
  s0["fetch<br/>http · retry"]
  s1[/"each<br/>each pkg: shell · handler"/]
  s2[["sub<br/>workflow"]]
  s3(["cool-down<br/>wait"])
  s4{{"ask<br/>approve<br/>when inputs.ask"}}
  s5[/"ship<br/>shell · triage · undo"\\]
  s6["mend<br/>agent"]
  s7["stand-in<br/>shell"]
  s8["page<br/>shell"]
  s9["log<br/>shell · may fail"]
  s10["tell<br/>shell · join all"]
  e0((("end")))
  s0 --> s1
  s0 -->|"success or skipped"| s2
  s2 -->|"always"| s3
  s1 --> s4
  s4 --> s5
  s3 --> s5
  s5 -->|"output.size #62; 3"| s10
  s5 ==>|"loop · output.again"| s0
  s5 <-.->|"TIMEOUT, exit 3 · then rerun"| s6
  s5 -.->|"failure · then continue"| s7
  s5 -.->|"failure · handles nothing"| s8
  s5 -->|"always"| s9
  s8 --> e0
  s9 --> e0
  s10 --> e0
  linkStyle 8,9,10 stroke:#dc2626,color:#dc2626
  linkStyle 12,13,14 stroke:#d1d5db
"""
    )


def test_mermaid_draws_a_barrier_as_one_node():
    text = draw_mermaid(barrier(2))

    assert (
        text
        == """\
---
title: "example"
---
flowchart TD
  s0["a0<br/>shell"]
  s1["a1<br/>shell"]
  s2["b0<br/>shell"]
  s3["b1<br/>shell"]
  g0((" "))
  e0((("end")))
  s0 --> g0
  s1 --> g0
  g0 --> s2
  g0 --> s3
  s2 --> e0
  s3 --> e0
  linkStyle 4,5 stroke:#d1d5db
"""
    )


def test_mermaid_takes_names_that_are_words_of_its_own():
    text = draw_mermaid(HOSTILE)

    body = text.split("flowchart TD\n")[1]
    assert (
        body
        == """\
  s0["end-<br/>shell"]
  s1["class<br/>shell<br/>when x == '#60;#38;#62;'"]
  s2["style<br/>shell"]
  e0((("end")))
  s0 -->|"a #60; b #38;#38; c == #34;#93;#93;#62;#34; #124; x"| s1
  s1 --> e0
  s2 --> e0
  linkStyle 1,2 stroke:#d1d5db
"""
    )


def test_mermaid_keeps_a_hostile_title_on_one_quoted_line():
    text = draw_mermaid(HOSTILE)

    assert text.splitlines()[1] == (
        'title: "\\"]; end %%{init: {}}%% <script>alert(1)</script> & `x` | #quot;\\u0000\\u001b[31m\\ud800"'
    )


def test_mermaid_colours_steps_by_status():
    text = draw_mermaid(
        workflow(step("a"), step("b", needs=("a",))), {"a": "completed", "b": "failed", "gone": "failed"}
    )

    assert text.splitlines()[-4:] == [
        "  classDef completed fill:#dcfce7,stroke:#16a34a,color:#14532d",
        "  class s0 completed",
        "  classDef failed fill:#fee2e2,stroke:#dc2626,color:#7f1d1d",
        "  class s1 failed",
    ]


def test_a_map_step_shows_what_the_commands_of_its_items_have():
    command = Command(action=Action(kind="shell"), rules=(Rule(any=True),), on_failure=Handler((SHELL,), "cleanup"))
    drawn = workflow(step("each", map=Map(name="pkg"), do=(command, command)))

    assert draw_mermaid(drawn).splitlines()[4] == '  s0[/"each<br/>each pkg: shell · retry · cleanup"/]'


# What leads to `end`


def leaves(drawn: Workflow) -> list[str]:
    shown = build_picture(drawn)
    titles = {node.key: node.title for node in shown.nodes}
    return [titles[link.source] for link in shown.links if link.kind == "leaf"]


def test_a_step_with_failure_edges_alone_leads_to_end():
    drawn = workflow(step("a", edges=edges(edge("b", on="failure"))), step("b"))

    assert leaves(drawn) == ["a", "b"]


def test_a_remedy_that_hands_back_to_its_source_does_not_lead_to_end():
    drawn = workflow(step("a", edges=edges(edge("fix", on="failure", then="rerun"))), step("fix"))

    assert leaves(drawn) == ["a"]


def test_a_loop_without_a_condition_is_no_way_to_end_and_one_with_a_condition_is():
    always = workflow(step("a"), step("b", needs=("a",), edges=edges(edge("a"))))
    perhaps = workflow(step("a"), step("b", needs=("a",), edges=edges(edge("a", when=Expression("x")))))

    assert leaves(always) == []
    assert leaves(perhaps) == ["b"]


# SVG


def boxes(layout: Layout) -> list[tuple[float, float, float, float]]:
    labels = [(at.x - at.width / 2, at.y - 9, at.x + at.width / 2, at.y + 9) for at in layout.labels]
    return [(spot.left, spot.top, spot.right, spot.bottom) for spot in layout.boxes] + labels


def overlapping(layout: Layout) -> list[object]:
    return [
        (one, other)
        for one, other in combinations(boxes(layout), 2)
        if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    ]


@every_picture
def test_no_two_boxes_or_labels_overlap(drawn: Workflow):
    assert not overlapping(compute_layout(build_picture(drawn)))


@every_picture
def test_everything_lies_inside_the_page(drawn: Workflow):
    layout = compute_layout(build_picture(drawn))

    for left, top, right, bottom in boxes(layout):
        assert layout.left <= left and right <= layout.right
        assert layout.top <= top and bottom <= layout.bottom


@every_picture
def test_the_svg_is_xml_and_shows_every_step_once(drawn: Workflow):
    root = ElementTree.fromstring(draw_svg(drawn, is_expanded=True))

    shown = [node.get("data-step") for node in root.iter(f"{SVG}g")]
    assert sorted(filter(None, shown)) == sorted([*(one.name for one in drawn.steps), "end"])


@every_picture
def test_every_link_has_a_curve_with_an_end(drawn: Workflow):
    root = ElementTree.fromstring(draw_svg(drawn, is_expanded=True))

    curves = [path for path in root.iter(f"{SVG}path") if "line" in path.get("class", "")]
    assert len(curves) >= len(build_picture(drawn).links)
    assert all(re.fullmatch(r"M[-\d. MVHCq]+", path.get("d", "")) for path in curves)


@every_picture
def test_no_text_is_wider_than_its_box(drawn: Workflow):
    layout = compute_layout(build_picture(drawn))
    root = ElementTree.fromstring(draw_svg(drawn, is_expanded=True))

    room = {spot.node.title: spot.width for spot in layout.boxes if spot.node}
    for node in root.iter(f"{SVG}g"):
        for text in node.iter(f"{SVG}text"):
            size = 14 if text.get("class") == "title" else 11
            assert text_width(text.text or "", size) <= room[node.get("data-step", "")]


@every_picture
def test_the_same_workflow_gives_the_same_bytes(drawn: Workflow):
    assert draw_svg(drawn) == draw_svg(drawn)
    assert draw_mermaid(drawn) == draw_mermaid(drawn)


def test_hostile_names_stay_text():
    root = ElementTree.fromstring(draw_svg(HOSTILE))

    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == ('"]; end %%{init: {}}%% <script>alert(1)</script> & `x` | #quot;\ufffd\ufffd[31m\ufffd')
    assert not list(root.iter(f"{SVG}script"))


def test_the_svg_needs_nothing_from_outside():
    text = draw_svg(EVERY_KIND)

    assert re.findall(r"https?://[^\"' )]+", text) == ["http://www.w3.org/2000/svg"]
    assert "@import" not in text
    assert set(re.findall(r"url\(([^)]*)\)", text)) == {
        "#mulligan-success",
        "#mulligan-failure",
        "#mulligan-loop",
        "#mulligan-leaf",
    }


def test_the_svg_has_colours_for_dark_pages():
    assert "@media (prefers-color-scheme:dark)" in draw_svg(RELEASE)


def test_every_edge_of_the_style_sheet_touches_our_drawings_only():
    style = ElementTree.fromstring(draw_svg(RELEASE)).find(f"{SVG}style")
    assert style is not None and style.text

    rules = style.text.replace("@media (prefers-color-scheme:dark){", "").split("}")
    selectors = [one for rule in rules if "{" in rule for one in rule.split("{")[0].split(",")]
    assert [one for one in selectors if not one.startswith(".mulligan ")] == []


def test_statuses_colour_and_mark_the_steps():
    text = draw_svg(RELEASE, {"build": "completed", "deploy": "failed", "announce": "waiting", "repair": "nonsense"})

    classes = {node.get("data-step"): node.get("class") for node in ElementTree.fromstring(text).iter(f"{SVG}g")}
    assert classes == {
        "build": "node action is-completed",
        "check": "node map",
        "deploy": "node action is-failed",
        "repair": "node action",
        "page_someone": "node action",
        "announce": "node action is-waiting",
        "end": "node end",
    }
    assert re.findall(r'class="glyph"[^>]*>(.)<', text) == ["✓", "✕"]


def test_success_leads_straight_down_and_failure_leaves_by_the_side():
    layout = compute_layout(build_picture(RELEASE))

    centres = {spot.node.title: spot.x for spot in layout.boxes if spot.node}
    assert centres["build"] == pytest.approx(centres["deploy"], abs=1)
    assert centres["announce"] == pytest.approx(centres["deploy"], abs=1)
    assert centres["repair"] > centres["deploy"]


def test_a_remedy_with_rerun_has_an_arrow_at_both_ends():
    root = ElementTree.fromstring(draw_svg(RELEASE))

    both = [path for path in root.iter(f"{SVG}path") if path.get("marker-start") and path.get("marker-end")]
    assert [path.get("class") for path in both] == ["line failure"]


@pytest.mark.parametrize(
    "drawn",
    [
        layers(24, 50),
        # every link but the last crosses many layers
        pytest.param(
            workflow(*(step(f"s{n}", needs=(f"s{n - 1}", f"s{n // 2}") if n > 1 else ()) for n in range(1200))),
            marks=pytest.mark.nightly,
        ),
        # as many leaves as steps
        pytest.param(workflow(*(step(f"s{n}") for n in range(1200))), marks=pytest.mark.nightly),
        pytest.param(barrier(600), marks=pytest.mark.nightly),
    ],
    ids=["layers", "long links", "leaves", "barrier"],
)
def test_more_steps_than_python_may_have_frames_can_be_drawn(drawn: Workflow):
    drawing = draw_svg(drawn, is_expanded=True)

    assert all(f">{step.name}<" in drawing for step in drawn.steps)


# Any workflow at all


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Steps that need earlier ones, with edges of every kind to anywhere."""
    names = [f"s{number}" for number in range(draw(st.integers(1, 9)))]
    targets = st.sampled_from([*names, "end"])
    leading = st.builds(
        edge,
        targets,
        on=st.sampled_from(["success", "failure", "always"]),
        then=st.sampled_from([None, "rerun", "continue"]),
        when=st.sampled_from([None, Expression("output.size > 3 && inputs.deep")]),
    )
    steps = [
        step(
            name,
            needs=tuple(draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=3))) if number else (),
            edges=edges(*draw(st.lists(leading, max_size=3))),
        )
        for number, name in enumerate(names)
    ]
    return workflow(*steps)


@settings(max_examples=examples(10, 60))
@given(workflows())
def test_whatever_leads_where_nothing_overlaps_nothing_is_lost_and_no_curve_runs_through_a_step(drawn: Workflow):
    layout = compute_layout(build_picture(drawn))

    assert not overlapping(layout)
    assert {spot.node.title for spot in layout.boxes if spot.node} == {*(one.name for one in drawn.steps), "end"}
    assert len(layout.curves) >= len(build_picture(drawn).links)
    inner = [(spot.left + 2, spot.top + 2, spot.right - 2, spot.bottom - 2) for spot in layout.boxes]
    for curve in layout.curves:
        for x, y in points(curve.path):
            assert not any(left < x < right and top < y < bottom for left, top, right, bottom in inner)


def points(path: str) -> Iterator[tuple[float, float]]:
    """Places along a path, close enough together to notice a box."""
    x = y = 0.0
    for word, listed in re.findall(r"([MVHCq])([-\d. ]*)", path):
        numbers = [float(number) for number in listed.split()]
        ends = {
            "M": lambda n, x, y: [(n[0], n[1])] * 4,
            "V": lambda n, x, y: [(x, y), (x, y), (x, n[0]), (x, n[0])],
            "H": lambda n, x, y: [(x, y), (x, y), (n[0], y), (n[0], y)],
            "C": lambda n, x, y: [(x, y), (n[0], n[1]), (n[2], n[3]), (n[4], n[5])],
            "q": lambda n, x, y: [(x, y), (x + n[0], y + n[1]), (x + n[0], y + n[1]), (x + n[2], y + n[3])],
        }[word](numbers, x, y)
        yield from (along(ends, share / 24) for share in range(25))
        x, y = ends[3]


def along(ends: list[tuple[float, float]], share: float) -> tuple[float, float]:
    rest = 1 - share
    weights = (rest**3, 3 * rest**2 * share, 3 * rest * share**2, share**3)
    return (
        sum(weight * end[0] for weight, end in zip(weights, ends, strict=True)),
        sum(weight * end[1] for weight, end in zip(weights, ends, strict=True)),
    )


# Letters


def test_text_that_fits_is_left_alone_and_longer_text_is_cut():
    assert truncate_to_width("short", 11, 100) == "short"
    assert truncate_to_width("a much longer text", 11, 60) == "a much…"
    assert text_width(truncate_to_width("W" * 50, 11, 60), 11) <= 60


def test_shortened_text_is_one_line():
    assert shorten("a\n  b\tc") == "a b c"
    assert shorten("x" * 50, 10) == "xxxxxxxxx…"


def test_a_drawing_on_a_page_has_no_style_of_its_own_and_says_where_its_steps_stand():
    drawn = load_text("""
steps:
  - step: build
    shell: make
    next: {to: repair, on: failure, then: rerun}
  - {step: repair, shell: make clean}
""")

    text = draw_page_svg(drawn, {"build": "failed"}, lines={"build": 3}, nodes_max=10)

    root = ElementTree.fromstring(text)
    nodes = {node.get("data-step"): node for node in root.iter() if node.get("data-step")}
    ends = [(line.get("data-from"), line.get("data-to")) for line in root.iter() if line.get("data-from")]
    assert "<style" not in text and "style=" not in text
    assert (nodes["build"].get("data-line"), nodes["repair"].get("data-line")) == ("3", None)
    assert "is-failed" in nodes["build"].get("class")
    assert ("build", "repair") in ends
    assert draw_page_svg(drawn, nodes_max=1) == ""
