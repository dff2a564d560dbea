"""Lists of tools with a called playbook in them: what the tools before and after it read, and what fails."""

from __future__ import annotations

import pytest

from .playbooks import newer, ran, ran_once, refused, statuses, steps, written

CHILD = newer("""
    workload: {n: 0}
    workflow: [{step: twice, tool: {kind: python, input: {n: "{{ n }}"}, code: "result = {'n': n * 2}"}}]
    """).replace("name: test", "name: twice")

TOOLS = """
        - name: first
          kind: python
          input: {given: "{{ start }}"}
          code: "result = {'n': given + 1}"
          spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.noted: "{{ result.n }}"}}}}]}}
        - {name: child, kind: playbook, path: twice, return_step: twice, input: {n: "{{ _prev.n + ctx.noted }}"}}
        - kind: python
          input: {a: "{{ first.n }}", b: "{{ child.n }}", c: "{{ _prev.n }}", d: "{{ results.child.n }}"}
          code: "result = [a, b, c, d]"
"""


@pytest.fixture(autouse=True)
def child() -> None:
    written(CHILD, "twice.yaml")


def test_tools_after_a_playbook_read_what_it_gave_and_what_those_before_it_gave():
    run = ran(
        newer(f"""
    workload: {{start: 4}}
    workflow:
      - step: work
        tool: {TOOLS}
        next: {{arcs: [{{step: tell}}]}}
      - step: tell
        tool:
          kind: python
          input: {{data: "{{{{ work.data }}}}", results: "{{{{ work.results }}}}", noted: "{{{{ ctx.noted }}}}"}}
          code: "result = [data, sorted(results), noted]"
    """)
    )

    assert run["outputs"]["result"] == [[5, 20, 20, 20], ["child", "first", "task_2"], 5]


def test_the_items_of_a_loop_may_call_playbooks_in_lists_too():
    run = ran_once(
        newer(f"""
    workload: {{seen: []}}
    workflow:
      - step: work
        loop: {{in: [4, 5], iterator: start}}
        tool: {TOOLS}
        set: {{ctx.seen: "{{{{ ctx.seen + [ctx.noted] }}}}"}}
        next: {{arcs: [{{step: tell}}]}}
      - step: tell
        tool:
          kind: python
          input: {{all: "{{{{ work.results }}}}", seen: "{{{{ ctx.seen }}}}"}}
          code: "result = [[one['data'] for one in all], seen]"
    """)
    )

    assert run["outputs"]["result"] == [[[5, 20, 20, 20], [6, 24, 24, 24]], [5, 6]]


def test_a_playbook_may_be_the_first_and_the_last_of_the_list():
    run = ran_once(
        newer("""
    workflow:
      - step: work
        tool: [{kind: playbook, path: twice, return_step: twice, input: {n: 3}}]
    """)
    )

    assert run["outputs"]["result"] == {"n": 6, "results": {"task_0": {"n": 6}}}


@pytest.mark.parametrize("broken", [0, 2])
def test_a_failure_in_any_part_leads_where_the_arcs_of_the_step_say(broken: int):
    tools = ["{kind: noop}", "{kind: playbook, path: twice, return_step: twice}", "{kind: noop}"]
    tools[broken] = "{kind: shell, cmds: ['exit 3']}"
    text = newer(f"""
    workflow:
      - step: work
        tool: [{", ".join(tools)}]
        next: {{arcs: [{{step: mend, when: "{{{{ output.status == 'error' }}}}"}}, {{step: after}}]}}
      - {{step: mend, tool: {{kind: noop}}}}
      - {{step: after, tool: {{kind: noop}}}}
    """)

    run = ran_once(text)

    assert run["status"] == "completed"
    assert statuses(run)["mend"] == "completed" and "after" not in statuses(run)


def test_the_first_part_of_a_list_is_where_other_steps_lead():
    found = steps(
        newer("""
    workflow:
      - {step: a, tool: {kind: noop}, next: {arcs: [{step: work}]}}
      - {step: work, tool: [{kind: noop}, {kind: playbook, path: twice, return_step: twice}]}
    """)
    )

    links = {name: step.get("next") for name, step in found.items()}
    assert links == {
        "a": ["work_1"],
        "work_1": ["work_2"],
        "work_2": ["work_2_done"],
        "work_2_done": ["work"],
        "work": None,
    }


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        (
            "[{kind: playbook, path: twice, spec: {policy: {rules: [{else: {then: {do: fail}}}]}}}]",
            "a playbook in a list of tools cannot have rules",
        ),
        (
            "[{kind: noop, spec: {policy: {rules: [{else: {then: {do: break}}}]}}}, {kind: playbook, path: twice}]",
            "a list of tools with a playbook cannot jump or break",
        ),
    ],
)
def test_rules_that_would_leave_their_part_are_refused(tools: str, message: str):
    said = refused(newer(f"workflow: [{{step: a, tool: {tools}}}]"))

    assert message in said and "write the playbook as a separate step" in said
