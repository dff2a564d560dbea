"""Buttons of notices: a signed link decides once, what it was made for, with the rights that its token has now."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest
from tests.support.api_client import Client, Reply, open_client
from tests.support.commands import mulligan

from mulligan.core.model.events import AttemptStarted, StepParked
from mulligan.history.notice_text import NoticeBody
from mulligan.ports import Document, NoticeRecord
from mulligan.service.decisions.decisions import make_decision
from mulligan.service.home import Home
from mulligan.service.server.notices.buttons import PATH, make_buttons
from mulligan.service.server.notices.messages import Button, make_message
from mulligan.service.server.server_config import parse_config
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service

KEY, OLD_KEY = "k" * 40, "o" * 40
FLOW = """
name: nightly
steps:
  - {step: broken, shell: exit 3, triage: true}
  - {step: ask, approve: {message: "ship it? <b>now</b>"}, next: end}
"""
CONFIG = """
[server]
public_url = "https://mulligan.example.org"
[buttons]
key = [{key}]
[targets.ops]
webhook = "https://hooks.example.org/x"
form = "slack"
decides_as = "{token}"
"""


class Team:
    """A server whose notices to `ops` have buttons, and a run in which a step is parked and an approval asked for."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.folder = folder
        self.client = client
        self.service = Service(client.home, "a tester")
        self.configure(self.token().id)

    def token(self, **limits: Any) -> Any:
        form = TokenForm(user="ops-chat", scopes=("decide", "read"), **limits)
        return self.service.tokens.create(form).token

    def configure(self, token: str, *keys: str) -> None:
        for number, key in enumerate(keys or (KEY,)):
            (self.folder / f"key{number}").write_text(key)
        named = ", ".join(f'{{file = "{self.folder}/key{number}"}}' for number in range(len(keys or (KEY,))))
        text = CONFIG.replace("{key}", named).replace("{token}", token)
        (self.client.home.folder / "server.toml").write_text(text)

    def buttons(
        self, step: str = "ask", run_id: int = 1, age: timedelta = timedelta(0), nonce: str = ""
    ) -> list[Button]:
        """Those of the notice about a question."""
        log = self.service.reader.store.log(run_id)
        asked = [one for one in log if isinstance(one.fact, AttemptStarted | StepParked)]
        entry = [one for one in asked if step in (getattr(one.fact, "place", ""), getattr(one.fact, "step", ""))][-1]
        request = "approval" if step == "ask" else "triage"
        body = NoticeBody("needs_person", "t", entry.at, run_id, "nightly", seq=entry.seq, step=step, request=request)
        key = nonce or f"notice-{run_id}-{entry.seq}"
        notice = NoticeRecord(key, "ops", msgspec.json.encode(body), datetime.now(UTC) - age, run_id)
        return [*make_buttons(self.service.notices.config(), notice, body)]

    def link(self, answer: str, **others: Any) -> str:
        step = "ask" if answer in ("approve", "refuse") else "broken"
        (found,) = (one for one in self.buttons(**{"step": step, **others}) if one.answer == answer)
        return parse_qs(urlsplit(found.url).query)["link"][0]

    def open(self, link: str) -> Reply:
        return self.client.get(PATH, scope=None, link=link)

    def press(self, link: str, reason: str = "", client: Client | None = None) -> Reply:
        body = urlencode({"link": link, "reason": reason}).encode()
        return (client or self.client).post(PATH, body, scope=None)

    @property
    def waiting(self) -> set[str]:
        return {one.step or "" for one in self.service.decisions.list_pending()}

    def audited(self) -> list[tuple[str, str, int, str]]:
        rows = reversed(self.client.get("audit", scope="admin").json["audit"])
        return [(one["who"], one["target"], one["status"], one["why"]) for one in rows if "/decide" in one["target"]]


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW, encoding="utf-8")
    assert mulligan("run", "flow.yaml", "--wait", "0s").code != 2
    client = open_client(Home(tmp_path / ".mulligan"))
    found = Team(tmp_path, client)
    yield found
    found.service.close()
    client.close()


