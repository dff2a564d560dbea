"""Flows build workflows: the same as a YAML file that says the same, to the byte."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.flows import functions
from tests.flows.functions import clean, deploy, fetch, improve, load, repair, report, review, split, write

import mulligan
from mulligan import Retry, flow, step
from mulligan.core.model.workflow import encode
from mulligan.language import load_text

HERE = functions.__name__


def same(made: Any, text: str) -> None:
    """Both say the same, to the byte. `CALL` in the text is the module of the functions."""
    assert encode(made.workflow().check()) == encode(load_text(text.replace("CALL", HERE)))


def test_a_flow_makes_the_workflow_of_its_yaml_twin() -> None:
    @flow(timeout="1h")
    def nightly(url: str, table: str = "facts"):  # type: ignore[no-untyped-def]
        rows = fetch(url)
        count = load(rows, table)
        clean.map(rows, max_parallel=4, on_item_failure="collect")
        return {"count": count}

    same(
        nightly,
        """
        name: nightly
        timeout: 1h
        inputs: {url: string, table: {default: facts}}
        steps:
          - step: fetch
            python: {call: "CALL:fetch"}
            args: {url: "${inputs.url}"}
            retry: {codes: [CONNECTION], max_retries: 5, delay: 1s, factor: 2}
            timeout: 1m
          - step: load
            needs: [fetch]
            python: {call: "CALL:load"}
            args: {rows: "${steps.fetch.output}", table: "${inputs.table}"}
            triage: true
          - step: clean
            needs: [fetch]
            map: {over: "${steps.fetch.output}", max_parallel: 4, on_item_failure: collect}
            do: [{python: {call: "CALL:clean"}, args: {row: "${item}"}}]
        outputs: {count: "${steps.load.output}"}
        """,
    )


def test_steps_made_in_a_loop_are_numbered_or_have_chosen_names() -> None:
    @flow
    def regions():  # type: ignore[no-untyped-def]
        for region in ("east", "west"):
            report(1, title=region)
        report.options(name="last")(2)

    assert [one.name for one in regions.workflow().check().steps] == ["report", "report_2", "last"]


def test_a_number_that_is_taken_is_not_used() -> None:
    @flow
    def taken():  # type: ignore[no-untyped-def]
        mulligan.shell("report_2", "true")
        report(1)
        report(2)

    assert [one.name for one in taken.workflow().check().steps] == ["report_2", "report", "report_3"]


def test_data_after_and_conditions_give_the_needs() -> None:
    @flow
    def needs(url: str):  # type: ignore[no-untyped-def]
        rows = fetch(url)
        count = load(rows)
        first = mulligan.shell("first", f"echo {rows[0].n} {url}")
        report.options(when=count > 3, after=[first])(count)
        report.options(after=mulligan.ended(first))(1)
        report(mulligan.optional(count))
        report.options(when=mulligan.outcome(count).status == "failed")(3)
        report.options(when="steps.first.output == 'a'", after=[clean.options(name="tidy")({"n": 1})])(4)

    same(
        needs,
        """
        name: needs
        inputs: {url: string}
        steps:
          - step: fetch
            python: {call: "CALL:fetch"}
            args: {url: "${inputs.url}"}
            retry: {codes: [CONNECTION], max_retries: 5, delay: 1s, factor: 2}
            timeout: 1m
          - step: load
            needs: [fetch]
            python: {call: "CALL:load"}
            args: {rows: "${steps.fetch.output}"}
            triage: true
          - {step: first, needs: [fetch], shell: "echo ${steps.fetch.output[0].n} ${inputs.url}"}
          - step: report
            needs: [load, first]
            when: steps.load.output > 3
            python: {call: "CALL:report"}
            args: {count: "${steps.load.output}"}
          - {step: report_2, needs: [{step: first, on: always}], python: {call: "CALL:report"}, args: {count: 1}}
          - step: report_3
            needs: [{step: load, on: success_or_skipped}]
            python: {call: "CALL:report"}
            args: {count: "${steps.load.output}"}
          - step: report_4
            needs: [{step: load, on: always}]
            when: steps.load.status == "failed"
            python: {call: "CALL:report"}
            args: {count: 3}
          - {step: tidy, python: {call: "CALL:clean"}, args: {row: {n: 1}}}
          - step: report_5
            needs: [first, tidy]
            when: steps.first.output == 'a'
            python: {call: "CALL:report"}
            args: {count: 4}
        """,
    )


def test_what_a_branch_returns_waits_for_both_branches() -> None:
    @flow
    def branches(url: str):  # type: ignore[no-untyped-def]
        count = load(fetch.options(retry=0)(url))
        made = mulligan.branch(count > 3, lambda: report(count), lambda: mulligan.shell("none", "echo none"))
        return mulligan.shell("say", f"echo {made}")

    same(
        branches,
        """
        name: branches
        inputs: {url: string}
        steps:
          - {step: fetch, python: {call: "CALL:fetch"}, args: {url: "${inputs.url}"}, retry: 0, timeout: 1m}
          - step: load
            needs: [fetch]
            python: {call: "CALL:load"}
            args: {rows: "${steps.fetch.output}"}
            triage: true
          - step: report
            needs: [load]
            when: steps.load.output > 3
            python: {call: "CALL:report"}
            args: {count: "${steps.load.output}"}
          - {step: none, needs: [load], when: "!(steps.load.output > 3)", shell: echo none}
          - step: say
            needs: [load, {step: report, on: success_or_skipped}, {step: none, on: success_or_skipped}]
            shell: "echo ${steps.load.output > 3 ? steps.report.output : steps.none.output}"
        outputs: {result: "${steps.say.output}"}
        """,
    )


def test_a_branch_may_choose_between_values_without_steps() -> None:
    @flow
    def choice(n: int):  # type: ignore[no-untyped-def]
        report(1, title=mulligan.branch(n > 3, lambda: "many", lambda: "few"))

    [made] = choice.workflow().check().steps

    assert made.action is not None
    [binding] = [*made.action.bindings.values()]
    assert binding.parts[0].source == 'inputs.n > 3 ? "many" : "few"'  # type: ignore[union-attr]


def test_nested_branches_join_their_conditions() -> None:
    @flow
    def nested(n: int, m: int):  # type: ignore[no-untyped-def]
        mulligan.branch(n > 3, lambda: mulligan.branch(m > 1, lambda: report(1)))

    [made] = nested.workflow().check().steps

    assert made.when is not None and made.when.source == "inputs.n > 3 && inputs.m > 1"


def test_a_failure_route_makes_its_target_with_the_arguments_of_the_step() -> None:
    @flow
    def routes(image: str):  # type: ignore[no-untyped-def]
        deploy.on_failure(repair, then="rerun", codes=["NO_CERTIFICATE"])
        deployed = deploy(image)
        report(mulligan.size(deployed))

    same(
        routes,
        """
        name: routes
        inputs: {image: string}
        steps:
          - step: deploy
            python: {call: "CALL:deploy"}
            args: {image: "${inputs.image}"}
            next: {to: repair, on: failure, then: rerun, codes: [NO_CERTIFICATE]}
          - step: repair
            python: {call: "CALL:repair"}
            args: {failure: "${failure}", image: "${inputs.image}"}
          - step: report
            needs: [deploy]
            python: {call: "CALL:report"}
            args: {count: "${size(steps.deploy.output)}"}
        """,
    )
    assert deploy.routes == [], "a route that is said inside a flow belongs to that flow"


def test_a_loop_is_a_route_back() -> None:
    @flow
    def polish(topic: str):  # type: ignore[no-untyped-def]
        text = mulligan.latest(improve, write(topic))
        verdict = review(text)
        better = improve(text, verdict["comments"])
        mulligan.route(verdict, better, when=~verdict["ok"])
        mulligan.route(better, verdict, delay="1s")
        return {"text": text}

    same(
        polish,
        """
        name: polish
        inputs: {topic: string}
        steps:
          - {step: write, python: {call: "CALL:write"}, args: {topic: "${inputs.topic}"}}
          - step: review
            needs: [write]
            python: {call: "CALL:review"}
            args: {text: "${steps.improve.output == null ? steps.write.output : steps.improve.output}"}
            max_visits: 5
            next: {to: improve, when: "!steps.review.output.ok"}
          - step: improve
            needs: [write]
            python: {call: "CALL:improve"}
            args:
              text: "${steps.improve.output == null ? steps.write.output : steps.improve.output}"
              comments: "${steps.review.output.comments}"
            next: {to: review, delay: 1s}
        outputs: {text: "${steps.improve.output == null ? steps.write.output : steps.improve.output}"}
        """,
    )


def test_edges_may_be_keys_of_a_step() -> None:
    @flow
    def edges():  # type: ignore[no-untyped-def]
        after = mulligan.shell("after", "true")
        mulligan.shell("before", "true", next=[{"to": after, "when": "steps.before.output == ''"}, "end"], take="first")

    same(
        edges,
        """
        name: edges
        steps:
          - {step: after, shell: "true"}
          - step: before
            shell: "true"
            take: first
            next: [{to: after, when: "steps.before.output == ''"}, end]
        """,
    )


def test_a_matrix_is_one_step_per_combination() -> None:
    @flow
    def sweep(url: str):  # type: ignore[no-untyped-def]
        reports = report.options(name="report_{title}_{count:02d}").matrix({"title": ["a", "b"], "count": range(1, 3)})
        mulligan.shell("all", f"echo {mulligan.size(reports)}")
        report.options(name="zipped").matrix({"title": ["a", "b"], "count": "1..2"}, zip=True)

    same(
        sweep,
        """
        name: sweep
        inputs: {url: string}
        steps:
          - step: "report_{title}_{count:02d}"
            matrix: {title: [a, b], count: [1, 2]}
            python: {call: "CALL:report"}
            args: {title: "${matrix.title}", count: "${matrix.count}"}
          - {step: all, needs: [{matrix: report}], shell: "echo ${size(steps.report.output)}"}
          - step: "zipped_{title}_{count}"
            matrix: {zip: {title: [a, b], count: 1..2}}
            python: {call: "CALL:report"}
            args: {title: "${matrix.title}", count: "${matrix.count}"}
        """,
    )


def test_a_group_gets_what_it_reads_as_inputs() -> None:
    @flow
    def grouped(url: str):  # type: ignore[no-untyped-def]
        rows = fetch.options(retry=0)(url)
        with mulligan.group("publish", retry=2, order="graph") as publish:
            cleaned = clean(rows[0])
            count = load([cleaned], url)
        report(count, title=f"{publish['clean'].url}")

    same(
        grouped,
        """
        name: grouped
        inputs: {url: string}
        steps:
          - {step: fetch, python: {call: "CALL:fetch"}, args: {url: "${inputs.url}"}, retry: 0, timeout: 1m}
          - step: publish
            needs: [fetch]
            retry: 2
            group:
              order: graph
              inputs: {fetch_output: "${steps.fetch.output}"}
              steps:
                - {step: clean, python: {call: "CALL:clean"}, args: {row: "${inputs.fetch_output[0]}"}}
                - step: load
                  needs: [clean]
                  python: {call: "CALL:load"}
                  args: {rows: ["${steps.clean.output}"], table: "${inputs.url}"}
                  triage: true
          - step: report
            needs: [publish]
            python: {call: "CALL:report"}
            args: {count: "${steps.publish.output.load}", title: "${steps.publish.output.clean.url}"}
        """,
    )


def test_a_group_needs_a_step_in_the_strictest_way_of_its_steps() -> None:
    @flow
    def grouped(url: str):  # type: ignore[no-untyped-def]
        rows = fetch(url)
        with mulligan.group("publish"):
            load(mulligan.ended(rows))
            clean(rows[0])

    needs = grouped.workflow().check().steps[1].needs

    assert [(need.of, need.on) for need in needs] == [("fetch", "success")]


def test_the_condition_of_a_branch_is_that_of_the_group_in_it() -> None:
    def publish() -> Any:
        with mulligan.group("publish") as published:
            report(1)
        return published

    @flow
    def conditional(n: int):  # type: ignore[no-untyped-def]
        mulligan.branch(n > 3, publish)

    [made] = (checked := conditional.workflow().check()).steps

    assert made.when is not None and made.when.source == "inputs.n > 3"
    assert [one.when for one in checked.children["group:publish"].steps] == [None]


def test_every_action_of_a_file_is_a_function() -> None:
    @flow(order="data", secrets={"database": {"env": "DATABASE_URL"}}, defaults={"agent": "coder"})
    def actions(name: str):  # type: ignore[no-untyped-def]
        token = mulligan.secret("token", file="/run/secrets/token")
        mulligan.shell("shell", "cat", stdin=name, capture="json", strict=False)
        mulligan.http(
            "http",
            "https://shop.example/orders",
            method="POST",
            headers={"Authorization": f"Bearer {token}"},
            json={"customer": name},
            expect=[200, 201],
        )
        rows = mulligan.sql(
            "sql", mulligan.secret("database"), f"select * from t where name = {name}", params={"n": 1}, read_only=True
        )
        answer = mulligan.agent("agent", "Summarise.", context={"rows": rows}, answer="json")
        mulligan.agent("short", f"Be short: {answer.content}", timeout="5m")
        mulligan.wait("pause", timedelta(seconds=30))
        mulligan.wait("morning", until="2030-01-31T09:00:00Z")
        mulligan.approve("ask", "Send it?", timeout="1h", default="refuse", after=answer)
        mulligan.shell("build", f"make {mulligan.file('mesh', 'out/mesh.vtk')}", writes=["mesh"], cache=True)
        mulligan.action("raw", shell="true", resources={"cpus": 2}, after="ask")

    same(
        actions,
        """
        name: actions
        inputs: {name: string}
        secrets: {database: {env: DATABASE_URL}, token: {file: /run/secrets/token}}
        defaults: {agent: coder}
        files: {mesh: out/mesh.vtk}
        steps:
          - {step: shell, shell: cat, stdin: "${inputs.name}", capture: json, strict: false}
          - step: http
            http:
              method: POST
              url: https://shop.example/orders
              headers: {Authorization: "Bearer ${secrets.token}"}
              json: {customer: "${inputs.name}"}
              expect: [200, 201]
          - step: sql
            sql:
              connection: "${secrets.database}"
              query: "select * from t where name = ${inputs.name}"
              params: {n: 1}
              read_only: true
          - step: agent
            needs: [sql]
            agent: {prompt: Summarise., context: {rows: "${steps.sql.output}"}, answer: json}
          - {step: short, needs: [agent], agent: "Be short: ${steps.agent.output.content}", timeout: 5m}
          - {step: pause, wait: 30s}
          - {step: morning, wait: {until: "2030-01-31T09:00:00Z"}}
          - {step: ask, needs: [agent], approve: {message: "Send it?", default: refuse}, timeout: 1h}
          - {step: build, shell: "make ${files.mesh}", writes: [mesh], cache: true}
          - {step: raw, needs: [ask], shell: "true", resources: {cpus: 2}}
        """,
    )


def test_the_keys_of_a_flow_are_those_of_a_file() -> None:
    @flow(
        name="release",
        description="from the branch to the customers",
        order="sequential",
        budget={"cost": 2.5},
        fail_fast="never",
        max_parallel=2,
        cancel_grace=timedelta(seconds=30),
        hide_credentials=False,
        defaults={"env": {"LANG": "C"}},
        breakers={"shop": {"failures": 5}},
        retry_policies={"flaky": Retry(rules=[Retry(exit_codes=[10], max_retries=3), Retry(any=True)], max_attempts=6)},
        handlers={"tidy": ["make clean"]},
        inputs={"target": {"description": "where to deploy"}},
    )
    def keys(target: str = "staging"):  # type: ignore[no-untyped-def]
        mulligan.shell("build", "make", retry="flaky", on_failure={"use": "tidy"}, breaker="shop")
        mulligan.shell("test", f"make {target}", retry=[Retry(codes="TIMEOUT"), Retry(any=True, max_retries=1)])

    same(
        keys,
        """
        name: release
        description: from the branch to the customers
        order: sequential
        budget: {cost: 2.5}
        fail_fast: never
        max_parallel: 2
        cancel_grace: 30s
        hide_credentials: false
        defaults: {env: {LANG: C}}
        breakers: {shop: {failures: 5}}
        retry_policies: {flaky: {rules: [{exit_codes: [10], max_retries: 3}, {any: true}], max_attempts: 6}}
        handlers: {tidy: [make clean]}
        inputs: {target: {default: staging, description: where to deploy}}
        steps:
          - {step: build, shell: make, retry: flaky, on_failure: {use: tidy}, breaker: shop}
          - step: test
            shell: make ${inputs.target}
            retry: {rules: [{codes: TIMEOUT}, {any: true, max_retries: 1}]}
        """,
    )


def test_a_sequential_flow_runs_in_the_order_of_its_calls_also_where_data_flows() -> None:
    @flow(order="sequential")
    def ordered(url: str):  # type: ignore[no-untyped-def]
        rows = fetch(url)
        mulligan.shell("between", "true")
        load(rows)

    needs = {one.name: [need.of for need in one.needs] for one in ordered.workflow().check().steps}

    assert needs == {"fetch": [], "between": ["fetch"], "load": ["fetch", "between"]}


@pytest.mark.parametrize(("returned", "outputs"), [(3, ["result"]), ({"a": 1, "b": [2]}, ["a", "b"]), (None, [])])
def test_what_a_flow_returns_are_its_outputs(returned: Any, outputs: list[str]) -> None:
    @flow
    def returning():  # type: ignore[no-untyped-def]
        mulligan.shell("only", "true")
        return returned

    assert [*returning.workflow().check().outputs] == outputs


def test_a_tuple_is_unpacked_as_the_annotation_says() -> None:
    @flow
    def unpacking():  # type: ignore[no-untyped-def]
        first, second = split(3)
        report(first, title=f"{second['count']}")

    last = unpacking.workflow().check().steps[-1]

    assert last.action is not None
    sources = [binding.parts[0].source for binding in last.action.bindings.values()]  # type: ignore[union-attr]
    assert sources == ["steps.split.output[0]", "steps.split.output[1].count"]


@flow
def inner(url: str, table: str = "facts"):  # type: ignore[no-untyped-def]
    """What the child does.

    And more.
    """
    return load(fetch(url), table)


def test_a_flow_inside_a_flow_is_a_child_run_that_is_pinned_without_a_file() -> None:
    @flow
    def outer(url: str):  # type: ignore[no-untyped-def]
        count = inner(url)
        inner.options(name="again", retry=1)(f"{url}/2", table="other")
        report(count)

    made = outer.workflow().check()

    assert [one.name for one in made.steps] == ["inner", "again", "report"]
    assert made.children == {"flow:inner": inner.workflow().check()}
    assert made.children["flow:inner"].description == "What the child does."
    last = made.steps[-1].action
    assert last is not None and last.bindings["b0"].parts[0].source == "steps.inner.output.result"  # type: ignore[union-attr]


def test_flows_of_one_name_are_different_children() -> None:
    @flow(name="inner")
    def other():  # type: ignore[no-untyped-def]
        mulligan.shell("only", "true")

    @flow
    def outer():  # type: ignore[no-untyped-def]
        inner("a")
        other()

    made = outer.workflow().check()

    assert [one.name for one in made.steps] == ["inner", "inner_2"]
    assert [*made.children] == ["flow:inner", "flow:inner_2"]


def test_the_plain_functions_stay_plain() -> None:
    assert load.fn([{"n": 1}]) == 1
    assert inner.fn is inner.__wrapped__  # type: ignore[attr-defined]
    assert (fetch.__name__, fetch.__doc__, fetch.__module__) == ("fetch", "Fetch the rows.", HERE)
    assert (repr(fetch), repr(inner)) == ("<step fetch>", "<flow inner>")


def test_options_change_a_copy() -> None:
    changed = load.options(timeout="5m")

    assert changed is not load
    assert "timeout" not in load.keys


def test_a_flow_is_built_anew_each_time() -> None:
    assert encode(inner.workflow().check()) == encode(inner.workflow().check())


def test_a_step_may_be_made_of_a_function_of_another_module() -> None:
    again = step(timeout="1m")(report.fn)

    @flow
    def made():  # type: ignore[no-untyped-def]
        again(3)

    [found] = made.workflow().check().steps
    assert found.action is not None and found.action.params["call"] == f"{HERE}:report"


def test_a_flow_is_called_once_for_each_item_of_a_list() -> None:
    @flow
    def outer(urls: list):  # type: ignore[no-untyped-def,type-arg]
        found = inner.map(urls, table="other", max_parallel=2, on_item_failure="collect")
        return {"rows": found.results, "failed": found.failed}

    made = outer.workflow().check()

    (step,) = made.steps
    assert step.map is not None and (step.map.max_parallel, step.map.on_item_failure) == (2, "collect")
    assert [one.action.kind for one in step.do if one.action is not None] == ["workflow"]
    assert made.children == {"flow:inner": inner.workflow().check()}
    outputs = {name: one.parts[0].source for name, one in made.outputs.items()}  # type: ignore[union-attr]
    assert outputs == {
        "rows": "steps.inner.output.results.map(one, one == null ? null : one.result)",
        "failed": "steps.inner.output.failed",
    }
