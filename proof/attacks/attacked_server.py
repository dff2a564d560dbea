"""A server and a worker as real processes over a store with two projects, and what must hold of them at any moment."""

from __future__ import annotations

import http.client
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg

from mulligan.core.model.artifacts import Artifact
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.service.home import DATABASE
from mulligan.store.http.http_calls import PROTOCOL, PROTOCOL_HEADER
from proof.attacks.callers import BLUE, CALLERS, RED, SPARE, VICTIM, records
from proof.attacks.kept_data import KeptData
from proof.chaos.http_client import last_address
from proof.crashes.forked_processes import ForkedProcess, ForkedProcesses
from proof.stage import Stage, wait_until

# In all that the victim has: what an attacker reads must not have it.
CANARY = "canary5417c0de"
# An answer takes milliseconds; a machine may be busy.
ANSWER_SECONDS, PULSE_SECONDS, END_SECONDS, FOLLOWED_SECONDS = 20.0, 30.0, 10.0, 0.5
# Of those who may look at what the victim has.
BLUE_TOKENS = (VICTIM.id, CALLERS["blue read"].id)
# What one request may add to the logs of server and worker together, and what may come by itself.
LOG_BYTES_PER_REQUEST, LOG_BYTES_BESIDE = 1_000, 100_000
MEMORY_BYTES_MAX = 768 << 20
BUGS = ("Traceback (most recent call last)", "internal.bug", "bug in Mulligan")
_UNLIMITED = "[server]\nrequests_per_second = 1000000\nrequests_at_once = 1000000\n"
JSON_HEADERS = {"Content-Type": "application/json"}
STORE_HEADERS = {**JSON_HEADERS, PROTOCOL_HEADER: str(PROTOCOL)}

# What deliveries to a webhook are signed with, and to another one, which an attacker knows.
ORDERS_SECRET, OTHER_SECRET = "a secret of the orders", "a secret of somebody else"
PULSE = {"beat": BLUE}
# One workflow for each way in which a run can be: both projects have them under the same names.
TEXTS = {
    "pulse": (
        "name: pulse\nsteps:\n  - step: beat\n    shell: echo PROJECT\n    capture: text\n"
        "outputs: {beat: '${steps.beat.output}'}\n"
    ),
    "letters": (
        "name: letters\ninputs: {target: {type: string, default: staging}}\nsteps:\n"
        "  - step: write\n    shell: 'echo SECRET ${inputs.target}'\n    capture: text\n"
        "  - step: large\n    shell: 'seq -f SECRET%g 5000'\n    capture: text\n"
        "  - step: each\n    needs: [write]\n    map: {over: [1, 2]}\n    do: [{shell: 'echo SECRET ${item}'}]\n"
    ),
    "parked": "name: parked\nsteps:\n  - step: judge\n    triage: true\n    shell: 'echo SECRET; exit 4'\n",
    "asked": (
        "name: asked\ninputs: {target: {type: string, default: staging}}\nsteps:\n"
        "  - step: ask\n    approve: {message: 'SECRET ${inputs.target}?'}\n"
        "  - step: ship\n    needs: [ask]\n    shell: 'echo SECRET ${inputs.target}'\n    capture: text\n"
    ),
    "broken": "name: broken\nsteps:\n  - step: load\n    shell: 'echo SECRET; exit 5'\n",
    "waiting": (
        "name: waiting\nsteps:\n  - step: rest\n    wait: 100d\n  - step: after\n    needs: [rest]\n    shell: 'true'\n"
    ),
}
# What the victim has published and never run: its definition is not in the store yet.
LATER = (
    "name: later\nsteps:\n  - step: say\n    shell: echo honest\n    capture: text\n"
    "outputs: {said: '${steps.say.output}'}\n"
)
# How each stands when the attack begins. The steps that there are.
SETTLED = {"letters": "completed", "parked": "waiting", "asked": "waiting", "broken": "failed", "waiting": "running"}
STEPS = ("write", "large", "each", "judge", "ask", "ship", "load", "rest", "after", "beat")