def test_an_opened_link_asks_and_changes_nothing(team: Team):
    shown = team.open(team.link("approve"))

    page = shown.body.decode()
    assert (shown.status, team.waiting) == (200, {"ask", "broken"})
    assert "ship it? &lt;b&gt;now&lt;/b&gt;" in page and '<form method="post" action="/decide">' in page
    assert shown.headers["referrer-policy"] == "no-referrer" and shown.headers["cache-control"] == "no-store"
    assert team.open(team.link("approve")).status == 200


@pytest.mark.parametrize(("answer", "left"), [("approve", {"broken"}), ("fail", {"ask"})])
def test_a_pressed_button_decides_and_the_audit_says_by_which_notice(team: Team, answer: str, left: set[str]):
    done = team.press(team.link(answer), "looks fine")

    assert (done.status, team.waiting) == (200, left)
    ((who, target, status, why),) = team.audited()
    assert (who, status) == ("ops-chat", 202) and target.startswith("/decide: notice to 'ops'?run_id=1&step=")
    assert why == "button of a notice to 'ops': looks fine"


def test_a_link_decides_once_and_so_do_the_buttons_beside_it(team: Team):
    approve, refuse = team.link("approve"), team.link("refuse")
    assert team.press(approve).status == 200

    assert [team.press(one).code for one in (approve, refuse)] == ["button.changed", "button.changed"]
    assert team.open(approve).code == "button.changed"


def test_a_use_that_another_server_has_written_counts(team: Team):
    link = team.link("approve")
    nonce = msgspec.json.decode(base64.urlsafe_b64decode(link.partition(".")[0] + "=="))[-1]
    in_an_hour = str(int(datetime.now(UTC).timestamp()) + 3600).encode()
    records = team.service.reader.store.server_records
    records.put_document(Document("used_button", nonce, in_an_hour, datetime.now(UTC)), expected=0)

    assert [team.open(link).code, team.press(link).code] == ["button.used"] * 2
    assert team.waiting == {"ask", "broken"}


def test_two_servers_that_get_a_link_at_once_decide_once(team: Team):
    other = open_client(team.client.home)
    link = team.link("retry")
    try:
        with ThreadPoolExecutor(2) as both:
            answers = [*both.map(lambda client: team.press(link, client=client), (team.client, other))]
    finally:
        other.close()

    assert sorted(one.status for one in answers) == [200, 409]
    assert len([row for row in team.audited() if row[2] == 202]) == 1


def changed(link: str, **fields: Any) -> str:
    """The link with other content and the signature that it had."""
    said, _, signature = link.partition(".")
    names = ("target", "project", "run_id", "seq", "step", "answer", "expires", "nonce")
    known = dict(zip(names, msgspec.json.decode(base64.urlsafe_b64decode(said + "==")), strict=True))
    data = msgspec.json.encode([*(known | fields).values()])
    return f"{base64.urlsafe_b64encode(data).decode().rstrip('=')}.{signature}"


CHANGES: list[dict[str, Any]] = [
    {"answer": "approve"},
    {"run_id": 2},
    {"step": "broken"},
    {"expires": 2**40},
    {"nonce": "x"},
    {"project": "p"},
]


def test_a_changed_link_is_refused(team: Team):
    whole = team.link("refuse")
    links = [changed(whole, **fields) for fields in CHANGES]
    links += [whole[:-1], whole + "=", whole.split(".")[0], whole.upper()]

    assert [team.press(one).code for one in links] == ["button.refused"] * len(links)
    assert [team.open(one).code for one in links] == ["button.refused"] * len(links)
    assert team.waiting == {"ask", "broken"}


def test_what_is_no_link_is_refused(team: Team):
    links = ["", ".", "a.b", "é", "x" * 9000, "bnVsbA.bnVsbA", "\x00", "[]", "W10.W10"]

    assert {team.press(one).status for one in links} <= {400, 403, 422}
    assert team.waiting == {"ask", "broken"}


def test_an_old_link_has_expired(team: Team):
    assert team.press(team.link("approve", age=timedelta(hours=25))).code == "button.expired"


def test_a_link_counts_until_its_key_is_gone(team: Team):
    token = team.service.notices.config().targets["ops"].decides_as
    team.configure(token, OLD_KEY)
    link = team.link("approve")

    team.configure(token, KEY, OLD_KEY)
    assert team.open(link).status == 200
    team.configure(token, KEY)

    assert team.press(link).code == "button.refused"


