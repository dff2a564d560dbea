"""`mulligan token`: made, listed and revoked on the command line, without a server."""

from __future__ import annotations

import json
import re

import pytest
from tests.support.commands import mulligan

from mulligan.service.service import open_service


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_token_is_made_listed_and_revoked() -> None:
    none = mulligan("token", "list")
    made = mulligan(
        "token", "create", "ci", "--scope", "run", "--scope", "decide", "--expires", "30d", "--note", "builds"
    )
    listed = mulligan("token", "list")
    token_id = listed.out.splitlines()[1].split()[0]
    revoked = mulligan("token", "revoke", token_id)

    assert "there is no token yet" in none.err
    assert re.fullmatch(r"mul_[A-Za-z0-9_-]{43}\n", made.out)
    assert made.err.startswith(f"token {token_id} for 'ci' (run, decide; valid until 2")
    assert made.out.strip() not in listed.out
    assert listed.out.splitlines()[0].split() == ["ID", "USER", "SCOPES", "PROJECT", "LIMITS", "STATUS", "NOTE"]
    assert revoked.err == f"token {token_id} of 'ci' is revoked\n"
    assert "revoked 2" in mulligan("token", "list").out
    with open_service() as service:
        audit = [(one.action, one.target, one.why) for one in service.audit.page(project=None).audit]
    assert audit == [(f"mulligan token {word}", token_id, "builds") for word in ("revoke", "create")]


def test_the_token_of_an_agent_says_its_guard_rails() -> None:
    made = mulligan("token", "create", "--agent", "night", "--may", "retry", "--min-confidence", "0.8")
    listed = mulligan("token", "list")

    limits = "may decide retry; 20 decisions an hour; at least 80% sure"
    assert f" for 'agent:night' (decide; {limits}; valid), shown this once:" in made.err
    assert f"{limits}  valid" in listed.out


def test_json_has_the_secret_once() -> None:
    made = json.loads(mulligan("token", "create", "ci", "--scope", "worker", "--all-projects", "--json").out)
    listed = mulligan("token", "list", "--json").out

    assert made["token"]["project"] is None
    assert made["secret"] not in listed
    assert json.loads(listed)["tokens"] == [made["token"]]
    assert json.loads(mulligan("token", "revoke", made["token"]["id"], "--json").out)["is_valid"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mint",), "unknown subcommand 'mint' of token"),
        (("create",), "'token create' has other arguments"),
        (("list", "ci"), "'token list' has other arguments"),
        (("revoke", "x", "--scope", "run"), "'token revoke' has other arguments"),
        (("revoke", "x"), "there is no token 'x'"),
        (("create", "ci"), "a token needs a scope"),
        (("create", "ci", "--scope", "reed"), "'reed' is not a scope"),
        (("create", "hook:shop", "--scope", "run"), "'hook:shop' is the name of a webhook"),
        (("create", "ci", "--agent", "night"), "'token create' has other arguments"),
        (("create", "--agent", "night", "--may", "retri"), "unknown verdict 'retri' of a token"),
        (("create", "--agent", "night", "--min-confidence", "high"), "'high' is not a number"),
        (("list", "--agent", "night"), "'token list' has other arguments"),
        (("create", "ci", "--scope", "run", "--expires", "soon"), "'soon' is not a duration"),
        (
            ("create", "ci", "--scope", "run", "--project", "a", "--all-projects"),
            "--all-projects and --project cannot be combined",
        ),
    ],
)
def test_wrong_words_are_refused(words: tuple[str, ...], said: str) -> None:
    refused = mulligan("token", *words)

    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
