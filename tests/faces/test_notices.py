"""`mulligan notices`: what it lists, what it sends and tests, what it says no to; and what `explain` says of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran
from tests.support.receiver import Receiver, receiving

from mulligan.ports import SettledNotice
from mulligan.service.home import Home
from mulligan.service.service import Service

FLOW = """
name: nightly
notify: {on: failed, to: [ops, nobody]}
steps: [{step: deploy, shell: exit 3}]
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def configure(receiver: Receiver) -> None:
    """Only after the run: with a configuration another process would send."""
    Path(".mulligan/server.toml").write_text(f'[targets.ops]\nwebhook = "{receiver.url}"\n')


def test_notices_are_kept_then_sent_and_what_cannot_be_sent_says_why(folder: Path, receiver: Receiver) -> None:
    assert mulligan("notices").err.startswith("there are no notices\n")
    first = ran(FLOW)
    assert first.code == 1
    assert "note: target 'ops' is not in the configuration; notices to it are kept" in first.err
    configure(receiver)

    sent = mulligan("notices", "send")
    listed = mulligan("notices", "--json").json
    shown = mulligan("notices").out

    assert sent.out == "1 notice sent, 1 waiting\n"
    assert receiver.ids == [one["key"] for one in listed["notices"] if one["target"] == "ops"]
    assert {one["target"]: one["status"] for one in listed["notices"]} == {"ops": "sent", "nobody": "waiting"}
    assert "s3cret" not in shown + str(listed)
    assert "target 'nobody' is not in the configuration: add [targets.nobody] to server.toml" in shown
    assert mulligan("notices", "send", "--json").json == {"sent": 0, "waiting": 1}


def test_a_test_message_goes_to_the_target_now(folder: Path, receiver: Receiver) -> None:
    Path(".mulligan").mkdir()
    configure(receiver)
    receiver.statuses = [204, 500]

    good, bad = mulligan("notices", "test", "ops"), mulligan("notices", "test", "ops")

    assert tuple(good)[:2] == (0, "a test message was sent to 'ops'\n")
    assert (bad.code, bad.err) == (1, "the test message was not sent to 'ops': 127.0.0.1 answered 500\n")
    assert receiver.events[0]["type"] == "mulligan.test"
    unknown = mulligan("notices", "test", "opps")
    assert unknown.code == 2
    assert "did you mean 'ops'?" in unknown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("notices", "post"), "unknown subcommand 'post' of notices"),
        (("notices", "test"), "'notices test' has other arguments"),
        (("notices", "send", "ops"), "'notices send' has other arguments"),
        (("run", "w.yaml", "--notify", "ops=fail"), "'fail' is not an event that is announced"),
        (("run", "w.yaml", "--notify", "ops=late"), "'late' needs a time"),
        (("run", "w.yaml", "--notify", "https://a"), "'https://a' is not the name of a target"),
    ],
)
def test_what_cannot_be_meant_is_refused(folder: Path, words: tuple[str, ...], said: str) -> None:
    Path("w.yaml").write_text(FLOW)

    found = mulligan(*words)

    assert found.code == 2
    assert said in found.err


def test_a_bad_configuration_is_refused_with_its_line_and_without_addresses(folder: Path) -> None:
    Path(".mulligan").mkdir()
    Path(".mulligan/server.toml").write_text('[targets.ops]\nurls = "slack://s3cret"\n')

    found = mulligan("notices", "test", "ops")

    assert found.code == 2
    assert "server.toml:2" in found.err
    assert "s3cret" not in found.err


def test_the_story_of_a_run_says_which_notices_were_given_up(folder: Path) -> None:
    ran(FLOW)
    with Service(Home(folder / ".mulligan")) as service:
        records = service.reader.store.server_records
        ops = next(one for one in records.notices() if one.target == "ops")
        records.settle_notices([SettledNotice(ops.id, "given_up", 9, datetime.now(UTC), "given up after 24h00m")])

    assert "a notice to 'ops' was given up after 24h00m" in mulligan("explain", "1").out
