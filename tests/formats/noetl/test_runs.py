"""Playbooks that run: what comes of arcs, cases, loops, failures and called playbooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from .playbooks import mulligan, newer, older, ran, statuses, written

# -- ways on -----------------------------------------------------------------------------------------------------------


def test_the_first_arc_that_holds_is_taken_and_no_other():
    run = ran(
        newer("""
        workload: {size: 7}
        workflow:
          - step: start
            tool: {kind: noop}
            next:
              arcs:
                - {step: small, when: "{{ workload.size < 5 }}"}
                - {step: middle, when: "{{ workload.size < 10 }}"}
                - {step: large}
          - {step: small, tool: {kind: noop}}
          - {step: middle, tool: {kind: noop}}
          - {step: large, tool: {kind: noop}}
        """)
    )

    assert statuses(run) == {"start": "completed", "middle": "completed"}


def test_every_arc_that_holds_is_taken_where_the_mode_is_inclusive_and_a_join_waits_for_all():
    run = ran(
        newer("""
        workflow:
          - step: start
            tool: {kind: noop}
            next:
              spec: {mode: inclusive}
              arcs: [{step: a}, {step: b, when: "{{ 1 == 1 }}"}, {step: c, when: "{{ false }}"}]
          - {step: a, tool: {kind: noop}, set: {ctx.a: 1}, next: {arcs: [{step: sum}]}}
          - {step: b, tool: {kind: noop}, set: {ctx.b: 2}, next: {arcs: [{step: sum}]}}
          - {step: c, tool: {kind: noop}, set: {ctx.c: 3}, next: {arcs: [{step: sum}]}}
          - step: sum
            tool: {kind: python, input: {all: "{{ [ctx.a, ctx.b, ctx.c | default(0)] }}"}, code: "result = sum(all)"}
        """)
    )

    assert run["outputs"]["result"] == 3
    assert run["steps"]["sum"]["visits"] == 1


def test_a_workload_is_overridden_key_by_key():
    text = newer("""
        workload: {who: world, times: 2, extra: null}
        workflow:
          - step: greet
            tool: {kind: python, input: {w: "{{ workload }}"}, code: "result = w"}
        """)

    run = ran(text, "-i", "who=you", "-i", "extra=[1]")

    assert run["outputs"]["result"] == {"who": "you", "times": 2, "extra": [1]}


def test_pages_are_a_loop_of_arcs_that_gathers():
    run = ran(
        newer("""
        workflow:
          - {step: init, tool: {kind: noop}, set: {ctx.page: 1, ctx.rows: []}, next: {arcs: [{step: fetch}]}}
          - step: fetch
            tool:
              kind: python
              input: {page: "{{ ctx.page }}"}
              code: "result = {'rows': [page, page], 'more': page < 3}"
            set: {ctx.page: "{{ ctx.page + 1 }}", ctx.rows: "{{ ctx.rows + result.rows }}"}
            next: {arcs: [{step: fetch, when: "{{ output.data.more }}"}, {step: done}]}
          - {step: done, tool: {kind: python, input: {rows: "{{ ctx.rows }}"}, code: "result = rows"}}
        """)
    )

    assert run["outputs"]["result"] == [1, 1, 2, 2, 3, 3]
    assert run["steps"]["fetch"]["visits"] == 3


def test_a_case_decides_and_next_is_for_what_no_case_decides():
    text = older("""
        workload: {n: 1}
        workflow:
          - step: start
            tool: {kind: python, args: {n: "{{ workload.n }}"}, code: "result = {'n': n}"}
            vars: {twice: "{{ result.n * 2 }}"}
            case:
              - when: "{{ event.name == 'call.done' and response is defined and result.n > 5 }}"
                then: [{set: {ctx.how: much}}, {next: [{step: large, args: {shown: "{{ result.n }}"}}]}]
            next: [{step: small}]
          - {step: large, tool: {kind: python, code: "result = {'large': shown}"}}
          - {step: small, tool: {kind: python, args: {twice: "{{ vars.twice }}"}, code: "result = {'small': twice}"}}
        """)

    assert ran(text)["outputs"]["result"] == {"small": 2}
    assert ran(text, "-i", "n=9")["outputs"]["result"] == {"large": 9}


def test_a_case_may_fail_the_step():
    run = ran(
        older("""
        workflow:
          - step: start
            tool: {kind: python, code: "result = {'rows': 0}"}
            case: [{when: "{{ result.rows == 0 }}", then: {fail: {message: nothing came}}}]
            next: end
        """)
    )

    assert run["status"] == "failed"
    assert run["steps"]["start"]["failure"]["message"] == "nothing came"


def test_no_arc_that_holds_ends_the_path_and_fails_where_that_is_an_error():
    text = """
        {}
        workflow:
          - {{step: start, tool: {{kind: noop}}, next: {{arcs: [{{step: b, when: "{{{{ false }}}}"}}]}}}}
          - {{step: b, tool: {{kind: noop}}}}
        """

    assert ran(newer(text.format("executor: {profile: local}")))["status"] == "completed"
    failed = ran(newer(text.format("executor: {spec: {no_next_is_error: true}}")))
    assert (failed["status"], failed["failures"][0]["code"]) == ("failed", "NO_ROUTE")


# -- failures ----------------------------------------------------------------------------------------------------------

BROKEN = "{kind: python, code: \"raise ValueError('no luck')\"}"


def test_an_arc_that_speaks_of_errors_handles_a_failure_and_reads_it():
    run = ran(
        newer(f"""
        workflow:
          - step: start
            tool: {BROKEN}
            next:
              arcs:
                - step: fix
                  when: "{{{{ output.status == 'error' }}}}"
                  set: {{ctx.why: "{{{{ output.error.message }}}}"}}
                - {{step: fine}}
          - {{step: fine, tool: {{kind: noop}}}}
          - step: fix
            input: {{why: "{{{{ ctx.why }}}}", of: "{{{{ start.status }}}}"}}
            tool: {{kind: python, code: "result = [why, of]"}}
        """)
    )

    assert (run["status"], run["degraded"]) == ("completed", True)
    assert run["outputs"]["result"] == ["ValueError: no luck", "error"]
    assert statuses(run) == {"start": "failed", "start_on_error": "completed", "fix": "completed"}


def test_an_arc_without_a_condition_is_not_followed_after_a_failure():
    run = ran(
        newer(f"""
        workflow:
          - {{step: start, tool: {BROKEN}, next: {{arcs: [{{step: after}}]}}}}
          - {{step: after, tool: {{kind: noop}}}}
        """)
    )

    assert run["status"] == "failed"
    assert statuses(run) == {"start": "failed"}


@pytest.mark.parametrize(
    "arc",
    [
        # another kind of error
        "{step: fix, when: \"{{ output.error.kind == 'auth' }}\"}",
        # `end` handles nothing
        '{step: end, when: "{{ event.name == \'call.error\' }}"}, {step: fix, when: "{{ error is defined }}"}',
    ],
)
def test_a_failure_that_no_arc_takes_up_stays_unhandled(arc: str):
    run = ran(
        newer(f"""
        workflow:
          - {{step: start, tool: {BROKEN}, next: {{arcs: [{arc}]}}}}
          - {{step: fix, tool: {{kind: noop}}}}
        """)
    )

    assert run["status"] == "failed"
    assert statuses(run) == {"start": "failed", "start_on_error": "failed"}


def test_every_path_ends_at_the_step_end_which_sees_what_was():
    run = ran(
        older(f"""
        workflow:
          - {{step: start, tool: {{kind: python, code: "result = 5"}}, next: [{{step: left}}, {{step: right}}]}}
          - {{step: left, tool: {{kind: noop}}, next: end}}
          - {{step: right, tool: {BROKEN}}}
          - {{step: end, tool: {{kind: python, args: {{n: "{{{{ start }}}}"}}, code: "result = {{'saw': n}}"}}}}
        """)
    )

    assert (run["status"], run["end"]["status"]) == ("failed", "completed")
    assert run["end"]["output"]["result"] == {"saw": 5}


# -- retries -----------------------------------------------------------------------------------------------------------

# Fails until it was called three times, which it counts in a file.
FLAKY = """
                import os
                with open("calls", "a") as file:
                    file.write(".")
                if os.path.getsize("calls") < 3:
                    raise ConnectionError("not yet")
                result = os.path.getsize("calls")
