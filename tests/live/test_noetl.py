"""The action `noetl`, live: its retries are the engine's, its routes are edges, and it tells nobody's secret."""

from __future__ import annotations

import signal

import pytest
from tests.support.runner import Live, wait_until

from mulligan.core.model import events as e

from .test_secrets import FORMS, SECRET, kept

# Each visit of `call` fails twice, and a rule allows three calls in all. `MULLIGAN_RETRY` counts within the visit.
VISITS = """
name: visits
steps:
  - step: call
    noetl:
      tool:
        kind: python
        code: |
          tries = int(os.environ.get('MULLIGAN_RETRY', 0))
          if tries < 2:
              raise ConnectionError('not yet')
          result = {'tries': tries, 'visit': int(os.environ['MULLIGAN_VISIT'])}
        spec:
          policy:
            rules:
              - when: "{{ output.error.kind == 'connection' }}"
                then: {do: retry, attempts: 3, delay: 0.01, backoff: linear}
      set: {ctx.pages: "{{ ctx.pages | default([]) + [result.visit] }}"}
      seen: {call: "${steps.call.output}"}
      next:
        arcs:
          - {step: call, when: "{{ result.visit < 3 }}"}
          - {step: done}
    retry: {max_retries: 2, delay: 0s}
    next:
      - {to: call, when: "'call' in output.next"}
      - {to: done, when: "'done' in output.next"}
  - step: done
    noetl: {render: "{{ ctx.pages }}", seen: {call: "${steps.call.output}"}}
"""


def test_a_rule_has_its_calls_anew_with_every_visit_and_what_was_set_grows(live_file: Live) -> None:
    ran = live_file.run(VISITS)

    assert ran.status == "completed"
    assert ran.steps["call"]["attempts"] == 9
    assert ran.steps["call"]["output"]["result"] == {"tries": 2, "visit": 3}
    assert ran.steps["done"]["output"]["result"] == [1, 2, 3]
    scheduled = ran.entries(e.RetryScheduled, place="call")
    delays = [round((entry.fact.due - entry.at).total_seconds(), 3) for entry in scheduled]  # type: ignore[attr-defined]
    assert delays == [0.01, 0.02] * 3


LOST = """
name: lost
steps:
  - step: call
    noetl:
      tool:
        kind: python
        code: |
          if os.environ['MULLIGAN_ATTEMPT'] == '2':
              os.kill(os.getppid(), 9)
              time.sleep(60)
          if int(os.environ.get('MULLIGAN_RETRY', 0)) < 2:
              raise ConnectionError('not yet')
          result = 'here'
        libs: {time: time}
        spec: {policy: {rules: [{when: "{{ output.error }}", then: {do: retry, attempts: 3}}]}}
    retry: {max_retries: 2, delay: 0s}
"""


def test_a_call_whose_worker_is_lost_is_none_of_those_that_a_rule_allows(live: Live) -> None:
    ran = live.run(LOST)

    assert (ran.steps["call"]["attempts"], ran.steps["call"]["output"]["result"]) == (4, "here")
    assert [fact.attempt for fact in ran.facts(e.AttemptLost)] == [2]


EXHAUSTED = """
name: exhausted
steps:
  - step: call
    noetl:
      tool:
        kind: shell
        cmds: [exit 3]
        spec: {policy: {rules: [{when: "{{ output.error.exit_code == 3 }}", then: {do: retry, attempts: 2}}]}}
    retry: {max_retries: 9, delay: 0s}
    next: {to: call_on_error, on: failure}
  - step: call_on_error
    noetl:
      name: call
      failure: ${failure}
      next: {arcs: [{step: never}, {step: mend, when: "{{ error.exit_code == EXIT }}"}]}
    next: {to: mend, when: "'mend' in output.next"}
  - {step: mend, noetl: {}}
"""


@pytest.mark.parametrize(("exit_code", "status"), [(3, "completed"), (4, "failed")])
def test_a_failure_is_handled_where_an_arc_speaks_of_it_and_nowhere_else(
    live_file: Live, exit_code: int, status: str
) -> None:
    ran = live_file.run(EXHAUSTED.replace("EXIT", str(exit_code)))

    assert ran.status == status
    assert ran.steps["call"]["attempts"] == 2
    assert ran.steps["mend"]["status"] == ("completed" if status == "completed" else "skipped")
    failures = {failure["step"]: failure["code"] for failure in ran.shown["failures"]}
    assert failures == {"call": "EXIT_NONZERO"} | ({} if status == "completed" else {"call_on_error": "EXIT_NONZERO"})


