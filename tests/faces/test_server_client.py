"""The command line and the Python face against a server: the same words come out as at a home of one's own."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands import Said, mulligan, ran, steady
from tests.support.serving import READER, TOKEN, serving, working

import mulligan as face
from mulligan.errors import InputInvalid

WORKFLOW = """
name: nightly
inputs:
  target: {type: string, default: test}
steps:
  - {step: greet, shell: echo hello}
  - step: check
    map: {over: [1, 2, 3], as: n}
    do: [{shell: 'echo item ${n}; test ${n} != 2'}]
  - {step: deploy, shell: 'echo cannot deploy >&2; exit 3', retry: {max_retries: 1, delay: 1ms}}
"""
ASKING = "name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n"
HELLO = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\noutputs: {said: '${steps.greet.output}'}\n"

READING: tuple[tuple[object, ...], ...] = (
    ("list",),
    ("list", "--json"),
    ("show", 1),
    ("show", 1, "--json"),
    ("explain", 1),
    ("explain", 1, "deploy"),
    ("logs", 1, "greet"),
    ("logs", 1, "deploy", "--attempt", 1, "--json"),
    ("logs", 1, "-f"),
    ("events", 1),
    ("events", 1, "--json"),
    ("items", 1, "check", "--json"),
    ("pending", "--json"),
    ("stats",),
    ("breakers",),
    ("workers", "--json"),
    ("replay", 1, "--verify"),
    ("wait", 1),
    ("graph", "--run", 1),
    ("retry", 1, "--dry-run", "--json"),
    ("fork", 1, "--from", "greet", "--dry-run"),
    ("show", 99),
    ("logs", 1, "nothing"),
    ("approve", 1, "greet", "--reason", "no"),
    ("classify", 2, "gate", "retry", "--reason", "no"),
)


@pytest.fixture
def url(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server over the home of this folder; commands are not sent to it yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    with serving(folder / ".mulligan") as url:
        yield url


@pytest.fixture
def at_server(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MULLIGAN_TOKEN", TOKEN)
    monkeypatch.setenv("MULLIGAN_SERVER", url)
    return url


def test_a_server_says_what_the_home_itself_says(url: str, monkeypatch: pytest.MonkeyPatch):
    ran(WORKFLOW)
    ran(ASKING)
    monkeypatch.setenv("MULLIGAN_TOKEN", TOKEN)

    different = []
    for words in READING:
        monkeypatch.delenv("MULLIGAN_SERVER", raising=False)
        here = _steady(mulligan(*words))
        monkeypatch.setenv("MULLIGAN_SERVER", url)
        there = _steady(mulligan(*words))
        if there != here:
            different.append((words, here, there))

    assert different == []


def _steady(said: Said) -> tuple[int, str, str]:
    code, out, err = said.plain
    return code, re.sub(r'"seconds": [0-9.e-]+', '"seconds": N', out), err


def test_a_file_runs_on_the_server_and_is_shown_here(folder: Path, at_server: str):
    with working(folder / ".mulligan"):
        said = ran(HELLO)
        started = json.loads(mulligan("events", 1, "--json").out.splitlines()[0])["fact"]

    assert said.code == 0
    assert json.loads(said.out) == {"said": "hello"}
    lines = steady(said.err).splitlines()
    assert lines[0] == f"note: the steps run on the server {at_server}, in the folders of its workers"
    assert lines[1:3] == ["run 1: hello", "THEN \u2713 greet  completed"]
    assert lines[-1].startswith("\u2713 run 1 completed in Ns")
    assert (started["by"], started["cwd"]) == ("ann", ".")
    assert (folder / ".mulligan" / "work").is_dir()


def test_a_run_that_waits_for_a_person_is_left_and_decided_from_here(folder: Path, at_server: str):
    with working(folder / ".mulligan"):
        waiting = ran(ASKING)
        approved = mulligan("approve", 1, "gate", "--reason", "go")
        waited = mulligan("wait", 1)

    assert waiting.code == 4
    assert "mulligan approve 1 gate" in waiting.err
    assert (approved.code, waited.code) == (0, 0)


def test_the_python_face_is_that_of_a_home(folder: Path, url: str):
    (folder / "hello.yaml").write_text(HELLO)

    with working(folder / ".mulligan"), face.connect(url, token=TOKEN) as home:
        run = home.run("hello.yaml", show=False)
        found = home.get(run.id)

        assert (run.status, run.outputs) == ("completed", {"said": "hello"})
        assert found.steps["greet"].attempts[-1].stdout == "hello\n"
        assert [one.id for one in home.runs()] == [1]


def test_what_belongs_to_this_machine_is_refused_for_a_server(at_server: str):
    Path("hello.yaml").write_text(HELLO)

    assert mulligan("gc").err.startswith("error[refused]: what no run refers to can only be removed where it is")
    assert "--parallel, --memory or --gpus is about this machine" in mulligan("run", "hello.yaml", "--parallel", 2).err
    with pytest.raises(InputInvalid, match="say where steps run here, and the workers of a server run the steps"):
        face.connect(at_server).run("hello.yaml", parallel=2)


# -- logging in ------------------------------------------------------------------------------------------------------


def test_a_token_is_checked_and_stored_for_its_owner_alone(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    file = folder / "config" / "mulligan" / "servers.json"
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TOKEN}\n"))

    said = mulligan("login", url)
    listed = mulligan("list", "--home", url)
    mode = stat.S_IMODE(os.stat(file).st_mode)
    left = mulligan("logout")
    again = mulligan("list", "--home", url)

    assert tuple(said) == (
        0,
        "",
        f"you are logged in to {url}; the token is in '{file}'\n"
        f"  export MULLIGAN_SERVER={url}  # commands now work with the runs of this server\n",
    )
    assert (listed.code, mode, left.code) == (0, 0o600, 0)
    assert again.err.startswith(
        f"error[store.login_refused]: there is no token for the server {url}\n  log in: mulligan "
    )


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("127.0.0.1:8642", "write http://127.0.0.1:8642"),
        ("mulligan.example.org", "write https://mulligan.example.org"),
        ("https://host:8642/api/v1", "write it without a path: https://host:8642"),
        ("ftp://host", "write it without a path"),
    ],
)
def test_a_mistyped_address_of_a_server_is_answered_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch, typed: str, hint: str
):
    monkeypatch.setenv("MULLIGAN_SERVER", typed)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TOKEN}\n"))

    expected = f"error[input.invalid]: '{typed}' is not a URL like https://HOST:PORT\n  {hint}\n"

    assert mulligan("list").err == expected
    assert mulligan("login").err == expected


def test_each_trouble_with_a_server_is_one_sentence_with_what_to_do(
    folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
):
    Path("hello.yaml").write_text(HELLO)
    monkeypatch.setenv("MULLIGAN_SERVER", url)

    monkeypatch.setenv("MULLIGAN_TOKEN", "mul_wrong")
    wrong = mulligan("list")
    monkeypatch.setenv("MULLIGAN_TOKEN", READER)
    forbidden = mulligan("run", "hello.yaml")
    monkeypatch.setenv("MULLIGAN_SERVER", "http://127.0.0.1:1")
    down = mulligan("list")
    monkeypatch.setenv("MULLIGAN_SERVER", url.replace("http:", "https:"))
    no_tls = mulligan("list")
    monkeypatch.setenv("MULLIGAN_SERVER", "https://me:secret@host/path")
    malformed = mulligan("list")
    monkeypatch.delenv("MULLIGAN_SERVER")
    monkeypatch.setenv("MULLIGAN_STORE", url)
    other = mulligan("list")

    assert wrong.err == "error[store.login_refused]: a valid token is needed\n  log in: mulligan login URL\n"
    assert forbidden.err.endswith("error[store.forbidden]: this token may not 'write'\n  ask for a token that may\n")
    assert down.err == (
        "error[store.unavailable]: the server at http://127.0.0.1:1 does not answer: connection refused\n"
        "  is a server running at http://127.0.0.1:1? mulligan server starts one\n"
    )
    assert no_tls.err == (
        f"error[store.refused]: there is no TLS at {url.replace('http:', 'https:')}\n"
        "  if the server has none, the address begins with http://\n"
    )
    assert malformed.err == (
        "error[input.invalid]: the address of the server is not a URL like https://HOST:PORT\n"
        "  write it without a user, a password and a path; the token comes from: mulligan login URL\n"
    )
    assert (
        other.err == "error[input.invalid]: MULLIGAN_STORE names a server of Mulligan\n  set MULLIGAN_SERVER instead\n"
    )
