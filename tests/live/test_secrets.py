"""No byte of a secret is kept: whatever the steps of a run do with it, and wherever one looks afterwards."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import psycopg
import pytest
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e
from mulligan.service.rendering.json_output import to_json
from mulligan.worker.secrets.redactor import Redactor

SECRET = 'hunter2/never "told" +é'
FORMS = {
    SECRET,
    json.dumps(SECRET)[1:-1],
    json.dumps(SECRET, ensure_ascii=False)[1:-1],
    quote(SECRET),
    quote(SECRET, safe=""),
    quote_plus(SECRET),
    # What of its base64 is the same whatever follows it, behind none, one and two other bytes.
    *(base64.b64encode(bytes(before) + SECRET.encode()).decode()[2 * before : -4] for before in range(3)),
}


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    # Whatever the terminal of the tests is set to, a server on this machine is asked directly.
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that answers with all that it was asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = json.dumps({"path": self.path, "headers": dict(self.headers), "body": body}).encode()
        self.send_response(500 if self.path.startswith("/no") else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(asked)))
        self.end_headers()
        self.wfile.write(asked)

    def log_message(self, *_: object) -> None:
        pass


LEAKY = """
name: leaky
inputs: {url: {type: string}}
secrets: {token: {env: DEPLOY_TOKEN}}
defaults: {retry: 0, env: {TOKEN: "${secrets.token}"}}
steps:
  - {step: printed, shell: 'printf %s "$TOKEN"; printf %s "$TOKEN" >&2'}
  - {step: split, shell: 'for i in $(seq 0 ${#TOKEN}); do printf %s "${TOKEN:$i:1}"; done'}
  - {step: spelled, shell: 'printf %s "user:$TOKEN" | base64', next: told}
  - {step: told, shell: "echo ${steps.spelled.output}"}
  - step: as_json
    shell: 'python3 -c "import json, os; print(json.dumps({os.environ[\\"TOKEN\\"]: [os.environ[\\"TOKEN\\"]]}))"'
    capture: json
  - step: written
    shell: 'python3 -c "import json, os; print(json.dumps(os.environ[\\"TOKEN\\"]))" > "$MULLIGAN_OUTPUT"'
  - {step: reported, shell: 'echo "{\\"code\\": \\"MINE\\", \\"message\\": \\"$MY\\"}" > "$MULLIGAN_ERROR"',
     env: {MY: "it was ${secrets.token}"}, continue_on_error: true}
  - step: raised
    python: |
      def main(token):
          raise ValueError(f"{token} is wrong")
    args: {token: "${secrets.token}"}
    on_failure: {shell: "echo ${error.message}; echo ${error.trace} >&2"}
  - {step: retried, shell: 'echo "$TOKEN" >&2; exit 9', continue_on_error: true,
     retry: {rules: [{any: true, max_retries: 1, delay: 0s, recovery_script: 'echo "$TOKEN"; exit 4'}]}}
  - {step: late, shell: 'echo "$TOKEN" >&2; sleep 1000', timeout: 300ms, continue_on_error: true}
  - step: routed
    shell: 'echo "it was $TOKEN" >&2; exit 3'
    next: [{to: fix, on: failure}]
  - {step: fix, shell: 'cat "$MULLIGAN_FAILURE_CONTEXT"; echo ${failure.message}'}
  - step: items
    map: {over: [1, 2], as: item, on_item_failure: collect}
    do: ['echo ${item} "$TOKEN"; [ ${item} = 1 ] || { echo "$TOKEN" >&2; exit 5; }']
  - {step: saved, shell: 'printf %s "$TOKEN" > saved.txt'}
  - {step: shown, needs: [saved], shell: cat saved.txt}
  - {step: called, needs: [saved], workflow: {file: child.yaml}}
  - step: asked
    http:
      method: POST
      url: "${inputs.url}/x?token=${secrets.token}"
      headers: {Authorization: "Bearer abcd", X-Key: "${inputs.url}"}
      json: {token: "${secrets.token}"}
  - {step: refused, http: {method: POST, url: "${inputs.url}/no", body: "${secrets.token}"}, continue_on_error: true}
  - {step: fed, shell: cat, stdin: "${secrets.token}"}
  - {step: large, shell: 'for i in $(seq 5000); do echo "$i $TOKEN"; done'}
  - {step: parked, shell: 'echo "$TOKEN" >&2; exit 7', triage: true}
