"""The catalogue and the schedules of a server, as the command line changes them from elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.api_client import Client, admitted, start_run

import mulligan
from mulligan.errors import (
    InputInvalid,
    LanguageError,
    MulliganError,
    RevisionMismatch,
    RunNotFinished,
    TokenRefused,
    TooManyDecisions,
    UnknownRun,
    VerdictNotAllowed,
)
from mulligan.service.home import Home
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.notices.notices import parse_notify
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.server.server_client import start_published
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.server.webhooks.webhook_forms import StartForm, WebhookForm
from mulligan.service.service import Service

from .test_damaged_runs import DAMAGES, Store

HELLO = "steps:\n  - step: hello\n    shell: echo hi\n"


@pytest.fixture
def remote(client: Client, tmp_path: Path) -> Iterator[Service]:
    """A service over the server of `client`, through a real port."""
    lock = threading.Lock()

    class Bridge(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length", 0)))
            path, _, query = self.path.partition("?")
            headers = {name.lower(): value for name, value in self.headers.items()} | {"host": "localhost"}
            with lock:
                reply = client.request(self.command, path, body=data, query=query, headers=headers, scope=None)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                if name.lower() != "content-length":
                    self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bridge)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with Service(Home(tmp_path / "elsewhere", url, token=client.secrets["admin"]), "ada") as service:
        yield service
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_is_changed_over_http_is_what_a_local_store_would_have(remote: Service, service: Service) -> None:
    done = remote.catalogue.publish("hello", HELLO, note="from afar")
    draft = remote.catalogue.put_draft("hello", HELLO + "# 2\n")
    with pytest.raises(RevisionMismatch):
        remote.catalogue.put_draft("hello", "other")
    draft = remote.catalogue.put_draft("hello", HELLO + "# 3\n", expected=None)
    remote.catalogue.publish_draft("hello", expected=draft.revision)
    put = remote.schedules.put("often", ScheduleForm("hello", every="1h"))
    paused = remote.schedules.pause("often", "for now")

    assert (done.workflow.version, done.is_new, done.workflow.published_by) == (1, True, "admin")
    assert [one.version for one in remote.catalogue.versions("hello").workflows] == [2, 1]
    assert to_json(remote.catalogue.workflow("hello", 1)) == to_json(service.catalogue.workflow("hello", 1))
    assert (put.every, put.is_paused) == (3600.0, False)
    assert paused.pause is not None
    assert (paused.pause.by, paused.pause.reason) == ("admin", "for now")
    assert to_json(remote.schedules.show("often")) == to_json(service.schedules.show("often"))
    assert remote.schedules.resume("often").pause is None
    remote.schedules.delete("often")
    assert service.schedules.all() == []


def test_webhooks_are_put_shown_and_removed_over_http(remote: Service, service: Service) -> None:
    remote.catalogue.publish("hello", HELLO)
    form = WebhookForm("shop", filter="body.ok", start=StartForm("hello"))

    put = remote.webhooks.put("shop", form)

    assert (put.path, put.filter, put.updated_by, put.revision) == ("/hooks/shop", "body.ok", "admin", 1)
    assert to_json(remote.webhooks.all()) == to_json(service.webhooks.all()) == [to_json(put)]
    assert remote.webhooks.put("shop", form, dry_run=True).dry_run
    with pytest.raises(InputInvalid, match="neither 'send' nor 'start'"):
        remote.webhooks.put("shop", WebhookForm("shop"))
    remote.webhooks.delete("shop")
    assert remote.webhooks.all() == []
    with pytest.raises(MulliganError, match="there is no webhook 'shop'"):
        remote.webhooks.show("shop")


def test_refusals_of_the_server_are_those_of_a_local_store(remote: Service) -> None:
    with pytest.raises(LanguageError) as broken:
        remote.catalogue.publish("hello", "steps:\n- step: a\n  shel: b\n")
    with pytest.raises(InputInvalid, match="cannot be the name of a workflow"):
        remote.catalogue.publish("a b", HELLO)
    remote.catalogue.publish("hello", HELLO)
    with pytest.raises(InputInvalid, match="has 2 fields"):
        remote.schedules.put("a", ScheduleForm("hello", cron="* *"))
    with pytest.raises(MulliganError, match="starts what is due by itself"):
        remote.schedules.fire_due(remote.now())

    assert broken.value.render().splitlines() == [
        "error[language.unknown_key]: hello.yaml:3:3: 'shel' is not a key of step 'a'",
        "  3 |   shel: b",
        "    |   ^ did you mean 'shell'?",
    ]


def test_tokens_are_made_and_revoked_over_http(remote: Service, service: Service) -> None:
    made = remote.tokens.create(TokenForm(user="bob", scopes=("read", "decide"), note="on call"))
    known = admitted(service, made.secret)
    revoked = remote.tokens.revoke(made.token.id)

    assert (known.user, known.scopes, known.created_by, known.note) == ("bob", ("read", "decide"), "admin", "on call")
    assert revoked.revoked_at is not None
    with pytest.raises(TokenRefused):
        admitted(service, made.secret)
    with pytest.raises(InputInvalid, match="'reed' is not a scope"):
        remote.tokens.create(TokenForm(user="bob", scopes=("reed",)))
    with pytest.raises(MulliganError, match="there is no token 'nope'"):
        remote.tokens.revoke("nope")


def test_warnings_about_a_published_text_are_those_of_a_local_check(remote: Service, service: Service) -> None:
    text = f"inputs: {{day: {{default: today}}}}\n{HELLO}"

    (there,) = remote.catalogue.publish("hello", text).warnings
    (here,) = service.catalogue.publish("other", text, file="hello.yaml").warnings

    assert (there.kind, there.code, there.source_line) == (here.kind, here.code, here.source_line)


def test_a_run_that_is_started_over_http_notifies_whom_it_was_asked_to(remote: Service, service: Service) -> None:
    remote.catalogue.publish("hello", HELLO)

    rules = parse_notify(["ops=failed"])
    run_id = start_published(remote.home, "hello", None, {}, {}, notify=rules).run_id

    with service.driving.driver() as driver:
        driver.drive(run_id)
    assert [rule.to for rule in service.reader.state(run_id).run.notify] == [("ops",)]


def test_the_python_face_starts_what_is_published_on_a_server(remote: Service, service: Service) -> None:
    remote.catalogue.publish("hello", HELLO)
    home = mulligan.connect(remote.home.store_url, token=remote.home.token)

    first = home.start("hello", labels={"why": "test"}, key="once")
    again = home.start("hello", labels={"why": "test"}, key="once")
    other = home.start("hello@1")

    assert (first.id, again.id, other.id) == (1, 1, 2)
    assert [run.id for run in home.runs(labels={"version": "1", "why": "test"})] == [1]
    with pytest.raises(InputInvalid, match="for a file"):
        home.start("hello", changed_only=True)
    with pytest.raises(MulliganError, match="no workflow 'nope' is published"):
        home.start("nope")


def test_a_proposal_over_http_is_what_a_local_one_is(remote: Service, service: Service) -> None:
    service.catalogue.publish("hello", HELLO)
    changed = HELLO.replace("hi", "hello")

    trial = remote.catalogue.propose("hello", changed, dry_run=True)
    made = remote.catalogue.propose("hello", changed, note="friendlier")

    assert to_json(trial) == to_json(service.catalogue.propose("other", changed, dry_run=True)) | {
        "name": "hello",
        "changes_version": 1,
        "would_be_version": 2,
        "diff": made.diff,
    }
    assert (made.revision, "+    shell: echo hello" in made.diff) == (1, True)
    assert service.catalogue.draft("hello").note == "friendlier"
    with pytest.raises(LanguageError):
        remote.catalogue.propose("hello", "steps: 7")


def test_a_server_says_which_guard_rail_holds(remote: Service, service: Service, client: Client) -> None:
    made = service.tokens.create(TokenForm(agent="night", verdicts=("fail",), decisions_per_hour=0))
    home = Home(remote.home.folder, remote.home.store_url, token=made.secret)
    run_id = start_run(service)

    with Service(home) as agent:
        with pytest.raises(VerdictNotAllowed):
            agent.changes.classify(run_id, "fetch", "retry", "x")
        with pytest.raises(TooManyDecisions):
            agent.changes.classify(run_id, "fetch", "fail", "x")


def test_a_run_is_removed_over_http_once_it_has_ended_or_is_damaged(remote: Service, service: Service) -> None:
    run_id = start_run(service)
    with pytest.raises(RunNotFinished):
        remote.runs.remove(run_id)
    DAMAGES["a definition of broken bytes"](Store(service.home), run_id)

    dry = remote.runs.remove(run_id, is_dry=True)
    done = remote.runs.remove(run_id)

    assert dry == done
    assert (done.run_ids, bool(done.damage)) == ([run_id], True)
    with pytest.raises(UnknownRun):
        remote.runs.remove(run_id)
