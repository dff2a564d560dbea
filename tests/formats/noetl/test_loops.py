"""Loops whose items run one after the other: each reads what those before it have set, as in NoETL."""

from __future__ import annotations

from pathlib import Path

from .playbooks import mulligan, newer, older, ran, ran_once, statuses, steps, warned, written

SEEN = """
workload: {seen: [], count: 0}
workflow:
  - step: visit
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: sequential}}
    tool: {kind: python, input: {n: "{{ iter.n }}", before: "{{ ctx.seen }}"}, code: "result = {'before': before}"}
    set: {ctx.seen: "{{ ctx.seen + [iter.n] }}", ctx.count: "{{ ctx.count + 1 }}", ctx.all: "{{ visit.results }}"}
    next: {arcs: [{step: tell}]}
  - step: tell
    tool:
      kind: python
      input: {seen: "{{ ctx.seen }}", count: "{{ ctx.count }}", befores: "{{ ctx.all }}"}
      code: "result = [seen, count, [one['before'] for one in befores]]"
"""


def test_an_item_reads_what_the_items_before_it_have_set():
    assert ran(newer(SEEN))["outputs"]["result"] == [[1, 2, 3], 3, [[], [1], [1, 2]]]


def test_rules_of_a_tool_and_cases_of_an_item_pass_values_on_as_well():
    run = ran_once(
        newer("""
        workflow:
          - {step: init, tool: {kind: noop}, set: {ctx.names: []}, next: {arcs: [{step: visit}]}}
          - step: visit
            loop: {in: [a, b, c], iterator: n}
            tool:
              - kind: python
                input: {n: "{{ n }}"}
                code: "result = {'name': n}"
                spec:
                  policy:
                    rules: [{else: {then: {do: continue, set: {ctx.names: "{{ ctx.names + [result.name] }}"}}}}]
            next: {arcs: [{step: tell}]}
          - {step: tell, tool: {kind: python, input: {names: "{{ ctx.names }}"}, code: "result = names"}}
        """)
    )
    assert run["outputs"]["result"] == ["a", "b", "c"]

    run = ran(
        older("""
        workflow:
          - step: start
            loop: {in: [1, 2, 3], iterator: n}
            tool: {kind: python, args: {n: "{{ n }}"}, code: "result = {'n': n}"}
            case:
              - when: "{{ event.name == 'call.done' }}"
                then: [{set: {ctx.sum: "{{ (ctx.sum | default(0)) + result.n }}"}}, {collect: {from: n, into: all}}]
            next: [{step: tell}]
          - step: tell
            tool: {kind: python, args: {s: "{{ ctx.sum }}", all: "{{ ctx.all }}"}, code: "result = [s, all]"}
        """)
    )
    assert run["outputs"]["result"] == [6, [1, 2, 3]]


def test_a_loop_that_calls_a_playbook_sets_values_after_each_call():
    child = newer("""
        workload: {n: 0, sum: 0}
        workflow: [{step: add, tool: {kind: python, input: {n: "{{ n }}", s: "{{ sum }}"}, code: "result = n + s"}}]
        """).replace("name: test", "name: add")
    written(child, "add.yaml")
    run = ran(
        newer("""
        workload: {sum: 0}
        workflow:
          - step: total
            loop: {in: [1, 2, 3], iterator: n}
            tool: {kind: playbook, path: add, return_step: add, input: {n: "{{ n }}", sum: "{{ ctx.sum }}"}}
            set: {ctx.sum: "{{ output.data }}"}
            next: {arcs: [{step: tell}]}
          - {step: tell, tool: {kind: python, input: {sum: "{{ ctx.sum }}"}, code: "result = sum"}}
        """)
    )

    assert run["outputs"]["result"] == 6


def test_an_item_that_fails_stops_a_loop_that_passes_values_on_and_retry_continues_there():
    text = newer("""
        workload: {seen: []}
        workflow:
          - step: visit
            loop: {in: [1, 2, 3], iterator: n}
            tool:
              kind: python
              input: {n: "{{ n }}"}
              code: |
                if n == 2 and not os.path.exists("ready"):
                    raise ValueError("not ready")
                result = n
            set: {ctx.seen: "{{ ctx.seen + [n] }}"}
            next: {arcs: [{step: tell}]}
          - {step: tell, tool: {kind: python, input: {seen: "{{ ctx.seen }}"}, code: "result = seen"}}
        """)

    assert mulligan("run", written(text)).code == 1
    Path("ready").touch()
    again = mulligan("retry", "1", "--json").json

    assert again["outputs"]["result"] == [1, 2, 3]


def test_items_that_run_at_the_same_time_set_complete_values_for_the_steps_after_the_loop():
    text = SEEN.replace("mode: sequential", "mode: parallel")

    (found,) = [command["noetl"] for command in steps(newer(text))["visit"]["do"]]

    assert "previous" not in found
    assert ran(newer(text))["outputs"]["result"] == [[1, 2, 3], 3, [[], [], []]]


def test_what_items_collect_at_the_same_time_is_a_warning():
    said = warned(
        older("""
        workflow:
          - step: start
            loop: {in: [1, 2], iterator: n, mode: parallel}
            tool: {kind: python, args: {n: "{{ n }}"}, code: "result = {'n': n}"}
            case: [{when: "{{ event.name == 'call.done' }}", then: {collect: {from: n, into: all}}}]
        """)
    )

    assert "only what the last item collects is kept" in said


def test_a_step_that_fails_fast_cancels_what_runs_beside_it_and_a_failure_that_is_taken_up_does_not():
    text = newer("""
        workflow:
          - step: start
            tool: {kind: noop}
            next: {spec: {mode: inclusive}, arcs: [{step: quick}, {step: slow}]}
          - step: quick
            spec: {policy: {failure: {mode: fail_fast}}}
            tool: {kind: shell, cmds: ["exit 3"]}
          - {step: slow, tool: {kind: shell, cmds: ["sleep 60"]}, next: {arcs: [{step: after}]}}
          - {step: after, tool: {kind: noop}}
        """)

    run = mulligan("run", written(text), "--json").json
    assert statuses(run) == {"start": "completed", "quick": "failed", "slow": "cancelled", "after": "cancelled"}
    assert run["status"] == "failed"

    handled = text.replace("sleep 60", "true").replace(
        'cmds: ["exit 3"]}',
        'cmds: ["exit 3"]}\n    next: {arcs: [{step: after, when: "{{ output.status == \'error\' }}"}]}',
    )
    assert mulligan("run", written(handled), "--json").json["status"] == "completed"


def test_how_many_items_run_at_once_may_be_a_template_that_a_run_overrides():
    text = newer("""
        workload: {width: 2}
        workflow:
          - step: visit
            loop: {in: [1, 2], iterator: n, spec: {mode: parallel, max_in_flight: "{{ (workload.width * 2) | int }}"}}
            tool: {kind: python, input: {n: "{{ n }}"}, code: "result = n"}
        """)

    found = steps(text)["visit"]["map"]
    assert found["max_parallel"] == "${steps.visit_items.output.result.max_in_flight}"
    assert ran(text)["outputs"]["result"]["results"] == [1, 2]
    failed = mulligan("run", "playbook.yaml", "--json", "-i", "width=0").json["steps"]["visit"]["failure"]
    assert failed["message"] == "'max_parallel' gave 0, not a whole number of at least 1"