"""


def retried(text: str) -> dict[str, object]:
    said = mulligan("run", written(text), "--json")
    assert said.code in (0, 1), said.err
    run = said.json
    return {"status": run["status"], "attempts": run["steps"]["start"]["attempts"]}


@pytest.mark.parametrize(
    ("retry", "status", "attempts"),
    [
        ("{max_attempts: 3, initial_delay: 0.01}", "completed", 3),
        ("{max_attempts: 2, initial_delay: 0.01}", "failed", 2),
        ('[{when: "{{ error.message is defined }}", then: {max_attempts: 5, initial_delay: 0.01}}]', "completed", 3),
        # a condition that does not hold
        ('[{when: "{{ error.http_status == 503 }}", then: {max_attempts: 5, initial_delay: 0.01}}]', "failed", 1),
    ],
)
def test_the_retry_of_a_tool_counts_all_calls(retry: str, status: str, attempts: int):
    text = older(f"""
        workflow:
          - step: start
            tool:
              kind: python
              retry: {retry}
              code: |{FLAKY}
        """)

    assert retried(text) == {"status": status, "attempts": attempts}


@pytest.mark.parametrize(("attempts", "status"), [(3, "completed"), (2, "failed")])
def test_the_rules_of_a_tool_ask_for_retries_that_are_attempts(attempts: int, status: str):
    text = newer(f"""
        workflow:
          - step: start
            tool:
              kind: python
              spec:
                policy:
                  rules:
                    - when: "{{{{ output.status == 'error' }}}}"
                      then: {{do: retry, attempts: {attempts}, delay: 0.01}}
                    - {{else: {{then: {{do: continue}}}}}}
              code: |{FLAKY}
        """)

    assert retried(text) == {"status": status, "attempts": attempts}


def test_a_case_may_ask_for_a_retry():
    text = older(f"""
        workflow:
          - step: start
            tool:
              kind: python
              code: |{FLAKY}
            case:
              - when: "{{{{ event.name == 'call.error' }}}}"
                then: {{retry: {{max_attempts: 4, initial_delay: 0.01, backoff_multiplier: 1}}}}
        """)

    assert retried(text) == {"status": "completed", "attempts": 3}


def test_a_failure_for_which_no_case_asks_for_a_retry_is_not_tried_again():
    text = older(f"""
        workflow:
          - step: start
            tool:
              kind: python
              code: |{FLAKY}
            case:
              - when: "{{{{ event.name == 'call.error' and error.http_status == 503 }}}}"
                then: {{retry: {{max_attempts: 4, initial_delay: 0.01}}}}
        """)

    assert retried(text) == {"status": "failed", "attempts": 1}


# -- loops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_loop_gives_the_results_of_all_items_in_their_order(mode: str):
    run = ran(
        newer(f"""
        workload: {{cities: [{{name: Oslo}}, {{name: Rome}}, {{name: Lima}}]}}
        workflow:
          - step: visit
            loop: {{in: "{{{{ workload.cities }}}}", iterator: city, spec: {{mode: {mode}, max_in_flight: 2}}}}
            input: {{n: "{{{{ iter.city.name }}}}", at: "{{{{ loop_index }}}}"}}
            tool: {{kind: python, code: "result = f'{{at}} {{n}}'"}}
            next: {{arcs: [{{step: count, when: "{{{{ event.name == 'loop.done' }}}}"}}]}}
          - step: count
            input: {{all: "{{{{ visit.results }}}}", stats: "{{{{ visit.stats }}}}"}}
            tool: {{kind: python, code: "result = [all, stats]"}}
        """)
    )

    assert run["outputs"]["result"] == [
        ["0 Oslo", "1 Rome", "2 Lima"],
        {"total": 3, "success": 3, "failed": 0},
    ]


def test_a_loop_whose_items_fail_fails_and_an_arc_may_take_that_up():
    run = ran(
        older("""
        workflow:
          - step: start
            loop: {in: [1, 0, 2], iterator: n, mode: parallel}
            tool: {kind: python, args: {n: "{{ n }}"}, code: "result = 10 / n"}
            case: [{when: "{{ event.name == 'call.error' }}", then: {next: [{step: fix}]}}]
            next: [{step: fine}]
          - {step: fine, tool: {kind: noop}}
          - {step: fix, tool: {kind: python, args: {code: "{{ start.error.code }}"}, code: "result = code"}}
        """)
    )

    assert (run["status"], run["outputs"]["result"]) == ("completed", "ITEMS_FAILED")


def test_a_loop_that_is_best_effort_goes_on_with_what_it_has():
    run = ran(
        newer("""
        workflow:
          - step: start
            spec: {policy: {failure: {mode: best_effort}}}
            loop: {in: "{{ [1, 0, 2] }}", iterator: n}
            tool: {kind: python, input: {n: "{{ n }}"}, code: "result = 10 / n"}
        """)
    )

    assert run["status"] == "completed"
    assert run["outputs"]["result"] == {"results": [10, None, 5], "stats": {"total": 3, "success": 2, "failed": 1}}


# -- called playbooks --------------------------------------------------------------------------------------------------

CHILD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: half, path: catalog/half}
workload: {n: 8}
workflow:
  - {step: halve, tool: {kind: python, args: {n: "{{ workload.n }}"}, code: "result = {'half': 100 / n}"}, next: report}
  - {step: report, tool: {kind: python, args: {h: "{{ halve.half }}"}, code: "result = {'said': h}"}}
"""