def test_a_revoked_token_ends_its_buttons_at_once(team: Team):
    link = team.link("approve")

    team.service.tokens.revoke(team.service.notices.config().targets["ops"].decides_as)

    assert team.press(link).code == "button.refused"
    assert (team.waiting, team.audited()[-1][:1]) == ({"ask", "broken"}, ("ops-chat",))


def test_a_target_without_a_token_decides_nothing_any_more(team: Team):
    link = team.link("approve")

    team.configure("")

    assert team.press(link).code == "button.refused"


@pytest.mark.parametrize(
    ("limits", "code"), [({"verdicts": ("fail",)}, "token.verdict"), ({"workflows": ("other",)}, "token.scope")]
)
def test_the_guard_rails_of_the_token_hold_and_the_link_is_not_used_up(team: Team, limits: Any, code: str):
    link = team.link("approve")
    good = team.service.notices.config().targets["ops"].decides_as
    team.configure(team.token(**limits).id)

    assert team.press(link).code == code
    team.configure(good)

    assert team.press(link).status == 200


def test_what_was_decided_elsewhere_is_said(team: Team):
    link = team.link("approve")
    team.service.changes.approve(1, "ask", is_approved=False, reason="no")

    refused = team.press(link)

    assert refused.code == "button.changed"
    assert "does not wait any more: refuse by a tester" in refused.json["detail"], refused.json


def test_a_link_of_another_question_about_the_same_step_is_refused(team: Team):
    link = team.link("retry")
    team.service.changes.decide([make_decision(run_id=1, step="broken", verdict="retry", reason="again")])
    mulligan("resume", 1, "--wait", "0s")
    assert "broken" in team.waiting

    assert team.press(link).code == "button.changed"
    assert "broken" in team.waiting


def test_a_link_is_not_in_the_audit(team: Team):
    link = team.link("approve")
    team.press(changed(link, run_id=7))
    team.press(link)

    assert link.partition(".")[2] not in repr(team.client.get("audit", scope="admin").json)


def test_messages_for_chats_have_the_buttons_and_no_markup_of_others(team: Team):
    from mulligan.service.server.notices.chat_messages import slack_body, teams_body

    body = NoticeBody(
        "needs_person", "run 1 <!channel> [x](http://y)", datetime.now(UTC), 1, request="approval", step="ask"
    )
    notice = NoticeRecord("n", "ops", msgspec.json.encode(body), datetime.now(UTC), 1)
    message = make_message(notice, buttons=lambda *_: (Button("approve", "https://a"), Button("refuse", "https://b")))

    slack, teams = msgspec.json.decode(slack_body(message)), msgspec.json.decode(teams_body(message))
    card = teams["attachments"][0]["content"]
    assert [one["url"] for one in slack["blocks"][-1]["elements"]] == ["https://a", "https://b"]
    assert [one["url"] for one in card["actions"]] == ["https://a", "https://b"]
    assert "<!channel>" not in slack["text"] and slack["blocks"][0]["text"]["type"] == "plain_text"
    assert r"\[x\](http://y)" in card["body"][0]["text"]


def test_a_notice_says_why_it_has_no_buttons(team: Team):
    (team.folder / "key0").write_text("short")
    body = NoticeBody("needs_person", "t", datetime.now(UTC), 1, request="approval", step="ask")
    notice = NoticeRecord("n", "ops", msgspec.json.encode(body), datetime.now(UTC), 1)

    message = make_message(notice, buttons=lambda *these: make_buttons(team.service.notices.config(), *these))

    assert message.buttons == ()
    assert message.text.endswith("without buttons: the key of [buttons] has less than 32 characters")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('urls = ["mailto://a"]\nform = "slack"', "are for a 'webhook'"),
        ('webhook = "https://x"\ndecides_as = "t"', "'decides_as' is for the forms"),
        ('webhook = "https://x"\nform = "irc"', "irc"),
    ],
)
def test_targets_that_cannot_have_buttons_are_refused(table: str, problem: str):
    with pytest.raises(Exception, match=problem):
        parse_config(f"[targets.ops]\n{table}\n")
