"""What must not be found: workflows that are fine, and codes that can happen after all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.service.authoring.area import Workflows


def codes_in(folder: Path, text: str) -> set[str]:
    path = folder / "flow.yaml"
    path.write_text(text, encoding="utf-8")
    return {finding.code for finding in Workflows.play(path).cover(pairs=False).findings}


FINE = {
    "a shell step that reports its own codes": """
steps:
  - step: a
    shell: |
      ./a.sh || echo '{"code": "HTTP_5XX"}' > "$MULLIGAN_ERROR"
    retry: {rules: [{codes: [HTTP_5XX]}]}
""",
    "a python step may raise any code": """
steps:
  - step: a
    python: {call: "package:function"}
    retry: {rules: [{codes: [HTTP_5XX, CONNECTION, TIMEOUT, OUTPUT_MISSING]}]}
""",
    "exceptions that Python code may raise": """
steps:
  - step: a
    python: {call: "package:function"}
    retry: {rules: [{codes: [TIMEOUT]}, {exceptions: [ConnectionResetError]}, {exceptions: [OSError, httpx.HTTPError]}]}
""",
    "a policy that fits one of the steps that share it": """
retry_policies: {io: {rules: [{codes: [TIMEOUT], max_retries: 2}, {codes: [HTTP_5XX]}]}}
steps:
  - {step: a, shell: ./a.sh, retry: io, timeout: 1m}
  - {step: b, http: {url: "https://x.example"}, retry: io}
""",
    "a command of items has the time of its item": """
steps:
  - step: a
    map: {over: [1, 2], item_timeout: 5m}
    retry: {rules: [{codes: [TIMEOUT]}]}
    do: [{shell: ./a.sh}]
""",
    "a rule that says not to retry": """
steps:
  - {step: a, shell: ./a.sh, retry: {rules: [{exit_codes: [2], max_retries: 0}, {any: true}]}}
  - {step: b, needs: [a], shell: ./b.sh}
""",
    "narrow routes before a wide one": """
steps:
  - step: a
    shell: ./a.sh
    timeout: 1m
    next:
      - {to: late, on: failure, codes: [TIMEOUT]}
      - {to: eleven, on: failure, exit_codes: [11]}
      - {to: other, on: failure, codes: [EXIT_NONZERO]}
      - {to: rest, on: failure}
      - {to: alert, on: failure, handles: false}
  - {step: late, shell: ./late.sh}
  - {step: eleven, shell: ./eleven.sh}
  - {step: other, shell: ./other.sh}
  - {step: rest, shell: ./rest.sh}
  - {step: alert, shell: ./alert.sh}
""",
    "a route for when the visits of a repair are spent": """
steps:
  - step: a
    shell: ./a.sh
    next:
      - {to: repair, on: failure, then: rerun}
      - {to: give_up, on: failure}
  - {step: repair, shell: ./repair.sh}
  - {step: give_up, shell: ./give-up.sh}
""",
    "a loop of a certain length": """
steps:
  - step: a
    shell: ./a.sh
    max_visits: 3
    next:
      - {to: a}
      - {to: b, on: failure, codes: [LOOP_LIMIT]}
  - {step: b, shell: ./b.sh}
""",
    "a refused approval goes back to the author": """
steps:
  - {step: write, agent: Write it., retry: 1, next: review}
  - step: review
    approve: Is it good?
    next: [{to: publish}, {to: improve, on: failure}]
  - {step: improve, agent: Improve it., retry: 1, next: write}
  - {step: publish, shell: ./publish.sh}
""",
    "a best-effort command beside one that counts": """
steps:
  - step: a
    shell: ./a.sh
    on_failure: [{shell: ./notify.sh, continue_on_error: true}, ./restore.sh, rm -rf scratch || true]
""",
    "a cleanup may fail": """
steps:
  - {step: a, shell: ./a.sh, on_failure: {strategy: cleanup, shell: ./clean.sh || true}}
""",
    "an approval in a workflow that a person starts": """
steps:
  - {step: ask, approve: Shall we?}
  - {step: go, needs: [ask], shell: ./go.sh}
""",
    "a reader that asks for an output": """
steps:
  - {step: a, shell: ./a.sh, continue_on_error: true}
  - step: b
    needs: [a]
    shell: |
      echo ${steps.a.output != null ? steps.a.output : "nothing"}
""",
    "post requests, which have a key by themselves": """
steps:
  - {step: a, http: {method: POST, url: "https://x.example", json: {}}, retry: 3}
""",
    "a lock that a rejected request does not take": """
steps:
  - step: a
    shell: curl -X POST https://x.example
    retry: {rules: [{codes: [NO_CAPACITY]}]}
""",
    "the last steps may fail": """
steps:
  - {step: a, shell: ./a.sh, on_failure: ./b.sh}
  - {step: b, needs: [a], shell: ./b.sh}
  - {step: always, needs: [{step: b, on: always}], shell: ./c.sh}
""",
}


@pytest.mark.parametrize("name", FINE)
def test_nothing_is_found_in_a_workflow_that_is_fine(name: str, tmp_path: Path) -> None:
    assert codes_in(tmp_path, FINE[name]) == set()


def test_only_failures_that_can_happen_to_a_step_are_played(tmp_path: Path) -> None:
    text = """
steps:
  - {step: request, http: {url: "https://x.example"}, retry: {rules: [{exit_codes: [3]}, {codes: [HTTP_429]}]}}
  - {step: query, sql: {connection: "sqlite:///x.db", query: select 1}}
  - {step: code, python: {call: "package:function"}}
  - {step: text, shell: ./x.sh, retry: {rules: [{codes: [HTTP_5XX, SIGNALED]}, {exit_codes: [3]}]}}
"""
    path = tmp_path / "flow.yaml"
    path.write_text(text, encoding="utf-8")
    coverage = Workflows.play(path).cover(pairs=False)
    everybody = {"WORKER_LOST", "OUT_OF_MEMORY", "cancel", "kill"}

    played: dict[str, set[str]] = {}
    for cell in coverage.cells:
        played.setdefault(cell.step, set()).add(cell.failure)

    assert {step: names - everybody for step, names in played.items()} == {
        "request": {"HTTP_5XX", "HTTP_4XX", "HTTP_429", "CONNECTION"},
        "query": {"CONNECTION"},
        "code": {"EXCEPTION"},
        "text": {"EXIT_NONZERO", "SIGNALED", "exit 3"},
    }
