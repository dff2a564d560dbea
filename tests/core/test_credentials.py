"""Text that looks like a credential is hidden in failure contexts and from agents; other text is not."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.nightly import sample

from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model.artifacts import describe_artifact, make_reference
from mulligan.core.model.failure import MESSAGE_CHARS_MAX, failure
from mulligan.core.model.failure_context import FailedSource, UpstreamOutput, assemble, failure_context
from mulligan.core.model.text.credential_patterns import CREDENTIALS, HIDDEN, hide_at_ends, hide_credentials, hide_in
from mulligan.core.model.workflow import Action, Template
from mulligan.testing.history import History, edge, expression, retry, step, workflow

pytestmark = pytest.mark.one_by_one

T = datetime(2026, 1, 1, tzinfo=UTC)
# Written in two parts where a scanner of repositories would take them for real ones.
GITHUB, GITLAB, SLACK = "ghp_" + "a1B2" * 9, "glpat-" + "a1B2" * 5, "xoxb-" + "12345678901-abcdefghijkl"
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAx7\nabcdefghijklmnopqrstuvwxyz\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2", "password=[hidden]"),
        ("PGPASSWORD=correcthorse psql", "PGPASSWORD=[hidden] psql"),
        ('DB_PASSWORD="two words"', 'DB_PASSWORD="[hidden]"'),
        ('{"password": "letmein", "user": "bob"}', '{"password": "[hidden]", "user": "bob"}'),
        (r"{\"api_key\": \"abcdefgh\"}", r"{\"api_key\": \"[hidden]\"}"),
        ("password: hunter2", "password: [hidden]"),
        ("deploy --password s3cr3tvalue --force", "deploy --password [hidden] --force"),
        ("--token=abc123def", "--token=[hidden]"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [hidden]"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic [hidden]"),
        ("got 401 for Bearer abcdefghijklmnop1234", "got 401 for Bearer [hidden]"),
        ("Set-Cookie: session=abc; Path=/", "Set-Cookie: [hidden]"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[hidden]"),
        (f"key {AWS} is unknown", "key [hidden] is unknown"),
        (f"remote: {GITHUB}", "remote: [hidden]"),
        (f"({GITLAB})", "([hidden])"),
        (f"'{SLACK}'", "'[hidden]'"),
        (f"jwt {JWT} expired", "jwt [hidden] expired"),
        ("postgresql://bob:s3cret@db:5432/app", "postgresql://bob:[hidden]@db:5432/app"),
        ("redis://:pa/ss@host/0", "redis://:[hidden]@host/0"),
        ("AccountKey=abc+/def==;EndpointSuffix=x", "AccountKey=[hidden];EndpointSuffix=x"),
        ("https://store/x?sig=abc123def456&y=1", "https://store/x?sig=[hidden]&y=1"),
        (f"before\n{KEY}\nafter", "before\n[hidden]\nafter"),
        (r'{"password": "a\"hunter2"}', '{"password": "[hidden]"}'),
        ('login with password="hunter2', 'login with password="[hidden]'),
        ('password="hunter2\nnext', 'password="[hidden]\nnext'),
        ("password=none-of-yours", "password=[hidden]"),
        ("DB_PASS=hunter2", "DB_PASS=[hidden]"),
        ('deploy --password "s3cr3tvalue"', 'deploy --password "[hidden]"'),
        ("<password>hunter2</password>", "<password>[hidden]</password>"),
        # A cut has taken the beginning, or the end.
        (f"before\n{KEY[40:]}\nafter", "before\n[hidden]\nafter"),
        (f"before\n{KEY[:80]}", "before\n[hidden]"),
    ],
)
def test_a_credential_is_hidden_and_its_name_stays(text: str, shown: str) -> None:
    assert hide_credentials(text) == shown
    assert hide_credentials(shown) == shown


@pytest.mark.parametrize("text", ["PWD=/srv/build12", "OLDPWD=/srv/app2", 'pwd: "/srv/x1"', "3 pass=12 fail=4"])
def test_a_folder_and_a_count_are_no_passwords(text: str) -> None:
    assert hide_credentials(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "password: required",
        "enter password: ",
        "KeyError: 'password'",
        "missing 1 required positional argument: 'password'",
        'password authentication failed for user "bob"',
        "token 5 of 7",
        "token: 5 of 7",
        "unexpected token: '}'",
        "max_tokens: 4096, tokens=1500",
        "password=$PASSWORD",
        "password=${{ inputs.password }}",
        "password=****",
        "secret=None",
        "connect(password=password)",
        "token = get_token()",
        'password=os.environ["DB_PASSWORD"]',
        "primary_key=id cache_key=linux-deps-12 key=value",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "run 3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "http://localhost:8080/a@b",
        "git@github.com:org/repo.git",
        "Authorization required",
        "the bearer of bad news",
        "make: *** [Makefile:38: lint] Error 1",
        "gcc -O2 -c src/token.c -o build/token.o",
        "FAILED tests/test_secret.py::test_token[3-abc] - assert 1 == 2",
    ],
)
def test_ordinary_output_stays_as_it_is(text: str) -> None:
    assert hide_credentials(text) == text


@pytest.mark.parametrize("credential", CREDENTIALS, ids=lambda credential: credential.name)
def test_what_is_hidden_already_stays_as_it_is(credential: Any) -> None:
    assert hide_credentials(credential.example) == credential.example


@pytest.mark.parametrize(
    "piece",
    sample(
        [
            *("eyJ-", "password=", 'password="', "a://b:", "token ", "secretkeytokenpassword", "password:aaaa1 "),
            *("x_", "A"),
            *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\n", "authorization: bearer ", "a.", "--token-"),
        ],
        3,
    ),
)
def test_the_time_grows_with_the_text_and_no_faster(piece: str) -> None:
    def seconds(size: int) -> float:
        text = "password:" + piece * (size // len(piece))
        started = time.thread_time()
        hide_credentials(text)
        return time.thread_time() - started

    # The least of several: garbage of all other tests may be collected during one of them.
    small, large = (max(min(seconds(size) for _ in range(4)), 1e-4) for size in (10_000, 80_000))

    # Eight times the text: 64 times the time, were it quadratic.
    assert large / small < 30


def test_values_of_objects_are_hidden_by_their_names() -> None:
    value = {
        "password": "hunter",
        "token": "required",
        "user": "bob",
        "more": [{"clientSecret": "x"}, "pwd=y", 7, None],
    }

    hidden = {
        "password": HIDDEN,
        "token": "required",
        "user": "bob",
        "more": [{"clientSecret": HIDDEN}, "pwd=[hidden]"],
    }
    hidden["more"] += [7, None]
    assert hide_in(value) == hidden


def test_a_reference_to_an_artifact_is_left_alone() -> None:
    value = make_reference(describe_artifact("1/token=abc123/1/1/output.json", b"{}", "json"))

    assert hide_in(value) == value


def test_of_a_long_text_what_is_shown_is_hidden_and_the_rest_costs_nothing() -> None:
    text = "password=one\n" + "password=two\n" * 50_000 + "password=three"

    shown = hide_at_ends(text, 1_000)

    assert "two" not in shown[:1_000] + shown[-1_000:]
    assert "two" in shown


def test_a_long_text_full_of_credentials_is_hidden_whole() -> None:
    text = f"password={'x' * 1000}\n" * 300

    assert "x" not in hide_at_ends(text, 1_000)


# -- contexts --------------------------------------------------------------------------------------------------------


def source(message: str, **fields: Any) -> FailedSource:
    found = failure("EXIT_NONZERO", message, **fields)
    return FailedSource("a", 1, 1, 0, 0, "no_rule", found, 1, 2, T)


def test_a_failure_context_has_no_credential() -> None:
    cause = failure("EXIT_NONZERO", "x " * 200 + "password=inner")

    told = failure_context(1, "fix", [source("password=hunter2", cause=(cause,))])

    assert "hunter2" not in told and "inner" not in told
    assert "password=[hidden]" in told


def test_the_switch_shows_them() -> None:
    assert "password=hunter2" in failure_context(1, "fix", [source("password=hunter2")], hides=False)


def test_it_is_hidden_before_it_is_cut() -> None:
    """A cut in the middle of a token would leave half of it, which no pattern knows."""
    for before in range(5_900, 6_100, 7):
        content = "." * before + f" {GITHUB} " + "." * 20_000
        told = assemble(1, "fix", upstream=[UpstreamOutput("a", 1, 1, 1, 2, T, content)]).text
        assert "ghp_" not in told


def test_the_first_word_of_a_message_that_was_cut_is_not_shown() -> None:
    message = ("a1B2" * 5 + " said " + "x " * 2000)[:MESSAGE_CHARS_MAX]
    assert len(message) == MESSAGE_CHARS_MAX

    told = failure_context(1, "fix", [source(message)])

    assert "a1B2" not in told and "[...] said x" in told


# -- runs ------------------------------------------------------------------------------------------------------------

AGENT = Action(
    "agent", {"provider": "p", "prompt": {"${}": "P"}}, {"P": Template(("fix: ", expression("e", "failure")))}
)


def routed(action: Action, hides: bool = True) -> History:
    flow = workflow(
        step("a", next=[edge("fix", "failure")]), step("fix", action=action, rules=retry(1)), hide_credentials=hides
    )
    run = History(flow, {"e": lambda names: names["failure"]["message"]}).start()
    return run.fail("a", stderr_tail="login with password=hunter2 failed")


def test_an_agent_is_told_no_credential_in_its_prompt() -> None:
    run = routed(AGENT)

    assert run.facts(e.AttemptScheduled)[-1].bindings == {"P": "fix: login with password=[hidden] failed"}
    assert "hunter2" not in str(make_task(run.state, "fix").context)


def test_a_shell_command_gets_the_message_as_it_is() -> None:
    action = Action("shell", {"text": "x"}, {"P": Template((expression("e", "failure"),))})

    run = routed(action)

    assert run.facts(e.AttemptScheduled)[-1].bindings == {"P": "login with password=hunter2 failed"}
    assert "hunter2" not in make_task(run.state, "fix").context


def test_a_workflow_can_turn_it_off() -> None:
    run = routed(AGENT, hides=False)

    assert "hunter2" in run.facts(e.AttemptScheduled)[-1].bindings["P"]
    assert "hunter2" in make_task(run.state, "fix").context
    assert make_task(run.state, "fix").agent_context.hides is False


def test_the_summary_for_the_next_attempt_of_an_agent_has_no_credential() -> None:
    run = routed(AGENT).fail("fix", stderr_tail="token=abc123def456 was refused")

    summary = run.facts(e.AttemptScheduled)[-1].summary
    assert "token=[hidden] was refused" in summary


def test_secrets_that_the_workflow_hands_to_an_agent_stay_references() -> None:
    template = Template(("password=", expression("secrets.db", "secrets.db"), " after ", expression("e", "failure")))
    run = routed(Action("agent", {"provider": "p", "prompt": {"${}": "P"}}, {"P": template}))

    bound = run.facts(e.AttemptScheduled)[-1].bindings["P"]
    assert bound == {"${}": ["password=", {"secret": "secrets.db"}, " after ", "login with password=[hidden] failed"]}
