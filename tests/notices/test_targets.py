"""Targets: which are refused, where their secrets are found, and how long and how often they are sent to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan.errors import InputInvalid
from mulligan.service.server.notices.targets import SecretSource, Target, check_name, signing_key

LONGEST = "https://example.org/" + "x" * 3980


def target(**fields: Any) -> Target:
    return msgspec.convert(fields, Target)


def refused(**fields: Any) -> str:
    with pytest.raises(msgspec.ValidationError) as caught:
        target(**fields)
    return str(caught.value)


def test_a_target_is_sent_to_for_a_day_and_waited_for_ten_seconds_unless_it_says_otherwise() -> None:
    hook = target(webhook="https://example.org")

    assert (hook.give_up_seconds, hook.timeout_seconds, hook.secrets) == (86_400.0, 10.0, ())
    assert target(webhook="http://example.org", give_up_after="2h").give_up_seconds == 7200.0
    assert target(webhook="http://a", secret={"env": "A"}).secrets == (SecretSource(env="A"),)
    assert target(webhook="http://a", secret=[{"env": "A"}, {"file": "b"}]).secrets == (
        SecretSource(env="A"),
        SecretSource(file="b"),
    )


def test_a_place_of_a_secret_with_a_word_that_nobody_knows_is_refused() -> None:
    assert refused(webhook="https://a", secret={"env": "A", "fiel": "b"}).startswith(
        "Object contains unknown field `fiel`"
    )


def test_the_limit_of_messages_a_minute_may_be_set_for_both_kinds() -> None:
    assert target(urls=["json://a"], per_minute=0).messages_per_minute == 0
    assert target(webhook="https://a", per_minute=3).messages_per_minute == 3
    assert "per_minute" in refused(webhook="https://a", per_minute=-1)


@pytest.mark.parametrize("seconds", [0, 301])
def test_a_time_limit_is_more_than_nothing_and_at_most_five_minutes(seconds: int) -> None:
    assert target(webhook="https://a", timeout_seconds=300).timeout_seconds == 300
    assert "timeout_seconds" in refused(webhook="https://a", timeout_seconds=seconds)


@pytest.mark.parametrize("address", ["https://", "example.org", "http://[", "file:///etc/passwd"])
def test_what_is_no_address_of_a_webhook_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_TEST_HOOK", address)

    assert refused(webhook=address).startswith("'webhook' is an address that begins with https:// or http://")
    with pytest.raises(InputInvalid) as found:
        target(webhook={"env": "MULLIGAN_TEST_HOOK"}).webhook_url()
    assert found.value.message == (
        "the environment variable MULLIGAN_TEST_HOOK: 'webhook' is an address that begins with https:// or http://"
    )


def test_a_time_after_which_nothing_is_tried_is_refused() -> None:
    assert refused(webhook="https://a", give_up_after="0s").startswith("'give_up_after' is a time")


def test_the_longest_address_is_allowed_and_no_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_TEST_HOOK", LONGEST + "x")
    elsewhere = target(webhook={"env": "MULLIGAN_TEST_HOOK"})

    assert target(webhook=LONGEST).webhook_url() == LONGEST
    assert refused(webhook=LONGEST + "x").startswith("an address has at most 4,000 characters")
    with pytest.raises(InputInvalid) as found:
        elsewhere.webhook_url()
    assert found.value.message == (
        "the environment variable MULLIGAN_TEST_HOOK: an address has at most 4,000 characters"
    )
    monkeypatch.setenv("MULLIGAN_TEST_HOOK", LONGEST)
    assert elsewhere.webhook_url() == LONGEST


def test_addresses_are_read_from_where_they_are_kept(tmp_path: Path) -> None:
    kept = tmp_path / "address"
    kept.write_text("  mailto://b\n", encoding="utf-8")

    assert target(urls=["json://a", {"file": str(kept)}]).addresses() == ["json://a", "mailto://b"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: no such file or directory"),
        (b"\xff", "cannot be read: not UTF-8"),
        (b" \n", "is not set or empty"),
    ],
)
def test_a_secret_file_that_says_nothing_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InputInvalid) as found:
        SecretSource(file=str(path)).value()

    assert found.value.message == f"the file '{path}' {reason}"


def test_a_secret_of_an_environment_is_read_without_spaces_around_it() -> None:
    source = SecretSource(env="KEY")

    assert source.value({"KEY": " s3cret\n"}) == "s3cret"
    with pytest.raises(InputInvalid, match="the environment variable KEY is not set or empty"):
        source.value({})


def test_a_key_is_base64_after_its_prefix_and_otherwise_the_text_itself() -> None:
    assert signing_key("whsec_bmV3IGtleQ==") == b"new key"
    assert signing_key("bmV3") == b"bmV3"
    for wrong in ("whsec_bm V3", "whsec_ä"):
        with pytest.raises(InputInvalid) as found:
            signing_key(wrong)
        assert found.value.message == (
            "a secret that begins with 'whsec_' continues with base64, and this one does not"
        )


@pytest.mark.parametrize("name", ["", "two words", "ops!", "x" * 70 + "!"])
def test_a_name_that_no_target_can_have_is_refused(name: str) -> None:
    assert check_name("Ops_2-eu") == "Ops_2-eu"
    with pytest.raises(InputInvalid) as found:
        check_name(name)
    assert found.value.message == f"'{name[:60]}' is not the name of a target"
    assert found.value.hint == "a name of letters, digits, '_' and '-', such as ops"