# Wherever a playbook puts what it knows: into its log, its result, what it sets, what it raises, a name of its own.
TELLING = """
name: telling
fail_fast: never
secrets: {token: {env: DEPLOY_TOKEN}}
steps:
  - step: tell
    noetl:
      tool:
        kind: python
        code: "print(key)\\nresult = {'key': key, 'in': 'a' + key + 'b'}"
        input: {key: "{{ keychain.token }}"}
      set: {ctx.key: "{{ keychain.token }}"}
      auth: {token: "${secrets.token}"}
  - step: fail
    noetl:
      tool: {kind: python, code: "raise ValueError(key)", input: {key: "{{ keychain.token }}"}}
      auth: {token: "${secrets.token}"}
  - step: shell
    noetl:
      tool: {kind: shell, cmds: ['echo "$KEY"; echo "$KEY" >&2; exit 1'], env: {KEY: "{{ keychain.token }}"}}
      auth: {token: "${secrets.token}"}
  - step: undefined
    noetl: {render: "{{ keychain.token.field }}", auth: {token: "${secrets.token}"}}
  - step: secret
    noetl: {tool: {kind: secrets, name: token}, auth: {token: "${secrets.token}"}}
  - step: later
    needs: [secret]
    noetl:
      render: "{{ secret.value | length }}"
      seen: {secret: "${steps.secret.output}"}
      auth: {token: "${secrets.token}"}
"""


def test_no_byte_of_a_credential_is_kept(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)

    ran = live.run(TELLING)

    assert ran.steps["tell"]["output"]["result"] == {"key": "***", "in": "a***b"}
    assert ran.steps["later"]["output"]["result"] == len(SECRET)
    assert {name for name, step in ran.steps.items() if step["status"] == "failed"} == {"fail", "shell", "undefined"}
    everything = b"\n".join(kept(live))
    assert everything
    assert [form for form in FORMS if form.encode() in everything] == []


# Each step is killed once, in the middle, and tried again; the last one fails. A file has a line per part that ran.
KILLED = """
name: killed
steps:
  - step: pipeline
    noetl:
      tool:
        - {name: one, kind: shell, cmds: ["echo one >> pipeline; echo first"]}
        - name: flaky
          kind: shell
          cmds: ["echo flaky >> pipeline; [ $(grep -c flaky pipeline) -gt 1 ]"]
          spec:
            policy:
              rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2, set: {ctx.n: 7}}}]
        - name: two
          kind: python
          code: |
            open('pipeline', 'a').write('two\\n')
            if os.environ['MULLIGAN_ATTEMPT'] == '1':
                os.kill(os.getpid(), 9)
            result = {'two': 2}
        - name: three
          kind: shell
          cmds: ["echo three >> pipeline; echo '{{ one.stdout | trim }} {{ two.two }} {{ ctx.n }}'"]
    retry: 1
  - step: pages
    noetl:
      tool:
        kind: python
        args: {page: 1}
        code: |
          open('pages', 'a').write(f'{page}\\n')
          if page == 3 and os.environ['MULLIGAN_ATTEMPT'] == '1':
              os.kill(os.getpid(), 9)
          result = {'data': [page], 'more': page < 3}
        pages:
          - when: "{{ response.more }}"
            next_call: {args: {page: "{{ response.data[0] + 1 }}"}}
            collect: {strategy: append, path: data}
            sink: {kind: shell, cmds: ["echo 'kept {{ response.data[0] }}' >> pages"]}
    retry: 1
  - step: sinks
    noetl:
      tool: {kind: shell, cmds: ["echo asked >> sinks"]}
      cases:
        - when: "{{ event.name == 'call.done' }}"
          then:
            - sink:
                - {kind: duckdb, table: kept, data: {n: 1}, database: kept.duckdb}
                - kind: python
                  code: "os.environ['MULLIGAN_ATTEMPT'] != '1' or os.kill(os.getpid(), 9)"
    needs: [table]
    retry: 1
  - step: table
    noetl: {tool: {kind: duckdb, command: create table kept (n integer), database: kept.duckdb}}
  - step: failed
    noetl:
      tool:
        - {kind: shell, cmds: ["echo one >> failed"]}
        - {kind: shell, cmds: ["[ $MULLIGAN_ATTEMPT -gt 1 ]"], input: {}}
    retry: 1
"""


@pytest.mark.nightly
def test_a_killed_attempt_goes_on_after_the_last_part_that_ended_and_a_failed_one_begins_anew(live_file: Live) -> None:
    ran = live_file.run(KILLED)
    parts = {
        name: (live_file.folder / name).read_text().split("\n")[:-1]
        for name in ("pipeline", "pages", "sinks", "failed")
    }

    assert ran.status == "completed", ran.shown["failures"]
    assert parts["pipeline"] == ["one", "flaky", "flaky", "two", "two", "three"]
    assert ran.steps["pipeline"]["output"]["result"]["stdout"] == "first 2 7\n"
    assert parts["pages"] == ["1", "kept 1", "2", "kept 2", "3", "3", "kept 3"]
    assert ran.steps["pages"]["output"]["result"]["data"] == [1, 2, 3]
    assert parts["sinks"] == ["asked"]
    assert parts["failed"] == ["one", "one"]


def test_a_pipeline_goes_on_where_its_worker_was_killed(live_file: Live) -> None:
    live_file.write(
        "flow.yaml",
        """
        name: lost
        steps:
          - step: a
            noetl:
              tool:
                - {kind: shell, cmds: [echo one >> done]}
                - {kind: shell, cmds: ["[ -e there ] || { touch there; exec sleep 100; }"]}
                - {kind: shell, cmds: [echo three >> done]}
        """,
    )
    with live_file.process("run", "flow.yaml") as process:
        wait_until((live_file.folder / "there").exists)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    ran = live_file.resume(1)

    assert ran.status == "completed"
    assert (live_file.folder / "done").read_text() == "one\nthree\n"