outputs: {shown: "${steps.shown.output}"}
"""
CHILD = """
name: child
steps: [{step: shown, shell: cat saved.txt}]
outputs: {it: "${steps.shown.output}"}
"""


def test_whatever_the_steps_of_a_run_do_with_a_secret_no_byte_of_it_is_kept(live: Live, echo: str) -> None:
    live.write("child.yaml", CHILD)

    ran = live.run(LEAKY, inputs={"url": echo})

    assert (ran.status, ran.exit_code) == ("running", 4)
    assert statuses(ran) == {
        **dict.fromkeys(ran.steps, "completed"),
        **dict.fromkeys(("reported", "retried", "late", "routed", "refused"), "failed"),
        **dict.fromkeys(("parked",), "pending_failed"),
    }
    assert ran.steps["printed"]["output"] == "***"
    assert ran.steps["split"]["output"] == "***"
    assert ran.steps["told"]["output"].startswith("dXNlcj***")
    assert ran.steps["as_json"]["output"] == {"***": ["***"]}
    assert ran.steps["raised"]["output"] == "ValueError: *** is wrong"
    assert "it was ***" in ran.steps["fix"]["output"]
    assert ran.steps["shown"]["output"] == "***"
    assert ran.steps["called"]["output"] == {"it": "***"}
    assert ran.steps["asked"]["output"]["body"]["path"] == "/x?token=***"
    expect_no_secret(live, ran)
    (live.folder / "saved.txt").unlink()


EARLY = """
name: early
secrets: {token: {env: DEPLOY_TOKEN}}
steps:
  # Nothing of this run has been executed when the child prints what is in the file.
  - {step: called, workflow: {file: child.yaml}}
  - {step: after, needs: [called], shell: 'echo ${secrets.token}'}
