"""Logs stay where a step ran: whoever asks for them elsewhere is told where that is."""

from __future__ import annotations

import socket

import pytest

from .commands import mulligan, ran

pytestmark = pytest.mark.usefixtures("folder")

HELLO = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n  - {step: wait, wait: 1ms}\n"


def test_a_log_that_is_not_here_is_said_to_be_where_the_step_ran(schema_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", schema_url)
    ran(HELLO, "--home", "here")

    here = mulligan("logs", 1, "greet", "--home", "here")
    elsewhere = mulligan("logs", 1, "greet", "--home", "elsewhere")

    assert tuple(here) == (0, "hello\n", "-- run 1, 'greet', attempt 1\n")
    told = f"-- run 1, 'greet', attempt 1: its log is not on this host: it ran on {socket.gethostname()}\n"
    assert tuple(elsewhere) == (0, "", told)


def test_what_no_host_has_run_wrote_nothing(schema_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", schema_url)
    ran(HELLO, "--home", "here")

    said = mulligan("logs", 1, "wait", "--home", "here")

    assert tuple(said) == (0, "", "-- run 1, 'wait', attempt 1: it wrote nothing\n")
