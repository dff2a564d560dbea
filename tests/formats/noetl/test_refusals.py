"""Playbooks that are refused, and what is said about those that are taken. The table is `refusals.txt`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .playbooks import newer, older, refused, warned, written

TABLE = Path(__file__).with_name("refusals.txt")


def rows() -> list[tuple[str, str, str]]:
    """`=== what it is for`, the playbook, `--- refused`, what is said."""
    blocks = re.split(r"^=== ", TABLE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return [(purpose, text, said) for purpose, text, said in map(parts, blocks)]


def parts(block: str) -> tuple[str, str, str]:
    purpose, _, rest = block.partition("\n")
    text, _, said = rest.partition("--- refused\n")
    return purpose, text, said.strip("\n")


@pytest.mark.parametrize(("purpose", "text", "said"), [pytest.param(*row, id=row[0]) for row in rows()])
def test_a_refusal_says_where_what_and_what_to_do(purpose: str, text: str, said: str):
    assert refused(text).strip("\n") == said, purpose


CHILD = newer("""
    workload: {n: 1}
    workflow:
      - {step: only, tool: {kind: noop}}
    """)


def test_what_a_called_playbook_does_not_have_is_refused_where_it_is_named():
    written(CHILD, "child.yaml")

    said = refused("""\
apiVersion: noetl.io/v10
workflow:
  - step: a
    tool: {kind: playbook, path: child, return_step: onlu, input: {m: 2}}
""")

    assert said == (
        "error[language.unknown_step]: playbook.yaml:4:54: 'child.yaml' has no step 'onlu'\n"
        "  4 |     tool: {kind: playbook, path: child, return_step: onlu, input: {m: 2}}\n"
        "    |                                                      ^^^^ did you mean 'only'?\n"
    )


def test_an_input_that_a_called_playbook_does_not_have_is_refused_where_it_is_given():
    written(CHILD, "child.yaml")

    said = refused("""\
apiVersion: noetl.io/v10
workflow:
  - step: a
    tool: {kind: playbook, path: child, return_step: only, input: {m: 2}}
""")

    assert said == (
        "error[language.unknown_input]: playbook.yaml:4:68: 'child.yaml' has no input 'm'\n"
        "  4 |     tool: {kind: playbook, path: child, return_step: only, input: {m: 2}}\n"
        "    |                                                                    ^ add 'm: null' to its 'workload'\n"
    )


# -- warnings ----------------------------------------------------------------------------------------------------------


def warnings(text: str) -> list[str]:
    return [line.split(": ", 2)[2] for line in warned(text).splitlines() if line.startswith("warning")]


WARNED = [
    # a step that nothing leads to
    (
        newer("workflow: [{step: a, tool: {kind: noop}}, {step: b, tool: {kind: noop}}]"),
        ["nothing leads to step 'b', so it never runs and is left out"],
    ),
    # an arc behind one that always holds
    (
        newer("""
        workflow:
          - {step: a, tool: {kind: noop}, next: {arcs: [{step: b}, {step: c}]}}
          - {step: b, tool: {kind: noop}, next: {arcs: [{step: c}]}}
          - {step: c, tool: {kind: noop}}
        """),
        ["the arc to 'c' is never taken: the one to 'b' before it has no 'when'"],
    ),
    # what NoETL declares and does not do
    (
        newer("""
        workflow:
          - step: a
            spec: {policy: {admit: {}, lifecycle: {}, emit: {}}}
            tool:
              kind: python
              code: result = 1
              output: {select: []}
              spec: {policy: {rules: [{when: x, then: {do: fail}}], before: []}}
            next: {spec: {policy: {}}, arcs: [{step: b, spec: {}}]}
            output: {}
          - {step: b, tool: {kind: noop}}
        """),
        [
            "'admit' of a step's policy is not honoured",
            "'lifecycle' of a step's policy is not honoured",
            "'emit' of a step's policy is not honoured",
            "'output.select' is not honoured: the whole result is available",
            "'before' of a policy is not honoured",
            "'policy' of 'next.spec' is not honoured",
            "'spec' of an arc is not honoured",
            "'output' of a step is not honoured",
        ],
    ),
    # keys that NoETL ignores
    (
        newer("""
        workflow:
          - step: a
            needs: [b]
            output_select: [x]
            tool: {kind: http, url: x, credential: pg, retry_on: [500], assert: {}, output: {selct: 1}}
            next: {arcs: [{step: b, label: x}]}
          - step: b
            tool: {kind: python, code: "1", payload: {}, spec: {policy: {rules: [{else: {do: fail}}], x: 1}}}
        """),
        [
            "'needs' is not a key of step 'a' and is ignored",
            "'output_select' is not a key of step 'a' and is ignored",
            "'credential' is not a key of the tool 'http' of step 'a' and is ignored",
            "'retry_on' is not a key of the tool 'http' of step 'a' and is ignored",
            "'assert' is not a key of the tool 'http' of step 'a' and is ignored",
            "'selct' is not a key of 'output' and is ignored",
            "'label' is not a key of an entry of 'arcs' and is ignored",
            "'payload' is not a key of the tool 'python' of step 'b' and is ignored",
            "'else' without 'then' is taken as it is meant; NoETL skips it",
            "'x' is not a key of 'policy' and is ignored",
        ],
    ),
    (
        older("""
        workflow:
          - step: start
            tool: {kind: http, url: x, retry: {max_attempts: 2, retry_on: [500]}}
            case: [{when: "{{ true }}", then: {sink: {tool: {kind: event_log}}}, label: x}]
            next: end
        """),
        [
            "'retry_on' is not a key of 'retry' and is ignored",
            "'label' is not a key of an entry of 'case' and is ignored",
        ],
    ),
    # what cannot be allowed to fail
    (
        newer("""
        workflow:
          - step: a
            spec: {policy: {failure: best_effort}}
            tool: {kind: noop}
            next: {arcs: [{step: b, when: "{{ true }}"}]}
          - {step: b, tool: {kind: noop}}
        """),
        ["'failure: best_effort' is not honoured on a step whose arcs have conditions"],
    ),
    # of the oldest dialect
    (older("workflow: [{step: start, tool: {kind: noop}, assert: {}, next: end}]"), ["'assert' is not honoured"]),
    # of the file
    (
        newer("executor: {spec: {policy: {limits: {}}}}\nworkflow: [{step: a, tool: {kind: noop}}]"),
        ["'policy' of 'executor.spec' is not honoured"],
    ),
]


@pytest.mark.parametrize(("text", "said"), WARNED)
def test_what_is_not_honoured_is_said(text: str, said: list[str]):
    assert warnings(text) == said


def test_that_a_call_is_waited_for_is_said_once():
    written(CHILD, "child.yaml")

    said = warnings(
        newer("""
        workflow:
          - {step: a, tool: {kind: playbook, path: child}, next: {arcs: [{step: b}]}}
          - {step: b, tool: {kind: playbook, path: child}}
        """)
    )

    assert said == ["the step waits for the playbook that it calls; NoETL does so only with 'return_step'"]
