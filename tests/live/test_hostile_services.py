"""Servers, databases and agents that misbehave: each step fails with its own code in its time, all others complete."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest
from tests.support.nightly import examples
from tests.support.runner import Live
from tests.support.web import Answer, Web, reset, response, serving

LONGER_THAN_IT_IS = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort"

# A server, a database or an agent to each step, and steps beside and after them that have nothing to do with it.
HOSTILE = """
name: hostile
inputs: {hangs: string, drips: string, resets: string, lies: string, raves: string, floods: string, silent: string}
defaults: {timeout: 20s, retry: {max_retries: RETRIES, delay: 1ms}}
steps:
  - {step: hangs, http: {url: "${inputs.hangs}", read_timeout: 200ms}}
  - {step: drips, http: {url: "${inputs.drips}"}, timeout: 1s, retry: 0}
  - {step: resets, http: {url: "${inputs.resets}"}}
  - {step: lies, http: {url: "${inputs.lies}"}}
  - {step: raves, http: {url: "${inputs.raves}"}}
  - {step: floods, http: {url: "${inputs.floods}", max_body: 1MiB}}
  - {step: no_server, http: {url: "http://127.0.0.1:1"}}
  - {step: no_database, sql: {connection: "postgresql://127.0.0.1:1/none", query: select 1}}
  - step: silent_database
    sql: {connection: "postgresql://${inputs.silent}/none?connect_timeout=2", query: select 1}
    retry: 0
  - {step: goes_away, sql: {connection: "DATABASE", query: select pg_terminate_backend(pg_backend_pid())}}
  - {step: no_agent, agent: {provider: nobody, prompt: Are you there?}}
  - {step: no_program, agent: {provider: missing, prompt: Are you there?}}
  - {step: beside, shell: echo well}
  - {step: after, needs: [{match: ".*", on: always}], shell: echo well}
"""
# By day only the next test tries again what has failed.
RETRIES = examples(0, 1)
EXPECTED = {
    "hangs": ("TIMEOUT", 1 + RETRIES),
    "drips": ("TIMEOUT", 1),
    "resets": ("CONNECTION", 1 + RETRIES),
    "lies": ("CONNECTION", 1 + RETRIES),
    "raves": ("CONNECTION", 1 + RETRIES),
    "floods": ("OUTPUT_INVALID", 1 + RETRIES),
    "no_server": ("CONNECTION", 1 + RETRIES),
    "no_database": ("CONNECTION", 1 + RETRIES),
    "silent_database": ("CONNECTION", 1),
    "goes_away": ("CONNECTION", 1 + RETRIES),
    "no_agent": ("INPUT_INVALID", 1),
    "no_program": ("INPUT_INVALID", 1),
}


def hang(connection: socket.socket) -> None:
    """Until the other side gives up."""
    connection.recv(1)


def drip(connection: socket.socket) -> None:
    """A byte now and then: never silent, never done."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    connection.settimeout(0.05)
    while True:
        connection.sendall(b"x")
        try:
            if not connection.recv(1):
                return
        except TimeoutError:
            continue


def flood(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 100_000)


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("MULLIGAN_AGENT_MISSING", "/no/such/program")
    monkeypatch.delenv("MULLIGAN_AGENT_NOBODY", raising=False)


def test_each_fails_with_its_own_code_and_all_others_complete(live_file: Live, schema_url: str) -> None:
    answers: dict[str, Answer] = {
        "hangs": hang,
        "drips": drip,
        "resets": reset,
        "lies": LONGER_THAN_IT_IS,
        "raves": b"\x00\xff no HTTP at all\r\n\r\n",
        "floods": flood,
        "silent": response(),  # once it has heard the end of a request, and a database client sends none
    }
    with ExitStack() as stack:
        webs: dict[str, Web] = {name: stack.enter_context(serving(answer)) for name, answer in answers.items()}
        urls = {name: web.url for name, web in webs.items()}
        urls["silent"] = urls["silent"].removeprefix("http://")

        ran = live_file.run(HOSTILE.replace("DATABASE", schema_url).replace("RETRIES", str(RETRIES)), inputs=urls)

    failed = {name: step for name, step in ran.steps.items() if step["failure"]}
    assert {name: (step["failure"]["code"], step["attempts"]) for name, step in failed.items()} == EXPECTED
    assert (ran.steps["beside"]["output"], ran.steps["after"]["output"]) == ("well", "well")
    assert all(step["failure"]["message"] and "Traceback" not in step["failure"]["trace"] for step in failed.values())


def test_a_server_that_was_bad_to_one_step_is_good_to_the_next(live_file: Live) -> None:
    with serving(LONGER_THAN_IT_IS, reset, response(200, b"well")) as web:
        ran = live_file.run(
            "inputs: {url: string}\nsteps: [{step: ask, http: {url: '${inputs.url}'}, retry: {delay: 1ms}}]",
            inputs={"url": web.url},
        )

    assert (ran.steps["ask"]["attempts"], ran.steps["ask"]["output"]["body"]) == (3, "well")