@pytest.mark.parametrize("path", ["half", "half.yaml", "catalog/half"])
@pytest.mark.parametrize(("returned", "result"), [("", {"said": 50}), (", return_step: halve", {"half": 50})])
def test_a_playbook_that_is_called_gives_its_last_result_or_that_of_the_step_that_is_named(
    folder: Path, path: str, returned: str, result: object
):
    (folder / "half.yaml").write_text(CHILD)

    run = ran(
        newer(f"""
        workload: {{n: 2}}
        workflow:
          - step: call
            tool: {{kind: playbook, path: {path}{returned}, input: {{n: "{{{{ workload.n }}}}"}}}}
        """)
    )

    assert run["outputs"]["result"] == result


AGGREGATED = older("""
workflow:
  - {step: start, tool: {kind: python, code: "result = 4"}, next: [{step: end}]}
  - {step: end, tool: {kind: python, args: {n: "{{ start }}"}, code: "result = {'twice': n * 2}"}}
""")


def test_what_end_makes_of_the_results_is_the_result():
    assert ran(AGGREGATED)["outputs"] == {"result": {"twice": 8}}


def test_end_runs_after_a_failure_and_reads_nothing_of_steps_that_gave_nothing():
    text = AGGREGATED.replace("result = 4", "raise ValueError('no luck')").replace("n * 2", "n")

    run = ran(text)

    assert (run["status"], run["end"]["status"], run["outputs"]) == ("failed", "completed", {"result": {"twice": None}})


