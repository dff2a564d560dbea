"""`breaker: {name, key}`: one breaker per key, with a name that is bounded and shows no credential."""

from __future__ import annotations

import pytest

from mulligan.core.effects.tasks import make_task
from mulligan.core.model.breaker_keys import KEY_CHARS_MAX, breaker_key
from mulligan.errors import ExpressionFailed
from mulligan.service.rendering.next_commands import command_for_request
from mulligan.testing.history import History

from .writing import refusal, run_of


def guard(run: History, place: str) -> str:
    found = make_task(run.state, place).guard
    assert found is not None
    return found.name


MAPPED = """
    breakers: {db: {failures: 2}}
    steps:
      - step: scan
        map: {over: [{url: "sqlite:///a"}, {url: "sqlite:///b"}, {url: "sqlite:///a"}]}
        breaker: {name: db, key: "${item.url}"}
        do: ["echo ${item.url}"]
"""


def test_the_key_on_a_map_is_evaluated_for_each_item() -> None:
    run = run_of(MAPPED)

    assert [guard(run, f"scan[{i}].0") for i in range(3)] == ["db[sqlite:///a]", "db[sqlite:///b]", "db[sqlite:///a]"]


def test_the_rules_are_those_of_the_breaker_that_is_declared() -> None:
    found = make_task(run_of(MAPPED).state, "scan[0].0").guard

    assert found is not None and found.rules.failures == 2


def test_the_key_is_no_variable_of_the_script() -> None:
    task = make_task(run_of(MAPPED).state, "scan[0].0")

    assert list(task.env.values()) == ["sqlite:///a"]


def test_a_command_of_a_handler_may_have_a_key_of_its_own() -> None:
    run = run_of(
        """
        breakers: {mail: {}}
        inputs: {host: {type: string}}
        steps:
          - step: a
            shell: x
            on_failure: {shell: notify, breaker: {name: mail, key: "${inputs.host}-${error.code}"}}
    """,
        host="north",
    )

    run.fail("a", 3)

    assert guard(run, "a.on_failure@1.0") == "mail[north-EXIT_NONZERO]"


def test_a_key_that_is_empty_fails_the_attempt() -> None:
    run = run_of(
        """
        breakers: {db: {}}
        inputs: {url: {type: string}}
        steps: [{step: a, shell: x, breaker: {name: db, key: "${inputs.url}"}}]
    """,
        url="",
    )

    assert (run["a"].failure.code, run["a"].failure.message) == ("EXPRESSION_FAILED", "the key of its breaker is empty")


def test_a_breaker_without_a_key_has_the_name_it_always_had() -> None:
    assert guard(run_of("breakers: {db: {}}\nsteps: [{step: a, shell: x, breaker: db}]"), "a") == "db"


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("eu-west", "eu-west"),
        (7, "7"),
        ({"host": "a", "port": 1}, '{"host":"a","port":1}'),
        ("postgresql://u:hunter2@h/db", "postgresql://u:[hidden]@h/db"),
        ({"password": "hunter2"}, '{"password":"[hidden]"}'),
        ("two\nlines", "two lines"),
        ("\x1b[31mred", "\\u001b[31mred"),
    ],
)
def test_a_key_is_one_line_without_credentials(value: object, key: str) -> None:
    assert breaker_key(value) == key


def test_long_keys_are_cut_and_stay_different() -> None:
    first, second = breaker_key("x" * 500 + "1"), breaker_key("x" * 500 + "2")

    assert (len(first), len(second), first != second) == (KEY_CHARS_MAX, KEY_CHARS_MAX, True)
    assert first == breaker_key("x" * 500 + "1")


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_nothing_is_no_key(value: object) -> None:
    with pytest.raises(ExpressionFailed):
        breaker_key(value)


def test_a_secret_in_a_key_is_refused() -> None:
    said = refusal("""
        secrets: {db: {env: DB}}
        breakers: {db: {}}
        steps: [{step: a, shell: x, breaker: {name: db, key: "${secrets.db}"}}]
    """)

    assert "the key of a breaker cannot contain a secret: it is part of the breaker's name" in said


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{name: dbb, key: x}", "there is no breaker 'dbb'"),
        ("{key: x}", "'name'"),
        ("{name: db}", "'key'"),
        ("{name: db, key: x, by: y}", "'by'"),
        ("[db]", "the name of a breaker or {name, key} is expected"),
        ("{name: db, key: '${nothing.x}'}", "nothing"),
    ],
)
def test_what_a_guard_may_say(written: str, said: str) -> None:
    assert said in refusal(f"breakers: {{db: {{}}}}\nsteps: [{{step: a, shell: x, breaker: {written}}}]")


def test_the_command_that_closes_it_is_quoted_for_a_shell() -> None:
    assert command_for_request(1, "breaker", "db[a b]") == "mulligan breakers --reset 'db[a b]'"
    assert command_for_request(1, "breaker", "db") == "mulligan breakers --reset db"