class Reply(NamedTuple):
    """An answer. Its status is 0 if none came."""

    status: int
    media: str
    body: bytes
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Client:
    """One connection that is kept, and opened again when it was lost."""

    def __init__(self, port: int, seconds: float = ANSWER_SECONDS) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)

    def ask(
        self, who: str, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> Reply:
        """Send one request with the token of `who`. Of an answer without an end the first bytes are read."""
        sent = {**CALLERS[who].headers, **headers}
        began = time.monotonic()
        for is_again in (False, True):
            try:
                self._connection.request(method, target, body, sent)
                answer = self._connection.getresponse()
                break
            except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest) as error:
                # An idle connection may have been closed by the server meanwhile: that is no answer to this request.
                self._connection.close()
                if is_again:
                    return Reply(0, "", f"{type(error).__name__}: {error}".encode(), time.monotonic() - began)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                return Reply(0, "", f"{type(error).__name__}: {error}".encode(), time.monotonic() - began)
        media = answer.headers.get("content-type", "")
        # A log that is followed may say nothing until its step has ended.
        is_followed = answer.status == 200 and "follow=" in target and media.startswith("text/plain")
        if is_followed and self._connection.sock is not None:
            self._connection.sock.settimeout(FOLLOWED_SECONDS)
        try:
            is_endless = is_followed or media.startswith("text/event-stream")
            data = answer.read1(1 << 16) if is_endless else answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if is_followed and isinstance(error, TimeoutError):
                return Reply(answer.status, media, b"", time.monotonic() - began)
            return Reply(0, media, f"{type(error).__name__}: {error}".encode(), time.monotonic() - began)
        if is_followed or not answer.isclosed():
            self._connection.close()
        return Reply(answer.status, media, data, time.monotonic() - began)

    def change(self, who: str, method: str, path: str, body: Any, key: str = "") -> Any:
        """What must be accepted: the JSON of its answer."""
        headers = {**JSON_HEADERS, **({"Idempotency-Key": key} if key else {})}
        reply = self.ask(who, method, f"/api/v1/{path}", msgspec.json.encode(body), headers)
        assert reply.status in (200, 201), f"{method} {path} was answered with {reply.status}: {reply.body!r}"
        return reply.json

    def close(self) -> None:
        self._connection.close()


class Ids(NamedTuple):
    """What there is in the two projects, by the names that others could know or guess."""

    # The runs of each project, by workflow.
    runs: dict[str, dict[str, int]]
    # Of both projects: artifacts, versions of definitions, ids of tokens and names of workers.
    artifacts: tuple[dict[str, Any], ...]
    versions: tuple[str, ...]
    # Of the attacker's project alone: an answer may say again what a request has said.
    definitions: tuple[bytes, ...]
    tokens: tuple[str, ...]
    workers: tuple[str, ...]

    @property
    def run_ids(self) -> tuple[int, ...]:
        return tuple(run_id for runs in self.runs.values() for run_id in runs.values())