def test_that_a_loop_is_done_can_be_asked():
    run = ran(
        newer("""
        workflow:
          - step: each
            loop: {in: [1, 2], iterator: n}
            tool: {kind: noop}
            next: {arcs: [{step: after, when: "{{ loop.done and loop.length == 2 }}"}]}
          - {step: after, tool: {kind: python, code: result = 'after'}}
        """)
    )

    assert run["outputs"] == {"result": "after"}


def test_an_end_that_makes_nothing_leaves_the_last_result():
    text = AGGREGATED.replace("result = {'twice': n * 2}", "result = None")

    assert ran(text)["outputs"] == {"result": 4}


# One with an end of its own, one with an end that does nothing, and one without.
@pytest.mark.parametrize(
    ("child", "result"),
    [
        (AGGREGATED, {"twice": 8}),
        (older("workflow: [{step: start, tool: {kind: python, code: result = 4}, next: end}, {step: end}]"), 4),
        (older("workflow: [{step: start, tool: {kind: python, code: result = 4}}]"), 4),
    ],
)
def test_the_end_of_a_playbook_can_be_the_step_whose_result_is_taken(child: str, result: object):
    written(child, "child.yaml")

    run = ran(older("workflow: [{step: start, tool: {kind: playbook, path: child, return_step: end}}]"))

    assert run["outputs"] == {"result": result}


