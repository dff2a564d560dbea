"""`mulligan server` as a process: its first line, its children, its end, and what it refuses to start with."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.forked_process import start_mulligan

from mulligan.api.access.shares import TOKEN_WAITING_MAX
from mulligan.api.processes.server import _check_tls, _listen
from mulligan.cli.words.dispatch import exit_code
from mulligan.errors import InputInvalid, LanguageError, NotFound, ServerUnusable
from mulligan.service.home import Home
from mulligan.service.server.server_config import ServerSection, parse_config
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service

TEXT = "name: nightly\nsteps:\n  - step: fetch\n    shell: 'true'\n"


class Server:
    """A server in a process of its own, and requests to it."""

    def __init__(self, folder: Path, *options: str) -> None:
        words = ("server", "--home", folder / "home", "--port", 0, "--json", *options)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")}
        with (folder / "log").open("ab") as log:
            self.process = start_mulligan(words, kept, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        first = json.loads(self.process.stdout.readline())
        self.url, self.token = first["url"], first["token"]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = HTTPConnection(urlsplit(self.url).netloc)
        try:
            sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
            connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), sent)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()

    def children(self) -> list[int]:
        """Those of all its threads."""
        paths = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for path in paths for pid in path.read_text().split()]


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    server = Server(folder, *options)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()


def until(what: Any) -> None:
    """Wait for something that another process does; a test that waits for long fails by its assertion."""
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(pid: int, module: str) -> bool:
    return module in Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def handles(pid: int, number: signal.Signals) -> bool:
    [mask] = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_after_kill_9_the_same_keys_give_the_same_runs_and_no_child_is_left(tmp_path: Path) -> None:
    keys = [f"key-{number}" for number in range(6)]

    def start(server: Server, key: str) -> int:
        status, run = server.ask("POST", "runs", {"workflow": "nightly"}, **{"Idempotency-Key": key})
        assert status in (200, 201), run
        return int(run["run_id"])

    with serving(tmp_path, "--no-worker") as first:
        assert first.ask("PUT", "workflows/nightly", {"text": TEXT})[0] in (200, 201)
        before = [start(first, key) for key in keys[:4]]
        until(first.children)
        children = first.children()
        first.process.kill()
        first.process.wait()
        until(lambda: not any(map(is_alive, children)))
    with serving(tmp_path, "--no-worker") as second:
        after = [start(second, key) for key in keys]
        listed = second.ask("GET", "runs")[1]["runs"]
        check_that_tokens_are_made_and_revoked_from_elsewhere(second)
        second.process.send_signal(signal.SIGTERM)

        assert second.process.wait(20) == 0
    assert after[:4] == before
    assert sorted(one["run_id"] for one in listed) == sorted(after)
    assert first.token != second.token


def test_the_log_says_what_an_end_waits_for_and_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-worker") as server:
        until(server.children)
        [child] = server.children()
        # One that does not handle it yet would die. Before it runs its program it has the handlers of the server, which
        # waits for that: stopping it there would stop both.
        until(lambda: runs(child, "mulligan.api.processes.background") and handles(child, signal.SIGTERM))
        os.kill(child, signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: f"waiting for the background process (process {child})" in (tmp_path / "log").read_text())
        server.process.send_signal(signal.SIGTERM)

        assert server.process.wait(20) == 0
    until(lambda: not is_alive(child))


@pytest.mark.parametrize("signals", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_a_server_ends_while_a_text_is_read_and_never_waits_for_it(tmp_path: Path, signals: int) -> None:
    with serving(tmp_path, "--no-worker") as server, ThreadPoolExecutor(TOKEN_WAITING_MAX + 2) as clients:

        def validate() -> int | str:
            try:
                return server.ask("POST", "workflows:validate", {"text": TEXT})[0]
            except (HTTPException, OSError):
                return "gone"

        assert validate() == 200
        [reader] = [pid for pid in server.children() if runs(pid, "mulligan.service.server.catalogue.reading_process")]
        # It takes the next text, and never answers. As many wait behind it as may, and one more is refused.
        os.kill(reader, signal.SIGSTOP)
        asked = [clients.submit(validate) for _ in range(TOKEN_WAITING_MAX + 2)]
        assert next(as_completed(asked)).result() == 429
        for _ in range(signals):
            server.process.send_signal(signal.SIGTERM)

        assert server.process.wait(20) == 0
        answers = {one.result() for one in asked}
    assert answers <= {429, 503, "gone"}
    until(lambda: not is_alive(reader))


def check_that_tokens_are_made_and_revoked_from_elsewhere(server: Server) -> None:
    """On the same server, since starting one takes a second."""
    with Service(Home(Path("/nowhere"), server.url, token=server.token)) as there:
        made = there.tokens.create(TokenForm("ann", ("read",)))
        assert [one.id for one in there.tokens.list_tokens().tokens] == [made.token.id]
        with pytest.raises(InputInvalid, match="not a scope"):
            there.tokens.create(TokenForm("ann", ("reed",)))
        assert there.tokens.revoke(made.token.id).revoked_at is not None
        with pytest.raises(NotFound, match="there is no token"):
            there.tokens.revoke("nothing")


def test_a_port_that_is_taken_and_an_address_of_another_machine_are_refused_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerUnusable, match=f"port {port} of '127.0.0.1' is in use") as refusal:
            _listen(ServerSection(port=port))
    assert "--port 0" in refusal.value.hint
    with pytest.raises(ServerUnusable, match=r"'203\.0\.113\.1' is not an address of this machine"):
        _listen(ServerSection(host="203.0.113.1", port=0))


def test_beyond_loopback_tls_is_needed_or_insecure(tmp_path: Path) -> None:
    broken = tmp_path / "cert.pem"
    broken.write_text("no certificate")

    with pytest.raises(ServerUnusable, match=r"'0\.0\.0\.0' can be reached from other machines"):
        _check_tls(ServerSection(host="0.0.0.0"))
    with pytest.raises(ServerUnusable, match="TLS needs a certificate and its key"):
        _check_tls(ServerSection(tls_cert="cert.pem"))
    with pytest.raises(ServerUnusable, match=r"'missing\.pem' does not exist"):
        _check_tls(ServerSection(tls_cert="missing.pem", tls_key="missing.pem"))
    with pytest.raises(ServerUnusable, match="cannot be used with the key"):
        _check_tls(ServerSection(tls_cert=str(broken), tls_key=str(broken)))
    _check_tls(ServerSection(host="0.0.0.0", insecure=True))
    _check_tls(ServerSection(host="::1"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "[server]\nprot = 80\n",
            "server.toml:2:1: unknown key 'prot'\n  2 | prot = 80\n    | ^^^^ did you mean 'port'?",
        ),
        ("[server]\nport = 'a'\n", "server.toml:2:1: 'server.port': expected 'int', got 'str'\n  2 | port = 'a'"),
        ("[server]\nport = 70000\n", "server.toml:2:1: 'server.port': expected 'int' <= 65535\n"),
        ("[sever]\n", "server.toml:1:2: unknown key 'sever'\n  1 | [sever]\n    |  ^^^^^ did you mean 'server'?"),
        ("[server\n", "server.toml:1:8: not TOML: "),
        ("[server.trusted_proxy]\nscopes = []\n", "server.toml:1:2: key 'addresses' is missing"),
    ],
)
def test_a_mistake_in_the_configuration_is_refused_with_its_line(text: str, shown: str) -> None:
    with pytest.raises(LanguageError) as refusal:
        parse_config(text)

    assert refusal.value.render().startswith(f"error[config.invalid]: {shown}")


def test_the_command_refuses_bad_options_before_it_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = ["server", "--home", str(tmp_path / "home")]

    codes = [
        exit_code([*home, "--port", "70000"]),
        exit_code([*home, "--config", str(tmp_path / "none.toml")]),
        exit_code([*home, "--log-format", "xml"]),
        exit_code([*home, "--host", "0.0.0.0"]),
    ]

    assert codes == [2, 2, 2, 2]
    errors = capsys.readouterr().err
    assert "--port must be between 0 and 65535" in errors
    assert "the file does not exist" in errors
    assert "--insecure" in errors