"""


def test_a_child_run_hides_a_secret_of_its_caller_that_no_step_has_read_yet(live: Live) -> None:
    live.write("child.yaml", "name: middle\nsteps: [{step: deeper, workflow: {file: grandchild.yaml}}]\n")
    live.write("grandchild.yaml", CHILD)
    live.write("saved.txt", SECRET)

    ran = live.run(EARLY)

    assert ran.status == "completed"
    (live.folder / "saved.txt").unlink()
    everything = b"\n".join(kept(live))
    assert Redactor([SECRET]).redact_bytes(everything) == everything
    assert b"***" in everything


def statuses(ran: Ran) -> dict[str, str]:
    return {name: step["status"] for name, step in ran.steps.items()}


def expect_no_secret(live: Live, ran: Ran) -> None:
    everything = b"\n".join([*everything_shown(live, ran), *kept(live)])
    found = [form for form in FORMS if form.encode() in everything]
    assert found == []
    assert Redactor([SECRET]).redact_bytes(everything) == everything
    assert b"***" in everything


def everything_shown(live: Live, ran: Ran) -> Iterator[bytes]:
    """All that the verbs say of a run and of those that it has called."""
    yield msgspec.json.encode([ran.shown, ran.story])
    yield msgspec.json.encode(to_json(live.service.decisions.list_pending()))
    yield msgspec.json.encode(ran.log)
    for child in live.children(ran.run_id):
        yield msgspec.json.encode([child.shown, child.story, child.log])
    yield repr([live.logs(ran.run_id, step) for step in ran.steps if step != "called"]).encode()
    yield repr([live.logs(ran.run_id, "raised", "handler"), live.logs(ran.run_id, "retried", "script")]).encode()


def kept(live: Live) -> Iterator[bytes]:
    """Every byte below the home folder, and of the store where that is a server."""
    for path in live.home.folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
    if live.home.store_url:
        yield from dumped(live.home.store_url)


def dumped(url: str) -> Iterator[bytes]:
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        assert tables
        for (table,) in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield b"\n".join(map(as_bytes, row))


def as_bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()


# -- where they come from --------------------------------------------------------------------------------------------


def test_a_secret_may_be_a_variable_a_file_or_what_a_command_prints(live_file: Live) -> None:
    live_file.write("key.txt", "of-a-file\n")
    text = """
    secrets: {a: {env: DEPLOY_TOKEN}, b: {file: key.txt}, c: {command: echo of-a-command}}
    steps:
      - step: join
        shell: 'printf %s "${#A} ${#B} ${#C}"'
        env: {A: "${secrets.a}", B: "${secrets.b}", C: "${secrets.c}"}
    """

    ran = live_file.run(text)

    assert ran.steps["join"]["output"] == f"{len(SECRET)} {len('of-a-file')} {len('of-a-command')}"


def test_the_facts_of_a_run_have_references_in_the_place_of_secrets(live_file: Live) -> None:
    text = """
    secrets: {token: {env: DEPLOY_TOKEN}}
    steps: [{step: a, shell: "true", env: {WHO: "me:${secrets.token}"}}]
    """

    ran = live_file.run(text)

    [scheduled] = ran.facts(e.AttemptScheduled, place="a")
    assert scheduled.bindings == {"env.WHO": {"${}": ["me:", {"secret": "secrets.token"}]}}


def test_a_command_that_fails_is_asked_again_by_a_retry(live_file: Live) -> None:
    text = """
    secrets: {token: {command: '[ -e there ] && echo hunter2-again || { touch there; exit 3; }'}}
    steps: [{step: a, shell: 'echo ${secrets.token}', retry: {max_retries: 1, delay: 0s}}]
    """

    ran = live_file.run(text)

    assert (ran.status, ran.steps["a"]["attempts"], ran.steps["a"]["output"]) == ("completed", 2, "***")
    [failed] = ran.facts(e.AttemptFailed, place="a")
    assert failed.failure.message == "secret 'token' is not available: its command exited with code 3"


def test_a_run_on_a_server_fails_where_the_worker_has_no_such_secret(live_server: Live) -> None:
    text = "secrets: {t: {env: NOWHERE}}\nsteps: [{step: a, shell: 'echo ${secrets.t}', retry: 3}]\n"

    ran = live_server.run(text)

    failure = ran.steps["a"]["failure"]
    assert (failure["code"], ran.steps["a"]["attempts"]) == ("INPUT_INVALID", 1)
    assert (
        failure["message"]
        == "secret 't' is not available: environment variable 'NOWHERE' is not set where the worker runs"
    )


CROWD = """
name: crowd
inputs: {numbers: {type: array}}
secrets: {token: {env: DEPLOY_TOKEN}}
steps:
  - step: crowd
    map: {over: "${inputs.numbers}", as: number}
    do: [{shell: 'echo "$TOKEN"; ulimit -Sn', env: {TOKEN: "${secrets.token}"}, resources: {cpus: 0.01}}]
"""


@pytest.mark.nightly
def test_many_that_may_print_it_run_at_once_where_few_descriptors_are_given(live_file: Live) -> None:
    live_file.write("crowd.yaml", CROWD)
    command = ["bash", "-c", 'ulimit -Sn 64 && exec "$@"', "bash", sys.executable, "-m", "mulligan", "run", "--json"]

    ended = subprocess.run(
        [*command, "crowd.yaml", "-i", f"numbers={list(range(60))}"],
        cwd=live_file.folder,
        env=live_file.environment,
        capture_output=True,
        text=True,
        check=True,
    )

    [step] = json.loads(ended.stdout)["steps"].values()
    assert step["output"]["results"] == ["***\n64"] * 60
