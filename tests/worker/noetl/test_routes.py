"""Where a step goes on, what it sets for others, and what it has seen: arcs, cases, loops, failures."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from mulligan.formats.noetl import retries
from mulligan.formats.noetl.runtime import routing
from mulligan.formats.noetl.runtime.versions import merge_entries

from .asking import envelope, following, python, reported, result, seen

FIVE = python("result = {'n': 5}")


def arcs(*all_arcs: dict[str, Any], mode: str = "exclusive") -> dict[str, Any]:
    return {"mode": mode, "arcs": list(all_arcs)}


# -- arcs


def test_of_exclusive_arcs_the_first_that_holds_is_taken_and_of_inclusive_ones_all() -> None:
    all_arcs = (
        {"step": "few", "when": "{{ output.data.n < 5 }}"},
        {"step": "five", "when": "{{ event.name == 'call.done' and result.n == 5 }}"},
        {"step": "rest"},
    )

    assert following(tool=FIVE, next=arcs(*all_arcs)) == ["five"]
    assert following(tool=FIVE, next=arcs(*all_arcs, mode="inclusive")) == ["five", "rest"]


@pytest.mark.parametrize(
    ("condition", "is_taken"),
    [
        (True, True),
        (False, False),
        ("{{ response is defined and error is not defined }}", True),
        # a condition that forgot its braces
        ("result.n == 5", True),
        ("result.n == 6", False),
        ("{{ output.response.n == 5 }}", True),
        ("{% if result.n == 5 %}yes{% else %}no{% endif %}", True),
        ("{{ 'False' }}", False),
        ("{{ [] }}", False),
        ("{{ none }}", False),
        # parts that are not there are nothing, and no error
        ("{{ result.missing.deeper }}", False),
        ("{{ result.missing > 3 }}", False),
        ("{{ output.error.kind == 'timeout' }}", False),
        ("{{ error.kind != 'timeout' }}", True),
        ("{{ not vars.unset }}", True),
        ("{{ 'x' in result.missing }}", False),
    ],
)
def test_what_holds(condition: Any, is_taken: bool) -> None:
    found = following(tool=FIVE, next=arcs({"step": "b", "when": condition}))

    assert found == (["b"] if is_taken else [])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("{{ resutl.n == 5 }}", "'{{ resutl.n == 5 }}': 'resutl' is not defined"),
        ("{{ result.n == }}", "'{{ result.n == }}': this template is invalid: "),
        (
            "{{ result.n + 'x' }}",
            "'{{ result.n + 'x' }}': TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        ),
    ],
)
def test_a_condition_that_cannot_be_told_fails_the_step(condition: str, message: str) -> None:
    report = reported(tool=FIVE, next=arcs({"step": "b", "when": condition}))

    assert report["code"] == "EXPRESSION_FAILED"
    assert report["message"].startswith(message)


def test_an_arc_sets_and_hands_over_what_it_says_only_if_it_is_taken() -> None:
    all_arcs = (
        {"step": "a", "when": "{{ false }}", "set": {"ctx.x": 1}},
        {"step": "b", "set": {"ctx.y": "{{ result.n }}"}, "args": {"n": "{{ result.n + 1 }}"}},
    )

    found = envelope(name="s", tool=FIVE, next=arcs(*all_arcs))

    assert found["ctx"] == {"ctx.y": [1, 5, "s", 0], "args.b": [2, {"n": 6}, "s", 0]}
    assert result(name="b", tool=python("result = n"), seen={"s": found}) == 6
    assert result(name="b", tool=python("result = n"), input={"n": 0}, seen={"s": found}) == 0
    # a null leaves room for what is handed over
    assert result(name="b", tool=python("result = n", args={"n": None}), input={"n": None}, seen={"s": found}) == 6


# -- cases


def case(condition: str, *then: dict[str, Any]) -> dict[str, Any]:
    return {"when": condition, "then": list(then)}


def test_a_case_of_an_earlier_event_comes_first_and_acts_once() -> None:
    cases = [
        case("{{ event.name == 'step.exit' }}", {"next": "later"}),
        case(
            "{{ event.name == 'call.done' and response is defined }}",
            {"set": {"ctx.n": "{{ result.n }}"}},
            {"next": [{"step": "b"}]},
        ),
    ]

    found = envelope(name="s", tool=FIVE, cases=cases)

    assert (found["next"], found["ctx"]) == (["b"], {"ctx.n": [1, 5, "s", 0]})


def test_where_no_case_leads_anywhere_the_arcs_do() -> None:
    cases = [
        case("{{ response.n == 5 }}", {"set": {"vars.n": 5}}),
        case("{{ event.name == 'call.error' }}", {"next": "x"}),
    ]

    found = envelope(name="s", tool=FIVE, cases=cases, next=arcs({"step": "a"}, {"step": "b"}, mode="inclusive"))

    assert (found["next"], found["ctx"]) == (["a", "b"], {"vars.n": [1, 5, "s", 0]})


def test_a_case_leads_to_a_step_with_arguments() -> None:
    cases = [
        case("{{ event.name == 'call.done' }}", {"next": [{"step": "b", "args": {"id": "{{ response.n }}"}}, "c"]})
    ]

    found = envelope(name="s", tool=FIVE, cases=cases)

    assert (found["next"], found["ctx"]["args.b"][1]) == (["b", "c"], {"id": 5})


@pytest.mark.parametrize(("said", "message"), [("n is {{ result.n }}", "n is 5"), ({"message": "no"}, "no")])
def test_a_case_may_fail_the_step(said: Any, message: str) -> None:
    report = reported(tool=FIVE, cases=[case("{{ result.n == 5 }}", {"fail": said})])

    assert report == {"code": "VALIDATION_FAILED", "message": message, "retryable": False}


@pytest.mark.parametrize(
    ("said", "delays"),
    [
        ({"max_attempts": 4, "initial_delay": 2, "backoff_multiplier": 3, "max_delay": 10}, [2, 6, 10, None]),
        ({"max_attempts": 2, "delay": "1s"}, [1, None]),
        (2, [1, None]),
        (True, [1, 2, None]),
    ],
)
def test_a_case_may_ask_for_a_retry(monkeypatch: pytest.MonkeyPatch, said: Any, delays: list[float | None]) -> None:
    cases = [case("{{ event.name == 'call.error' and error.kind == 'timeout' }}", {"retry": said})]
    found = []

    for tries in range(len(delays)):
        monkeypatch.setenv("MULLIGAN_RETRY", str(tries))
        report = reported(tool=python("raise TimeoutError"), cases=cases)
        found.append(report["details"].get("retry_after"))
        assert report["retryable"] is (tries + 1 < len(delays))

    assert found == delays


@pytest.mark.parametrize("failure", [None, {"code": "EXCEPTION", "message": "ZeroDivisionError: division by zero"}])
def test_a_case_that_cannot_be_asked_does_not_stand_in_the_place_of_the_failure(failure: Any) -> None:
    report = reported(
        tool=python("1 / 0"), cases=[case("{{ evnt.name == 'call.error' }}", {"next": "b"})], failure=failure
    )

    assert (report["code"], report["retryable"]) == ("EXCEPTION", False)
    assert report["message"] == (
        "ZeroDivisionError: division by zero; and its route cannot be evaluated: "
        "'{{ evnt.name == 'call.error' }}': 'evnt' is not defined"
    )


def test_a_case_waits_as_long_as_the_retry_of_a_tool() -> None:
    assert (routing.DELAY_DEFAULT, routing.FACTOR_DEFAULT) == (retries.DELAY_DEFAULT, retries.FACTOR_DEFAULT)


def test_a_case_about_another_failure_asks_for_nothing() -> None:
    cases = [case("{{ event.name == 'call.error' and error.kind == 'auth' }}", {"retry": True})]

    assert reported(tool=python("raise TimeoutError"), cases=cases)["retryable"] is False


# -- failures


FAILURE = {
    "code": "HTTP_5XX",
    "message": "GET http://a/: answered 503",
    "details": {"kind": "server_error", "code": "HTTP_503", "http_status": 503, "retryable": True},
}


def test_a_failure_takes_the_first_arc_that_speaks_of_it_and_none_without_a_condition() -> None:
    all_arcs = (
        {"step": "on"},
        {"step": "denied", "when": "{{ error.kind == 'auth' }}"},
        {"step": "broken", "when": "{{ event.name == 'call.error' and output.error.http_status >= 500 }}"},
    )

    found = envelope(name="fetch", failure=FAILURE, next=arcs(*all_arcs))

    assert (found["next"], found["status"]) == (["broken"], "error")
    assert found["result"]["error"]["code"] == "HTTP_503"


def test_a_failure_takes_a_case_about_it() -> None:
    cases = [
        case("{{ event.name == 'step.exit' }}", {"next": "on"}),
        case(
            "{{ event.name == 'call.error' and error.status == 503 }}",
            {"next": [{"step": "fix", "args": {"why": "{{ error.message }}"}}]},
        ),
    ]
    failure = {**FAILURE, "details": {**FAILURE["details"], "status": 503}}  # type: ignore[dict-item]

    found = envelope(name="fetch", failure=failure, cases=cases)

    assert found["next"] == ["fix"]
    assert found["ctx"]["args.fix"][1] == {"why": "GET http://a/: answered 503"}


def test_a_failure_takes_a_case_of_another_event_that_speaks_of_it() -> None:
    cases = [
        case("{{ event.name == 'step.exit' }}", {"next": "on"}),
        case(
            "{{ event.name == 'step.exit' and error is defined and error.http_status in [502, 503] }}", {"next": "fix"}
        ),
    ]

    assert envelope(name="fetch", failure=FAILURE, cases=cases[1:])["next"] == ["fix"]
    assert reported(name="fetch", failure=FAILURE, cases=cases[:1]) == {**FAILURE, "retryable": False}


def test_a_failure_that_nothing_takes_up_stays_what_it_was() -> None:
    report = reported(failure=FAILURE, next=arcs({"step": "on"}, {"step": "x", "when": "{{ response is defined }}"}))

    assert report == {**FAILURE, "retryable": False}


# -- what steps set


def test_a_later_value_counts_and_of_values_side_by_side_the_same_for_all() -> None:
    left = {"ctx.x": [1, "left", "left", 0], "ctx.y": [3, "late", "left", 0]}
    right = {"ctx.x": [1, "right", "right", 0], "ctx.y": [2, "early", "right", 0]}
    items = {"ctx.x": [1, "item", "a", 9]}

    found = [merge_entries(order) for order in permutations([left, right, items])]

    assert all(one == {"ctx.x": right["ctx.x"], "ctx.y": left["ctx.y"]} for one in found)


def test_what_is_set_is_seen_by_the_next_template_and_the_next_step() -> None:
    before = {"a": seen(ctx__x=[7, "old", "a", 0]), "b": None}
    first = envelope(
        name="c",
        tool=FIVE,
        set={"ctx.x": "{{ result.n }}", "y": "{{ ctx.x }}", "vars.z": [1], "ctx.deep.er": 1},
        next=arcs({"step": "d", "when": "{{ ctx.x == 5 and x == 5 }}"}),
        seen=before,
        workload={"x": "first", "w": 0},
    )

    names = {"workload": {"x": "first", "w": 0}, "seen": {**before, "c": first}}
    found = result(
        render=["{{ ctx.x }}", "{{ workload.x }}", "{{ x }}", "{{ vars.z }}", "{{ ctx.deep.er }}", "{{ w }}"], **names
    )

    assert first["ctx"]["ctx.x"] == [8, 5, "c", 0]
    assert first["ctx"]["ctx.y"][1] == "old"
    assert first["next"] == ["d"]
    assert found == [5, 5, 5, [1], 1, 0]


def test_templates_of_the_workload_are_filled_in_unless_a_run_says_otherwise() -> None:
    derived = {"url": "{{ workload.host }}/v{{ version }}", "list": ["{{ url }}"], "who": "{{ payload.user }}"}
    workload = {"host": "h", "version": 1, **derived}
    template = ["{{ workload.url }}", "{{ list }}", "{{ who | default('nobody') }}"]

    assert result(render=template, workload=workload, derived=derived) == ["h/v1", ["h/v1"], "nobody"]
    given = {**workload, "url": "{{ version }}", "who": "{{ workload.host }}"}
    assert result(render=template[::2], workload=given, derived=derived) == ["{{ version }}", "{{ workload.host }}"]


def test_a_list_of_names_and_values_is_set_as_vars() -> None:
    cases = [
        case("{{ event.name == 'step.exit' }}", {"set": [{"name": "n", "value": "{{ response.n }}"}, {"name": "m"}]})
    ]

    found = envelope(name="s", tool=FIVE, cases=cases)

    assert found["ctx"] == {"vars.n": [1, 5, "s", 0], "vars.m": [2, None, "s", 0]}


def test_what_cases_collect_is_gathered_over_all_steps() -> None:
    collect = {"from": "result", "into": "alerts", "mode": "append"}
    lead = {"collect": {"from": "n", "into": "numbers"}, "next": [{"step": "c", "args": {"all": "{{ ctx.numbers }}"}}]}
    cases = [case("{{ result.n == 5 }}", {"collect": collect}, lead)]

    first = envelope(name="a", tool=FIVE, cases=cases)
    second = envelope(name="b", tool=FIVE, cases=cases, seen={"a": first})

    assert second["ctx"]["ctx.alerts"] == [4, [{"n": 5}, {"n": 5}], "b", 0]
    assert second["ctx"]["ctx.numbers"][1] == second["ctx"]["args.c"][1]["all"] == [5, 5]


# -- loops


def test_an_item_is_known_by_its_name_and_its_place() -> None:
    item = {"name": "user", "value": {"id": 4}, "index": 2, "length": 3}
    template = ["{{ user.id }}", "{{ iter.user.id }}", "{{ iter._index }}", "{{ iter._first }}", "{{ iter._last }}"]

    assert result(render=template, item=item) == [4, 4, 2, False, True]
    assert result(render="{{ loop.index }}/{{ loop.length }} {{ loop_index }}", item=item) == "2/3 2"


def test_a_loop_gives_the_results_of_its_items_and_what_they_set() -> None:
    items = [
        envelope(
            name="each",
            item={"name": "n", "value": n, "index": n},
            render={"v": "{{ n }}"},
            set={"ctx.last": "{{ n }}"},
        )
        for n in range(3)
    ]
    loop = {"total": 4, "succeeded": 3, "failed": 1, "results": [*items, None], "failures": []}
    cases = [case("{{ event.name == 'loop.done' }}", {"next": "sum"})]

    found = envelope(name="each", loop=loop, cases=cases)

    assert found["result"]["results"] == [{"v": 0}, {"v": 1}, {"v": 2}, None]
    assert found["result"]["stats"] == {"total": 4, "success": 3, "failed": 1}
    assert (found["ctx"]["ctx.last"][1], found["next"]) == (2, ["sum"])


def test_what_a_called_playbook_gave_goes_on_as_it_is() -> None:
    found = envelope(name="call", result={"score": 3}, set={"ctx.s": "{{ result.score }}"}, next=arcs({"step": "b"}))

    assert (found["result"], found["ctx"]["ctx.s"][1], found["next"]) == ({"score": 3}, 3, ["b"])
    assert result(render="{{ call.data.score }}", seen={"call": found}) == 3
