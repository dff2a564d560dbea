"""What a loop leaves to the steps after it, and what a step finds when it begins."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.formats.noetl.runtime import run

from .playbooks import newer, older, steps, warned


def envelope(result: Any, *following: str) -> dict[str, Any]:
    return {"result": result, "ctx": {}, "next": list(following), "status": "ok"}


def looped(*outputs: Any) -> dict[str, Any]:
    return {"results": list(outputs), "total": len(outputs), "succeeded": len(outputs), "failed": 0}


def set_by(found: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[1] for name, entry in found["ctx"].items()}


# -- values ----------------------------------------------------------------------------------------------------------


def test_what_adds_to_a_value_is_set_for_each_item_in_turn_when_all_are_done():
    before = {"start": {"result": {}, "ctx": {"ctx.sum": [1, 1, "start", 0]}, "next": [], "status": "ok"}}
    adding = {"ctx.sum": "{{ ctx.sum + output.data.n * iter.x }}", "ctx.last": "{{ iter._index }}"}

    found = run(
        name="all",
        seen=before,
        loop=looped(envelope({"n": 1}), None, envelope({"n": 3})),
        each={"name": "x", "values": [10, 20, 30], "set": adding},
    )

    assert set_by(found) == {"ctx.sum": 101, "ctx.last": 2}


@pytest.mark.parametrize(
    ("mode", "is_in_turn"),
    [("mode: parallel", True), ("mode: parallel, max_in_flight: 2", True), ("max_in_flight: 2", False)],
)
def test_only_items_that_run_at_the_same_time_set_values_in_turn(mode: str, is_in_turn: bool):
    found = steps(
        newer(f"""
        workflow:
          - step: add
            loop: {{in: [1, 2], iterator: x, spec: {{{mode}}}}}
            tool: {{kind: noop}}
            set: {{ctx.sum: "{{{{ ctx.sum + iter.x }}}}", ctx.last: "{{{{ iter.x }}}}"}}
        """)
    )

    (item,) = [command["noetl"] for command in found["add"]["do"]]
    each = found["add_done"]["noetl"].get("each")
    assert (found["add"]["map"].get("max_parallel") == 1) is not is_in_turn
    assert list(item["set"]) == (["ctx.last"] if is_in_turn else ["ctx.sum", "ctx.last"])
    expected = {"name": "x", "values": [1, 2], "set": {"ctx.sum": "{{ ctx.sum + iter.x }}"}}
    assert each == (expected if is_in_turn else None)


def test_a_limit_without_a_mode_and_a_rule_that_adds_are_warnings():
    said = warned(
        newer("""
        workflow:
          - step: a
            loop: {in: [1], iterator: x, spec: {max_in_flight: 2}}
            tool: {kind: noop}
            next: {arcs: [{step: b}]}
          - step: b
            loop: {in: [1], iterator: x, spec: {mode: parallel}}
            tool:
              - name: t
                kind: noop
                spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.n: "{{ ctx.n + 1 }}"}}}}]}}
        """)
    )

    assert "items run one after the other, as in NoETL: 'max_in_flight' counts only with 'mode: parallel'" in said
    assert "only what the last item adds to 'n' is kept" in said


# -- steps that follow -----------------------------------------------------------------------------------------------

CITIES = older("""
    workload: {cities: [a, b]}
    workflow:
      - step: start
        loop: {in: "{{ workload.cities }}", iterator: city}
        tool: {kind: http, url: "https://example.org/{{ city }}"}
        case:
          - when: "{{ event.name == 'step.exit' and response.status == 200 }}"
            then: {set: {ctx: {last: "{{ city }}"}}, next: [{step: told, args: {city: "{{ city }}"}}]}
      - {step: told, args: {name: "{{ args.city }}"}, tool: {kind: noop}}
    """)


def test_a_case_that_only_an_item_can_fulfil_leads_on_from_the_items():
    said, found = warned(CITIES), steps(CITIES)

    (item,) = [command["noetl"] for command in found["start"]["do"]]
    after = found["start_done"]["noetl"]["cases"]
    assert "the step that follows runs once, when all items are done, with what the last item gives it" in said
    assert "loop over 'start.results' there" in said
    assert [list(action) for action in item["cases"][0]["then"]] == [["set"], ["next"]]
    outputs = [envelope({"status": 200}, "told"), envelope({"status": 404})]
    assert run(name="start", loop=looped(*outputs), cases=after)["next"] == ["told"]
    assert run(name="start", loop=looped(*outputs[1:]), cases=after)["next"] == []


def test_results_of_items_that_look_like_routes_lead_nowhere():
    arcs = {"arcs": [{"step": "then"}]}

    assert run(name="start", loop=looped(envelope({}, "other")), next=arcs)["next"] == ["then"]


# -- the beginning of a step -----------------------------------------------------------------------------------------


def test_cases_about_the_beginning_of_a_step_set_values_before_its_tool_runs():
    cases = [
        {"when": "{{ event.name == 'step.enter' }}", "then": {"set": {"ctx": {"n": 1}}}},
        {"when": "{{ event.name == 'call.done' }}", "then": {"set": {"ctx": {"n": "{{ ctx.n + 1 }}"}}}},
    ]

    first = run(name="a", tool={"kind": "noop"}, cases=cases)
    second = run(
        name="a", tool={"kind": "noop"}, cases=cases, item={"name": "x", "value": 1, "index": 1}, previous=first
    )

    assert set_by(first) == {"ctx.n": 2}
    assert set_by(second) == {"ctx.n": 3}


def test_the_input_of_a_step_reads_the_arguments_that_the_step_before_gives_it():
    before = {"a": {"result": {}, "ctx": {"args.b": [1, {"x": 4}, "a", 0]}, "next": ["b"], "status": "ok"}}

    found = run(name="b", seen=before, input={"y": "{{ args.x }}"}, tool={"kind": "python", "code": "result = x + y"})

    assert found["result"] == 8
