"""What a playbook becomes: steps, edges, maps and inputs of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from .playbooks import mulligan, newer, older, steps, translated, written

PLAIN = """
workflow:
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: noop}}
"""


def test_a_step_is_a_step_and_an_arc_without_a_condition_an_edge():
    assert translated(newer(PLAIN)) == {
        "name": "test",
        "steps": [
            {"step": "a", "noetl": {"tool": {"kind": "noop"}}, "next": ["b"]},
            {"step": "b", "noetl": {"tool": {"kind": "noop"}}},
        ],
        "outputs": {
            "result": '${[steps.b.output, steps.a.output, {"result": null}].filter(o, o != null)[0].result}',
        },
    }


def test_one_that_is_called_has_the_results_of_its_steps_among_its_outputs():
    result = '${[steps.b.output, steps.a.output, {"result": null}].filter(o, o != null)[0].result}'

    assert translated(newer(PLAIN), is_included=True)["outputs"] == {
        "result": result,
        "steps": {
            "end": result,
            "a": "${steps.a.output == null ? null : steps.a.output.result}",
            "b": "${steps.b.output == null ? null : steps.b.output.result}",
        },
    }


def test_conditions_are_the_actions_and_edges_ask_it():
    found = steps(
        newer("""
        workflow:
          - step: a
            tool: {kind: noop}
            next: {spec: {mode: inclusive, on_no_match: fail}, arcs: [{step: b, when: "{{ x }}"}, {step: end}]}
          - {step: b, tool: {kind: noop}}
        """)
    )

    assert found["a"] == {
        "noetl": {
            "tool": {"kind": "noop"},
            "next": {"mode": "inclusive", "arcs": [{"step": "b", "when": "{{ x }}"}, {"step": "end"}]},
        },
        "no_match": "fail",
        "next": [{"to": "b", "when": "'b' in output.next"}, {"to": "end", "when": "'end' in output.next"}],
    }


def test_what_speaks_of_failures_is_asked_by_a_step_of_its_own():
    found = steps(
        older("""
        workflow:
          - step: start
            tool: {kind: noop}
            case:
              - {when: "{{ event.name == 'call.done' }}", then: {next: good}}
              - {when: "{{ event.name == 'call.error' }}", then: {call: {step: bad}}}
          - {step: good, tool: {kind: noop}}
          - {step: bad, tool: {kind: noop}}
        """)
    )

    assert found["start"]["next"][-1] == {"to": "start_on_error", "on": "failure"}
    assert found["start_on_error"] == {
        "description": "where 'start' goes on after a failure",
        "noetl": {
            "name": "start",
            "failure": "${failure}",
            "cases": [{"when": "{{ event.name == 'call.error' }}", "then": [{"next": {"step": "bad"}}]}],
        },
        "no_match": "fail",
        "next": [{"to": "bad", "when": "'bad' in output.next"}],
    }


@pytest.mark.parametrize(
    "when",
    [
        "{{ output.status == 'ok' }}",
        "{{ event.name == 'call.done' and result.status == 200 }}",
        "{{ event.name == 'step.exit' and response is defined }}",
        "{{ workload.mode == 'fast' }}",
    ],
)
def test_what_speaks_of_successes_alone_is_not_asked_after_a_failure(when: str):
    found = steps(
        newer(f"""
        workflow:
          - {{step: a, tool: {{kind: noop}}, next: {{arcs: [{{step: b, when: "{when}"}}]}}}}
          - {{step: b, tool: {{kind: noop}}}}
        """)
    )

    assert list(found) == ["a", "b"]


def test_a_loop_is_a_list_a_map_and_what_gathers():
    found = steps(
        newer("""
        workload: {cities: [Oslo]}
        workflow:
          - step: visit
            desc: every city
            loop: {in: "{{ workload.cities }}", iterator: city, spec: {mode: parallel, max_in_flight: 3}}
            tool: {kind: shell, cmds: "echo {{ city }}"}
            next: {arcs: [{step: b}]}
          - {step: b, tool: {kind: noop}}
        """)
    )

    assert found["visit_items"]["noetl"] == {
        "name": "visit",
        "render": "{{ workload.cities }}",
        "workload": "${inputs}",
    }
    assert found["visit"] == {
        "description": "every city",
        "map": {"over": "${steps.visit_items.output.result}", "max_parallel": 3},
        "do": [
            {
                "noetl": {
                    "name": "visit",
                    "tool": {"kind": "shell", "cmds": "echo {{ city }}"},
                    "item": {
                        "name": "city",
                        "value": "${item}",
                        "index": "${index}",
                        "length": "${size(steps.visit_items.output.result)}",
                        "of": "cities",
                    },
                    "workload": "${inputs}",
                    "defaults": {"cities": ["Oslo"]},
                }
            }
        ],
        "next": ["visit_done"],
    }
    assert found["visit_done"]["noetl"] == {
        "name": "visit",
        "loop": "${steps.visit.output}",
        "workload": "${inputs}",
    }
    assert found["visit_done"]["next"] == ["b"]


def test_items_that_are_written_out_need_no_step_before():
    found = steps(older("workflow: [{step: start, loop: {in: [1, 2], iterator: n, limit: 1}, tool: {kind: noop}}]"))

    assert list(found) == ["start", "start_done"]
    assert found["start"]["map"] == {"over": [1, 2], "max_parallel": 1, "max_items": 1}


def test_a_step_is_told_what_it_reads_of_those_before_and_all_that_they_set():
    found = steps(
        newer("""
        workflow:
          - {step: a, tool: {kind: noop}, set: {ctx.x: 1}, next: {arcs: [{step: b-1}]}}
          - {step: b-1, tool: {kind: noop}, next: {arcs: [{step: c}]}}
          - {step: c, tool: {kind: noop}, next: {arcs: [{step: d}]}}
          - {step: d, tool: {kind: shell, cmds: "echo {{ e }}"}, next: {arcs: [{step: e}]}}
          - {step: e, tool: {kind: python, input: {n: "{{ c.x }}", m: "{{ b-1 }}"}, code: "result = n"}}
        """)
    )

    assert found["c"]["noetl"]["seen"] == {"a": "${steps.a.output}"}
    assert found["e"]["noetl"]["seen"] == {
        "a": "${steps.a.output}",
        "b-1": '${steps["b-1"].output}',
        "c": "${steps.c.output}",
    }


def test_a_way_back_is_a_loop_with_many_visits_that_starts_where_the_playbook_does():
    found = steps(
        newer("""
        executor: {spec: {entry_step: b}}
        workflow:
          - {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
          - {step: b, tool: {kind: noop}, next: {arcs: [{step: a, when: "{{ x }}"}, {step: c}]}}
          - {step: c, tool: {kind: noop}}
        """)
    )

    assert (found["b"]["start"], found["b"]["max_visits"], found["a"]["max_visits"]) == (True, 1000, 1000)
    assert "max_visits" not in found["c"]


def test_a_workload_becomes_inputs_of_the_types_that_it_has():
    found = translated(
        newer("""
        workload: {who: you, n: 2, r: 1.5, b: true, l: [1], o: {}, nothing: null, my-key: x}
        workflow: [{step: a, tool: {kind: noop}}]
        """)
    )

    assert {name: said["type"] for name, said in found["inputs"].items()} == {
        **{"who": "string", "n": "number", "r": "number", "b": "boolean", "l": "array", "o": "object"},
        **{"nothing": "any", "my_key": "string"},
    }
    assert found["steps"][0]["noetl"]["workload"]["my-key"] == "${inputs.my_key}"


def test_names_are_made_to_fit_and_kept_in_the_description():
    found = steps(
        newer("""
        workflow:
          - {step: Fetch it, desc: the first, tool: {kind: noop}, next: {arcs: [{step: Fetch.it, when: "{{ x }}"}]}}
          - {step: Fetch.it, tool: {kind: noop}}
        """)
    )

    assert found["Fetch_it"]["description"] == "Fetch it: the first"
    assert found["Fetch_it"]["next"] == [{"to": "Fetch_it_2", "when": "'Fetch.it' in output.next"}]
    assert found["Fetch_it_2"]["noetl"]["name"] == "Fetch.it"


@pytest.mark.parametrize(
    ("auth", "secrets"),
    [
        ("pg_local", {"pg_local": {"env": "NOETL_PG_LOCAL"}}),
        ('"{{ workload.pg }}"', {"pg_k8s": {"env": "NOETL_PG_K8S"}}),
        ('"{{ pg }}"', {"pg_k8s": {"env": "NOETL_PG_K8S"}}),
        ("{type: bearer, credential: my-api}", {"my_api": {"env": "NOETL_MY_API"}}),
        ("{one: {credential: a}, two: b}", {"a": {"env": "NOETL_A"}, "b": {"env": "NOETL_B"}}),
    ],
)
def test_a_credential_is_a_secret_of_the_environment(auth: str, secrets: object):
    found = translated(
        newer(f"""
        workload: {{pg: pg_k8s}}
        workflow: [{{step: a, tool: {{kind: postgres, auth: {auth}, query: select 1}}}}]
        """)
    )

    assert found["secrets"] == secrets


def test_a_secret_of_the_keychain_is_found_by_who_reads_it():
    found = translated(
        newer("""
        keychain: [{name: api, kind: bearer, scope: global}, {name: unused, kind: oauth2, endpoint: x}]
        workflow: [{step: a, tool: {kind: http, url: x, headers: {k: "{{ keychain.api.token }}"}}}]
        """)
    )

    assert found["secrets"] == {"api": {"env": "NOETL_API"}}
    assert found["steps"][0]["noetl"]["auth"] == {"api": "${secrets.api}"}


RETRIES = [
    ("true", {"max_retries": 2, "delay": "1s", "factor": 2.0}),
    ("5", {"max_retries": 4, "delay": "1s", "factor": 2.0}),
    (
        "{max_attempts: 4, initial_delay: 0.5, backoff_multiplier: 3, max_delay: 10, jitter: true}",
        {"max_retries": 3, "delay": "0.5s", "factor": 3.0, "max_delay": "10s", "jitter": 0.1},
    ),
    ("[{when: '{{ error }}', then: {max_attempts: 4}}]", {"any": True, "max_retries": 3, "delay": "0s"}),
]


@pytest.mark.parametrize(("said", "retry"), RETRIES)
def test_attempts_of_the_older_dialects_are_one_more_than_retries(said: str, retry: object):
    found = steps(older(f"workflow: [{{step: start, tool: {{kind: noop, retry: {said}}}, next: end}}]"))

    assert found["start"]["retry"] == retry


@pytest.mark.parametrize(("attempts", "retries"), [("4", 3), ('"{{ workload.n }}"', 999)])
def test_a_rule_that_says_retry_is_granted_what_it_may_ask_for(attempts: str, retries: int):
    rules = f"[{{when: '{{{{ error }}}}', then: {{do: retry, attempts: {attempts}}}}}]"

    found = steps(newer(f"workflow: [{{step: a, tool: {{kind: noop, spec: {{policy: {{rules: {rules}}}}}}}}}]"))

    assert found["a"]["retry"] == {"any": True, "max_retries": retries, "delay": "0s"}


def test_a_step_called_end_is_the_end_and_one_that_does_nothing_is_left_out():
    ended = translated(
        older('workflow: [{step: start, next: end}, {step: end, tool: {kind: python, code: "result = 1"}}]')
    )
    bare = translated(older("workflow: [{step: start, next: end}, {step: end}]"))

    assert ended["end"] == {"noetl": {"tool": {"kind": "python", "code": "result = 1"}}}
    assert "end" not in bare
    assert [step["step"] for step in ended["steps"]] == ["start"]


def test_a_step_called_end_from_which_ways_lead_on_is_a_step_like_any_other():
    found = steps(
        newer("""
        workflow:
          - {step: end, tool: {kind: noop}, next: {arcs: [{step: b}]}}
          - {step: b, tool: {kind: noop}}
        """)
    )

    assert list(found) == ["end_2", "b"]


def test_timeouts_are_seconds():
    found = steps(
        newer("""
        workflow:
          - {step: a, spec: {timeout: 90}, tool: {kind: noop}, next: {arcs: [{step: b}]}}
          - {step: b, spec: {timeout: 2m}, tool: {kind: noop}, next: {arcs: [{step: c}]}}
          - {step: c, tool: {kind: noop, spec: {timeout: "30"}}}
        """)
    )

    assert [step["timeout"] for step in found.values()] == ["90s", "2m", "30s"]


def test_text_of_the_authors_is_kept_from_being_filled_in():
    found = steps(newer('workflow: [{step: a, tool: {kind: shell, cmds: ["echo ${HOME}"], env: {X: "${Y}"}}}]'))

    assert found["a"]["noetl"]["tool"] == {"kind": "shell", "cmds": ["echo $${HOME}"], "env": {"X": "$${Y}"}}


def test_a_playbook_may_call_a_workflow_of_ours(folder: Path):
    (folder / "ours.yaml").write_text(
        "name: ours\nsteps: [{step: a, shell: echo hi}]\noutputs: {said: '${steps.a.output}'}\n"
    )

    said = mulligan("run", written(newer("workflow: [{step: a, tool: {kind: playbook, path: ours.yaml}}]")), "--json")

    assert said.json["outputs"]["result"] == {"said": "hi"}


def test_a_list_of_tools_may_name_them_by_labels():
    found = steps(newer("workflow: [{step: a, tool: [{first: {kind: noop}}, {name: second, kind: noop}]}]"))

    assert found["a"]["noetl"]["tool"] == [{"name": "first", "kind": "noop"}, {"name": "second", "kind": "noop"}]


def test_a_result_that_is_saved_in_the_event_log_needs_nothing():
    text = older("workflow: [{step: start, tool: python, code: 'result = 2', save: {type: event_log, args: {a: 1}}}]")

    assert "cases" not in steps(text)["start"]["noetl"]