def test_a_failed_child_fails_the_step_that_called_it():
    written(CHILD, "half.yaml")

    run = ran(
        older("""
        workflow:
          - step: start
            tool: {kind: playbook, path: half, return_step: report, args: {n: 0}}
            case: [{when: "{{ event.name == 'call.error' }}", then: {next: fix}}]
          - step: fix
            tool: {kind: python, args: {e: "{{ start.error }}"}, code: "result = [e['code'], e['kind'], e['cause']]"}
        """)
    )

    code, kind, [cause] = run["outputs"]["result"]
    assert (run["status"], code, kind) == ("completed", "CHILD_FAILED", "transform")
    assert (cause["code"], cause["step"], cause["kind"]) == ("EXCEPTION", "halve", "transform")
    assert "ZeroDivisionError" in cause["message"]


def test_a_loop_calls_a_playbook_for_each_item():
    written(CHILD, "half.yaml")

    run = ran(
        newer("""
        workflow:
          - step: all
            loop: {in: "{{ [1, 2] }}", iterator: n, spec: {mode: parallel}}
            tool: {kind: playbook, path: half, return_step: halve, input: {n: "{{ n }}"}}
        """)
    )

    assert run["outputs"]["result"]["results"] == [{"half": 100}, {"half": 50}]


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_a_workbook_gives_its_tool_to_the_step_that_names_it():
    run = ran(
        newer("""
        workbook:
          - {name: add, tool: {kind: python, input: {a: 1, b: 2}, code: "result = a + b"}}
        workflow:
          - {step: sum, tool: {kind: workbook, name: add, input: {b: 40}}}
        """)
    )

    assert run["outputs"]["result"] == 41


