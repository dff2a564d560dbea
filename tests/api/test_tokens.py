"""Tokens of a server: made, listed, revoked, checked, limited; and the audit."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.api_client import A_WORKFLOW, Client, admitted, start_run

from mulligan.core.model.reports import CancelRequested
from mulligan.errors import InputInvalid, NotFound, ScopeMissing, TokenRefused, UnknownRun
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.logins import digest_of
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service

AT = datetime(2026, 1, 1, tzinfo=UTC)


def form(user: str = "ci", *scopes: str, **fields: Any) -> TokenForm:
    return TokenForm(user, scopes or ("run",), **fields)


# -- the service -----------------------------------------------------------------------------------------------------


def test_a_secret_has_256_bits_and_is_not_in_the_store(service: Service) -> None:
    one, other = (service.tokens.create(form()) for _ in range(2))

    assert re.fullmatch(r"mul_[A-Za-z0-9_-]{43}", one.secret)
    assert one.secret != other.secret
    assert one.token.id != other.token.id
    store = b"".join(path.read_bytes() for path in service.home.folder.iterdir() if path.is_file())
    assert one.secret.encode() not in store
    assert digest_of(one.secret).encode() in store


def test_a_token_is_listed_without_its_secret_or_digest(service: Service) -> None:
    made = service.tokens.create(form("ci", "read", "decide", note="builds", workflows=("nightly",)))

    shown = to_json(service.tokens.list_tokens())

    (token,) = shown["tokens"]
    assert (token["user"], token["scopes"], token["created_by"]) == ("ci", ("read", "decide"), "a tester")
    assert (token["is_valid"], token["workflows"], token["project"]) == (True, ("nightly",), "")
    assert made.secret not in str(shown)
    assert digest_of(made.secret) not in str(shown)


def test_a_token_is_checked_by_its_secret_until_it_is_revoked(service: Service) -> None:
    made = service.tokens.create(form("ci", "run", "run"))

    checked = admitted(service, made.secret)
    revoked = service.tokens.revoke(made.token.id)
    again = service.tokens.revoke(made.token.id)

    assert (checked.user, checked.scopes) == ("ci", ("run",))
    assert revoked.revoked_at == again.revoked_at is not None
    assert not revoked.is_valid
    refusals = []
    for secret in (made.secret, "mul_wrong", "", "mul_\ud800"):
        with pytest.raises(TokenRefused) as refused:
            admitted(service, secret)
        refusals.append(refused.value.message)
    assert len(set(refusals)) == 1
    with pytest.raises(NotFound):
        service.tokens.revoke("nothing")


def test_a_token_that_has_expired_is_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    made = service.tokens.create(form(expires_in_seconds=60))
    now = service.now()
    later = now + timedelta(seconds=61)
    monkeypatch.setattr(service.tokens, "_now", lambda: later)

    with pytest.raises(TokenRefused):
        admitted(service, made.secret, later)
    assert not service.tokens.list_tokens().tokens[0].is_valid


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (form(""), "the user of a token must be one line of 1 to 100 characters"),
        (form("a\nb"), "the user of a token must be one line of 1 to 100 characters"),
        (TokenForm("ci", ()), "a token needs a scope"),
        (form("ci", "reed"), "'reed' is not a scope"),
        (form("ci", "worker", "read"), "the scope 'worker' cannot be combined with others"),
        (form("ci", "worker", workflows=("a",)), "a token of a worker has no limits"),
        (form(project="a/b"), "'a/b' is not the name of a project"),
        (form(expires_in_seconds=-1), "the expiry of a token must be in the future"),
        (form(expires_in_seconds=1e300), "the expiry of a token must be in the future"),
        (form(expires_in_seconds=float("nan")), "the expiry of a token must be in the future"),
        (form(decisions_per_hour=-1), "decisions per hour must be a number of 0 or more"),
        (form(workflows=("",)), "the name of a workflow must be one line"),
        (form(workflows=("a",) * 101), "a token may name at most 100 workflows"),
    ],
)
def test_a_token_that_cannot_be_is_refused_in_words(service: Service, wrong: TokenForm, said: str) -> None:
    with pytest.raises(InputInvalid) as refused:
        service.tokens.create(wrong)

    assert refused.value.message.startswith(said)
    assert service.tokens.list_tokens().tokens == ()


def test_a_token_of_a_project_makes_and_sees_tokens_of_this_project_only(service: Service) -> None:
    blue = service.as_user("ada", project="blue")
    service.tokens.create(form("of all", "worker", all_projects=True))
    other = service.tokens.create(form("of the first"))
    ours = blue.tokens.create(form("ours", "admin"))

    for wrong in (form(project="red"), form(all_projects=True)):
        with pytest.raises(InputInvalid):
            blue.tokens.create(wrong)
    with pytest.raises(NotFound):
        blue.tokens.revoke(other.token.id)

    assert [one.user for one in blue.tokens.list_tokens().tokens] == ["ours"]
    assert {one.user: one.project for one in service.tokens.list_tokens().tokens} == {
        "of all": None,
        "of the first": "",
        "ours": "blue",
    }
    assert admitted(service, ours.secret).project == "blue"


def test_the_service_of_a_token_shows_and_starts_runs_of_its_project(service: Service) -> None:
    first = start_run(service)
    made = service.tokens.create(form(project="blue"))
    blue = service.for_token(admitted(service, made.secret))

    with pytest.raises(UnknownRun):
        blue.runs.record(first)
    with pytest.raises(UnknownRun):
        blue.cache.get(first)
    ours = start_run(blue)

    assert (blue.by, blue.runs.record(ours).project, service.runs.record(ours).started_by) == ("ci", "blue", "ci")


def test_a_token_for_some_workflows_starts_and_changes_no_others(service: Service) -> None:
    nightly, other = start_run(service), start_run(service, A_WORKFLOW.replace("nightly", "other"))
    made = service.tokens.create(form("ci", "run", workflows=("nightly",)))
    limited = service.for_token(admitted(service, made.secret))

    limited.reader.store.put(nightly, CancelRequested(AT))
    start_run(limited)
    for refused in (
        lambda: limited.reader.store.put(other, CancelRequested(AT)),
        lambda: start_run(limited, A_WORKFLOW.replace("nightly", "other")),
    ):
        with pytest.raises(ScopeMissing):
            refused()

    assert limited.runs.record(other).workflow == "other"


# -- the routes ------------------------------------------------------------------------------------------------------


def test_a_token_is_made_listed_and_revoked_over_http(client: Client, service: Service) -> None:
    made = client.post("tokens", {"user": "ci", "scopes": ["run"], "expires_in_seconds": 60})
    listed = client.get("tokens")
    token_id = made.json["token"]["id"]
    checked = admitted(service, made.json["secret"])
    revoked = client.delete(f"tokens/{token_id}")

    assert (made.status, made.headers["cache-control"]) == (201, "no-store")
    assert (checked.user, checked.created_by) == ("ci", "admin")
    assert [one["id"] for one in listed.json["tokens"]] == [token_id]
    assert made.json["secret"] not in listed.body.decode()
    assert (revoked.status, revoked.json["is_valid"]) == (200, False)
    assert client.delete("tokens/nothing").code == "token.unknown"
    assert client.post("tokens", {"user": "ci", "scopes": ["root"]}).status == 422
    assert client.post("tokens", {"user": "ci"}).status == 422


def test_only_admin_sees_and_makes_tokens(client: Client) -> None:
    for scope in ("read", "run", "decide", "write", "worker"):
        assert client.get("tokens", scope=scope).status == 403
        assert client.post("tokens", {"user": "me", "scopes": ["admin"]}, scope=scope).status == 403