class AttackedServer:
    """The processes of one session."""

    def __init__(self, stage: Stage, processes: ForkedProcesses) -> None:
        self.stage = stage
        (stage.folder / "server.toml").write_text(_UNLIMITED + _webhook_secrets(stage.folder))
        with stage.service() as service:
            for record in records():
                service.reader.store.server_records.add_token(record)
        words = ("server", "--port", 0, "--no-worker", "--json", "--config", stage.folder / "server.toml")
        self.server: ForkedProcess = processes.start(stage, "server", *words)
        self.worker: ForkedProcess = processes.start(stage, "worker", "worker", "--parallel", 4)
        self.server.first_line()
        address = last_address(self.server.out)
        assert address is not None, f"the server does not start: {self.server.said()}"
        self.port = address.port
        self.client = Client(self.port)
        self._logged: dict[str, int] = {}
        self.ids = self._fill()
        self.kept = KeptData(stage, BLUE, set(self.ids.runs[BLUE].values()), BLUE_TOKENS)

    # -- what there is

    def _fill(self) -> Ids:
        runs: dict[str, dict[str, int]] = {}
        for project, who, secret in ((BLUE, VICTIM.name, CANARY), (RED, "admin", "redsecret")):
            for name, text in TEXTS.items():
                said = text.replace("PROJECT", project).replace("SECRET", secret)
                self.client.change(who, "PUT", f"workflows/{name}", {"text": said})
            schedule = {"workflow": "letters", "cron": "30 2 1 1 *", "timezone": "UTC", "labels": {"is": secret}}
            self.client.change(who, "PUT", "schedules/yearly", schedule)
            self.client.change(who, "PUT", "workflows/letters/draft", {"text": f"name: letters\n# {secret}\n"})
            runs[project] = {}
            for name in SETTLED:
                body = {"workflow": name, "labels": {"is": secret}}
                runs[project][name] = self.client.change(who, "POST", "runs", body, key=f"first {name}")["run_id"]
            for name, run_id in runs[project].items():
                self._wait_for(who, run_id, SETTLED[name])
        self.client.change(VICTIM.name, "PUT", "workflows/later", {"text": LATER})
        with self.stage.service() as service:
            store = service.reader.store
            return Ids(
                runs=runs,
                artifacts=tuple(self._artifacts(runs)),
                versions=tuple(store.run(run_id).version for found in runs.values() for run_id in found.values()),
                definitions=tuple(store.load(run_id).workflow for run_id in runs[RED].values()),
                tokens=(VICTIM.id, SPARE.id, CALLERS["blue read"].id),
                workers=tuple(one.name for one in store.workers()),
            )

    def _wait_for(self, who: str, run_id: int, status: str) -> None:
        def is_settled() -> bool:
            found = self.look(who, run_id)
            return bool(found["waiting_for"]) if status == "waiting" else found["status"] == status

        wait_until(is_settled, lambda: f"run {run_id} does not become {status}: {self.worker.said()[-2000:]}")

    def new_run(self, name: str) -> int:
        """One more run of the attacker, as those that there are: an attack may leave nothing of it."""
        run_id: int = self.client.change("admin", "POST", "runs", {"workflow": name})["run_id"]
        self._wait_for("admin", run_id, SETTLED[name])
        return run_id

    def _artifacts(self, runs: Mapping[str, Mapping[str, int]]) -> Iterator[dict[str, Any]]:
        for project, who in ((BLUE, VICTIM.name), (RED, "admin")):
            data = self.client.ask(who, "GET", f"/api/v1/runs/{runs[project]['letters']}/full").body
            for match in re.findall(rb'"\$artifact":(\{[^{}]*\})', data):
                yield msgspec.to_builtins(msgspec.json.decode(match, type=Artifact))

    def look(self, who: str, run_id: int) -> Any:
        reply = self.client.ask(who, "GET", f"/api/v1/runs/{run_id}")
        return reply.json if reply.status == 200 else {"status": reply.status, "waiting_for": []}

    # -- what must hold

    def wrong(self, requests: int) -> Iterator[str]:
        """What is wrong after so many requests since the last look, each sentence with the law that is broken."""
        for path in ("/healthz", "/readyz"):
            if (reply := self.client.ask("nobody", "GET", path)).status != 200:
                yield f"the_server_answers: {path} is {reply.status} {reply.body[:300]!r} after {reply.seconds:.1f}s"
        yield from self.pulse()
        yield from self.kept.differences()
        yield from self._wrong_logs(requests)
        if (size := _resident_bytes(self.server.pid)) > MEMORY_BYTES_MAX:
            yield f"memory_is_bounded: the server has {size >> 20} MiB"
        yield from (f"processes_live: the {name} has died" for name, one in self._processes if not one.is_alive)

    def pulse(self) -> Iterator[str]:
        """The victim starts a run, which does what its workflow says."""
        until = time.monotonic() + PULSE_SECONDS
        body = msgspec.json.encode({"workflow": "pulse"})
        reply = self.client.ask(VICTIM.name, "POST", "/api/v1/runs", body, JSON_HEADERS)
        if reply.status != 201:
            yield f"others_are_served: a start is {reply.status} {reply.body[:300]!r} after {reply.seconds:.1f}s"
            return
        run_id = reply.json["run_id"]
        while (found := self.look(VICTIM.name, run_id))["status"] not in RUN_ENDED:
            if time.monotonic() > until or not self.server.is_alive:
                yield f"others_are_served: run {run_id} is {found['status']} after {PULSE_SECONDS:.0f}s"
                return
            time.sleep(0.005)
        if (found["status"], found.get("outputs")) != ("completed", PULSE):
            yield f"others_are_served: run {run_id} is {found['status']} with {found.get('outputs')}, not {PULSE}"

    def _wrong_logs(self, requests: int) -> Iterator[str]:
        """What was written since the last look: too much, or what nobody should read. Each bug is said once."""
        size = 0
        for name, process in self._processes:
            with process.out.with_suffix(".err").open(errors="replace") as file:
                file.seek(self._logged.get(name, 0))
                text = file.read()
                self._logged[name] = file.tell()
            size += len(text)
            for bug in dict.fromkeys(_bugs(text.splitlines())):
                yield f"no_bug_is_logged: the {name} wrote: {bug}"
        if size > LOG_BYTES_BESIDE + requests * LOG_BYTES_PER_REQUEST:
            yield f"logs_are_bounded: {size} bytes for {requests} requests"

    @property
    def _processes(self) -> tuple[tuple[str, ForkedProcess], ...]:
        return ("server", self.server), ("worker", self.worker)

    # -- what somebody does who may write to the database

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """One statement, on whichever store there is; its rows."""
        url = self.stage.home.store_url
        if url:
            with psycopg.connect(url, autocommit=True) as connection:
                found = connection.execute(statement.encode())
                return found.fetchall() if found.description else []
        database = sqlite3.connect(self.stage.home.folder / DATABASE, timeout=30, isolation_level=None)
        try:
            return database.execute(statement).fetchall()
        finally:
            database.close()

    # -- the end

    def end(self) -> Iterator[str]:
        """One SIGTERM each."""
        self.client.close()
        for name, process in self._processes:
            began = time.monotonic()
            if process.is_alive and (said := process.end(END_SECONDS)):
                yield f"one_signal_ends_it: the {name} after {time.monotonic() - began:.1f}s: {said[-1500:]}"
        yield from self.kept.differences()

    def kill(self) -> None:
        self.client.close()
        for process in (self.server, self.worker):
            process.kill()
        wait_until(lambda: not (self.server.is_alive or self.worker.is_alive), "a killed process lives")


@contextmanager
def attacked(stage: Stage, processes: ForkedProcesses) -> Iterator[AttackedServer]:
    """A server with all that belongs to it. Whoever wants to know how it ends calls `end`."""
    server = AttackedServer(stage, processes)
    try:
        yield server
    finally:
        server.kill()


def _webhook_secrets(folder: Path) -> str:
    """Where the server finds them."""
    lines = ["[webhook_secrets]"]
    for name, secret in (("orders", ORDERS_SECRET), ("other", OTHER_SECRET)):
        (folder / f"{name}.key").write_text(secret)
        lines.append(f'{name} = {{file = "{folder}/{name}.key"}}')
    return "\n".join([*lines, ""])


def _bugs(lines: list[str]) -> Iterator[str]:
    """The lines of a log that nobody should read; of a traceback its last frame and the error."""
    for at, line in enumerate(lines):
        if line.startswith(BUGS[0]):
            frames = list(takewhile(lambda one: one.startswith(" "), lines[at + 1 :]))
            yield "\n".join([line, *frames[-3:], *lines[at + 1 + len(frames) :][:1]])[:1500]
        elif any(bug in line for bug in BUGS):
            yield line[:1500]


def _resident_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0