def test_a_credential_comes_from_the_environment_and_is_in_no_log(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NOETL_MY_API", '{"token": "very-secret-token"}')

    said = mulligan(
        "run",
        written(
            newer("""
            workflow:
              - step: use
                input: {token: "{{ keychain.my_api.token }}"}
                tool: {kind: python, code: "print(token); result = len(token)"}
            """)
        ),
        "--json",
    )

    assert said.json["outputs"]["result"] == len("very-secret-token")
    assert "very-secret-token" not in said.out + mulligan("logs", 1, "use").out + mulligan("events", 1, "--json").out


def test_the_oldest_dialect_runs():
    run = ran("""
apiVersion: noetl.io/v1
kind: Playbook
name: oldest
path: examples/oldest
workload: {names: [a, b]}
workflow:
  - step: start
    desc: begin
    next:
      - {when: "{{ workload.names | length > 1 }}", then: [{step: each}]}
      - else: [{step: nothing}]
  - step: each
    type: python
    loop: {collection: "{{ workload.names }}", element: name, mode: sequential}
    data: {name: "{{ name }}"}
    code: |
      def main(name):
          return name.upper()
    next: [{step: end}]
  - {step: nothing, tool: python, code: "result = 0"}
  - {step: end, desc: done}
""")

    assert run["status"] == "completed"
    assert run["outputs"]["result"]["results"] == ["A", "B"]
    assert "nothing" not in statuses(run)


def test_text_of_the_authors_is_not_filled_in_by_us():
    run = ran(
        newer("""
        workload: {price: "${5}"}
        workflow:
          - {step: shell, tool: {kind: shell, cmds: 'x=abc; echo "${x%c} ${HOME:+home} ${inputs.price}"'}}
        """)
    )

    assert run["status"] == "failed"  # a shell knows no ${inputs.price}, and nobody else looked at it
    assert "bad substitution" in run["failures"][0]["message"].lower()


def test_an_iterator_of_the_oldest_dialect_is_a_loop_that_saves_what_each_item_gave():
    run = ran("""
apiVersion: noetl.io/v1
metadata: {name: items}
workload: {items: [{name: a, value: 1}, {name: b, value: 2}]}
workbook:
  - {name: flag, tool: python, assert: {expects: [n]}, code: "result = {'hot': n > 1}"}
workflow:
  - {step: start, tool: duckdb, database: it.db, command: "create or replace table t (v integer)", next: each}
  - step: each
    type: iterator
    collection: "{{ workload.items }}"
    element: item
    task:
      tool: python
      code: "result = {'v': input_data['value']}"
      args: {value: "{{ item.value }}"}
      save: {storage: duckdb, database: it.db, table: t, args: {v: "{{ result.v }}"}}
    next: [{step: flag}]
  - step: flag
    tool: workbook
    name: flag
    args: {n: 3}
    next: [{when: "{{ result.hot }}", step: hot}, {when: "{{ not result.hot }}", step: cold}]
  - {step: hot, tool: router, next: [{step: sum}]}
  - {step: cold, tool: router, next: [{step: sum}]}
  - {step: sum, tool: duckdb, database: it.db, query: "select sum(v) as s from t", next: end}
  - {step: end, type: save, data: {rows: "{{ sum.rows }}"}}
""")

    assert run["end"]["output"]["result"] == {"rows": [{"s": 3}]}
    assert "cold" not in statuses(run)


@pytest.mark.nightly
def test_the_cases_of_a_loop_are_asked_for_each_item_and_lead_on_when_all_are_done():
    run = ran(
        older("""
        workflow:
          - step: start
            tool: {kind: duckdb, database: it.db, command: "create or replace table seen (n integer)"}
            next: each
          - step: each
            loop: {in: [1, 2], iterator: n, mode: sequential}
            tool: {kind: python, args: {n: "{{ n }}"}, code: "result = {'n': n}"}
            case:
              - when: "{{ event.name == 'call.error' }}"
                then: {retry: {max_attempts: 2, initial_delay: 0.01}}
              - when: "{{ event.name == 'call.done' and response is defined }}"
                then: {sink: {tool: duckdb, database: it.db, table: seen, data: {n: "{{ result.n }}"}}}
              - when: "{{ event.name == 'loop.done' }}"
                then: {next: [{step: count}]}
          - {step: count, tool: {kind: duckdb, database: it.db, query: "select sum(n) as n from seen"}, next: end}
        """)
    )

    assert run["outputs"]["result"]["rows"] == [{"n": 3}]


@pytest.mark.nightly
def test_an_item_whose_playbook_has_ended_saves_what_it_gave():
    written(CHILD, "half.yaml")

    run = ran("""
apiVersion: noetl.io/v1
metadata: {name: items}
workflow:
  - {step: start, tool: duckdb, database: it.db, command: "create or replace table t (v double)", next: each}
  - step: each
    type: iterator
    collection: [2, 4]
    element: n
    task:
      type: playbook
      path: half
      return_step: halve
      data: {n: "{{ n }}"}
      save: {storage: duckdb, database: it.db, table: t, data: {v: "{{ this.half }}"}}
    next: sum
  - {step: sum, tool: duckdb, database: it.db, query: "select sum(v) as s from t"}
""")

    assert run["outputs"]["result"]["rows"] == [{"s": 75}]


def test_what_the_last_step_saves_is_saved():
    run = ran(
        """
apiVersion: noetl.io/v1
kind: Playbook
metadata: {name: hello}
workload: {message: Hello World}
workflow:
  - {step: start, next: [{step: say, args: {message: "{{ workload.message }}"}}]}
  - {step: say, type: python, code: "result = {'message': message}", next: [{step: end}]}
  - step: end
    tool: python
    code: "result = 1"
    save: {tool: {kind: shell, cmds: ["echo '{{ say.message }}' > saved"]}}
"""
    )

    assert run["status"] == "completed"
    assert Path("saved").read_text(encoding="utf-8") == "Hello World\n"
