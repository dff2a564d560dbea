"""Attacks that have a name: each was carried out by hand once, and worked.

One says what is wrong, if anything is. Afterwards all that holds of any server has to hold, up to its end.
"""

from __future__ import annotations

import base64
import json
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from mulligan.api.routes import ROUTES
from mulligan.core.model.workflow import decode, encode, version
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.dashboard.pages import PAGES
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service
from mulligan.store.statements import newest
from proof.attacks.attacked_server import JSON_HEADERS, LATER, STORE_HEADERS, AttackedServer, Client, Reply
from proof.attacks.callers import BLUE, CALLERS, RED, VICTIM
from proof.attacks.campaign import Battlefield, Finding
from proof.attacks.laws import broken
from proof.attacks.requests import Request
from proof.attacks.webhook_attacks import hostile_deliveries

AT = "2026-01-02T03:04:05Z"
TAKEN_SECONDS, BODY_SECONDS, LONG_SECONDS = 15.0, 120.0, 60.0
# How long others may wait while somebody asks for much: a busy machine has its share in it.
WAITED_SECONDS = 6.0
# How long a token may be believed that was revoked, where an answer goes on.
REVOKED_SECONDS = 8.0
# What the drafts of one user and a few others may have.
DRAFTS_BYTES = 12 << 20


class Attack(NamedTuple):
    """What is done to a server."""

    carry_out: Callable[[AttackedServer], Iterator[str]]
    # Whether it takes longer than a few seconds, or leaves a store that nobody can use.
    is_alone: bool = False


def carry_out(battlefield: Battlefield, store: str, name: str) -> Iterator[Finding]:
    """Carry out one attack on a new server, and look at its end."""
    attack = ATTACKS[name]
    with battlefield.server(store) as server:
        wrong = list(_outcome(attack, server))
        # Whoever broke the store on purpose is the only one who complains of it.
        wrong += [] if attack.is_alone else server.wrong(1_000)
        wrong += server.end()
    yield from (Finding(words, store, attack=name) for words in wrong)


def hold(server: AttackedServer, names: list[str]) -> list[str]:
    """Carry out several attacks on one server; what is wrong, each with the name of its attack."""
    outcomes = ((name, (*_outcome(ATTACKS[name], server), *server.wrong(1_000))) for name in names)
    return [f"{name}: {words}" for name, wrong in outcomes for words in wrong]


def _outcome(attack: Attack, server: AttackedServer) -> Iterator[str]:
    """What is wrong, also if the attack comes to no end since what it builds on is refused."""
    try:
        yield from attack.carry_out(server)
    except (AssertionError, LookupError, TypeError, msgspec.DecodeError) as error:
        yield f"an_attack_comes_to_its_end: {type(error).__name__}: {error}"


# -- asking ----------------------------------------------------------------------------------------------------------


class Judged:
    """A client whose every answer is judged as those of the random requests are."""

    def __init__(self, server: AttackedServer) -> None:
        self._client = server.client
        self.wrong: list[str] = []

    def ask(
        self, who: str, method: str, target: str, body: Any = None, headers: Mapping[str, str] = JSON_HEADERS
    ) -> Reply:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(who, method, target, data, dict(headers))
        reply = self._client.ask(who, method, target, data, headers)
        self.wrong += [f"{words} to {request}" for words in broken(request, reply)]
        return reply

    def store(self, who: str, scope: str, name: str, **arguments: Any) -> Reply:
        return self.ask(who, "POST", f"/api/v1/store/{scope}/{name}", arguments, STORE_HEADERS)

    def post(self, who: str, path: str, body: Any, **headers: str) -> Reply:
        sent = {**JSON_HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.ask(who, "POST", f"/api/v1/{path}", body, sent)


def tool_call(name: str, arguments: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The body and the headers with which an agent calls a tool."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return json.dumps(message).encode(), {**JSON_HEADERS, "Accept": "application/json, text/event-stream"}


def _within(seconds: float, is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


# -- reports that REST would refuse ----------------------------------------------------------------------------------


def _poisoned(server: AttackedServer, who: str, workflow: str, reports: list[dict[str, Any]]) -> Iterator[str]:
    """Send reports to a run of the attacker: each is refused or dropped, and the run can be cancelled and removed."""
    judged, run_id = Judged(server), server.new_run(workflow)
    for report in reports:
        judged.store(who, "run", "put_control", run_id=run_id, report={"at": AT, "by": "", **report}, is_asking=False)

    def is_inbox_empty() -> bool:
        return judged.store("read", "read", "inbox", run_ids=[run_id]).body == b"[]"

    if not _within(TAKEN_SECONDS, is_inbox_empty):
        yield f"a_message_is_taken_or_dropped: run {run_id} keeps one: {server.worker.said()[-500:]}"
    judged.post("admin", f"runs/{run_id}:cancel", {"now": True, "reason": "attacked"})

    def is_ended() -> bool:
        return server.look("admin", run_id)["status"] in RUN_ENDED

    if not _within(TAKEN_SECONDS, is_ended):
        yield f"an_admin_can_cancel: run {run_id} is {server.look('admin', run_id)['status']}"
    removed = judged.store("admin", "admin", "remove", root_run_ids=[run_id])
    if removed.status != 200 or removed.json != [run_id]:
        yield f"an_admin_can_remove: run {run_id}: {removed.status} {removed.body[:300]!r}"
    yield from judged.wrong


def forged_retry(server: AttackedServer) -> Iterator[str]:
    """A retry of items of no step, of a run that has ended and of one that has not."""
    retry = {"type": "RetryRequested", "items": [0]}
    odd = {"type": "RetryRequested", "from_step": "nothing", "items": [-1, 10**9], "peaks": {"nothing": -1}}
    child = {"type": "RetryRequested", "child": {"place": "load", "run_id": 1}, "force": True, "budgets": {"x": {}}}
    yield from _poisoned(server, "run", "broken", [retry, odd, child])


def forged_pause(server: AttackedServer) -> Iterator[str]:
    """Steps that do not exist, numbers that no step has, of a run that waits."""
    pause = {"type": "PauseRequested", "step": "nothing"}
    resume = {"type": "ResumeRequested", "step": "judge", "steps": -(2**62)}
    yield from _poisoned(server, "run", "waiting", [pause, resume, {"type": "RetryRequested", "items": []}])


def undecodable_revision(server: AttackedServer) -> Iterator[str]:
    """A corrected workflow that is none."""
    definitions: list[dict[str, Any]] = [{"a": 1}, {}, {"name": "broken", "steps": [{"name": "load", "needs": 1}]}]
    reports = [
        {"type": "RetryRequested", "revised": {"version": "0", "definition": definition}} for definition in definitions
    ]
    yield from _poisoned(server, "write", "broken", reports)


def other_steps(server: AttackedServer) -> Iterator[str]:
    """A corrected workflow that is well-formed, and that of another run."""
    plain = [json.loads(one) for one in server.ids.definitions]
    reports: list[dict[str, Any]] = []
    nothing: dict[str, Any] = {"steps": [], "groups": {}}
    for definition in plain:
        for changes in ({}, nothing):
            data = encode(decode(json.dumps({**definition, **changes}).encode()))
            revised = {"version": version(data), "definition": json.loads(data)}
            reports.append({"type": "RetryRequested", "revised": revised})
            reports.append({"type": "RetryRequested", "revised": {**revised, "may_rename": True}, "from_step": "write"})
    yield from _poisoned(server, "write", "broken", reports)


def forged_fork(server: AttackedServer) -> Iterator[str]:
    """Forks that go on from events that there are not, or in the middle of a turn."""
    judged = Judged(server)
    run_id, workflow = server.ids.runs[RED]["letters"], base64.b64encode(server.ids.definitions[0]).decode()
    for seq in (0, -1, 1, 2, 3, 10**9, -(10**30)):
        for history in ("eJwDAAAAAAE=", "", None):
            request = {"type": "RunRequested", "at": AT, "run_id": 0, "version": "0", "forked_from": run_id}
            request |= {"forked_at": seq, "history": history, "has_inputs": seq % 2 == 0}
            run = {"workflow": workflow, "version": "0", "name": "letters", "request": request}
            judged.store("write", "write", "create", runs=[run])
    yield from judged.wrong


def unbounded_workers(server: AttackedServer) -> Iterator[str]:
    """A worker that says very much about itself, its machine and what it lacks."""
    judged, long = Judged(server), "x" * 500_000
    register = {"name": "red loud", "host": "far", "pid": 1}
    offer = {"cpus": 4.0, "memory": 1, "gpus": 0, "labels": [], "host": "far", "tasks_max": 1}
    for more in ({"host": long}, {"labels": [long]}, {"version": long}, {"trouble": long}, {"name": long}, {}):
        judged.store("worker", "worker", "work.register", worker={**register, **more}, lease_seconds=30.0)
    for said in ({"lacks": ["/x"] * 100_000}, {"lacks": [long]}, {"refused_cpus": [1.0] * 100_000}, {"tasks_max": -1}):
        given = {"ended": [], "logs": [], "offer": {**offer, **said}, "is_beat": True}
        judged.store("worker", "worker", "work.exchange", worker="red loud", **given)
    judged.store("worker", "worker", "work.set_trouble", worker="red loud", trouble=long)
    judged.store("worker", "worker", "work.retire", worker="red loud")
    yield from judged.wrong


# -- texts -----------------------------------------------------------------------------------------------------------


def long_texts(server: AttackedServer) -> Iterator[str]:
    """Texts of many words by somebody who may only read, while another project starts runs; then one signal."""

    def validate(words: int) -> Reply:
        # A reader that looks at all words before each one takes minutes for these.
        inputs = "inputs: {x: {type: string, default: a}}"
        text = f"name: a\n{inputs}\nsteps:\n  - step: a\n    shell: |\n      echo {'$(a) ' * words} ${{inputs.x}}\n"
        return Client(server.port, LONG_SECONDS).ask(
            "read", "POST", "/mcp/", *tool_call("validate_workflow", {"text": text})
        )

    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(validate, 36_000) for _ in range(4)]
        yield from server.pulse()
        for one in asked:
            if (reply := one.result()).status not in (200, 400, 403, 408, 413, 422, 429, 503):
                yield f"every_request_is_answered: {reply.status} {reply.body[:300]!r} after {reply.seconds:.1f}s"
        pool.submit(validate, 180_000)
        pool.submit(validate, 180_000)
        _within(5.0, lambda: False)
        yield from server.end()


# -- what the store over HTTP believes -------------------------------------------------------------------------------


def planted_definition(server: AttackedServer) -> Iterator[str]:
    """Other code under the version of a text that another project starts later, and as the name of another workflow."""
    judged = Judged(server)
    pinned, body = _pinned(server, LATER)
    planted = base64.b64encode(body.replace(b"echo honest", b"echo planted")).decode()
    request = {"type": "RunRequested", "at": AT, "run_id": 0, "version": pinned}
    for name in ("later", "pulse"):
        run = {"workflow": planted, "version": pinned, "name": name, "request": request, "project": BLUE}
        judged.store("write", "write", "create", runs=[run])
    run_id = server.client.change(VICTIM.name, "POST", "runs", {"workflow": "later"})["run_id"]
    _within(TAKEN_SECONDS, lambda: server.look(VICTIM.name, run_id)["status"] in RUN_ENDED)
    if (outputs := server.look(VICTIM.name, run_id).get("outputs")) != {"said": "honest"}:
        yield f"others_run_their_own_code: run {run_id} of another project gave {outputs}"
    yield from judged.wrong


def _pinned(server: AttackedServer, text: str) -> tuple[str, bytes]:
    """The version and the body of a definition, as a store keeps them: anybody can compute both at home."""
    folder = server.stage.folder / "at home"
    folder.mkdir(exist_ok=True)
    (folder / "later.yaml").write_text(text)
    with Service(Home(folder / "home")) as service:
        run_id = service.changes.create(prepare(service.workflows.load_workflow(folder / "later.yaml"), {}, folder))[0]
        return service.reader.record(run_id).version, service.reader.store.load(run_id).workflow


def other_projects_artifacts(server: AttackedServer) -> Iterator[str]:
    """Read and replace what another project keeps, by its name and its digest."""
    judged = Judged(server)
    theirs = next(one for one in server.ids.artifacts if one["name"].startswith(f"{server.ids.runs[BLUE]['letters']}/"))
    judged.store("read", "read", "artifacts.fetch", artifact=theirs)
    judged.store(
        "admin", "read", "artifacts.fetch", artifact={**theirs, "name": f"{server.ids.runs[RED]['letters']}/a"}
    )
    judged.store("worker", "worker", "work.fetch", artifact=theirs)
    for run_id in (server.ids.runs[RED]["letters"], server.ids.runs[BLUE]["letters"]):
        judged.ask("read", "GET", f"/api/v1/runs/{run_id}/artifacts/{theirs['sha256']}")
    for name in (theirs["name"], theirs["name"].upper(), f"{theirs['name']}.part", f"0{theirs['name']}"):
        judged.ask(
            "worker", "POST", f"/api/v1/store/artifacts?name={quote(name)}&format=text", b"planted", STORE_HEADERS
        )
    yield from judged.wrong


def other_projects_events(server: AttackedServer) -> Iterator[str]:
    """Ask for the events of an own run from far before its first one: they are not those of the runs before it."""
    judged = Judged(server)
    for run_id in (server.ids.runs[RED]["letters"], 999_999):
        for after in (-1, -(2**32), -5 * 2**32, -(2**62), -(2**63), 2**63 - 1):
            judged.store("read", "read", "log", run_id=run_id, after=after, limit=500)
            judged.ask("read", "GET", f"/api/v1/runs/{run_id}/events?after={after}&limit=200")
    yield from judged.wrong


def documents(server: AttackedServer) -> Iterator[str]:
    """Documents that a server keeps for itself: links to log in, owners of workers."""
    judged = Judged(server)
    judged.post("admin", "logins", {})
    server.client.ask(VICTIM.name, "POST", "/api/v1/logins", b"{}", JSON_HEADERS)
    register = {"name": "red worker", "host": "far", "pid": 1}
    judged.store("worker", "worker", "work.register", worker=register, lease_seconds=30.0)
    for kind in ("login", "worker", "cursor", "lock"):
        for project in (None, "", RED, BLUE):
            found = judged.store("read", "read", "server_records.documents", kind=kind, project=project)
            if found.status == 200 and found.json:
                yield f"documents_are_by_an_allow_list: '{kind}' of {project!r}: {found.body[:300]!r}"
                break
    yield from judged.wrong


# -- decisions -------------------------------------------------------------------------------------------------------


def kept_approval(server: AttackedServer) -> Iterator[str]:
    """An agent that may not approve forks an approved run with other inputs, in each way that there is."""
    judged, agent = Judged(server), "agent:usual"
    run_id = server.client.change("admin", "POST", "runs", {"workflow": "asked"})["run_id"]
    _within(TAKEN_SECONDS, lambda: bool(server.look("admin", run_id)["waiting_for"]))
    judged.post("decide", f"runs/{run_id}/steps/ask:approve", {"reason": "staging may"})
    _within(TAKEN_SECONDS, lambda: server.look("admin", run_id)["status"] in RUN_ENDED)
    other = {"target": "production"}
    events = judged.ask("read", "GET", f"/api/v1/runs/{run_id}/events?limit=200").json["events"]
    forks = [judged.post(agent, f"runs/{run_id}:fork", {"from_step": "ship", "inputs": other})]
    for seq in sorted({event["seq"] for event in events})[-6:]:
        forks.append(judged.post(agent, f"runs/{run_id}/at/{seq}:fork", {"inputs": other, "reason": "a"}))
    call = tool_call("fork_run", {"run_id": run_id, "from_step": "ship", "inputs": other})
    judged.ask(agent, "POST", "/mcp/", call[0], call[1])
    newest = max([run_id, *(fork.json.get("run_id") or 0 for fork in forks if fork.status in (200, 201))])
    for forked in range(run_id + 1, newest + 2):
        if server.look("admin", forked).get("workflow") != "asked":
            continue

        def is_settled(forked: int = forked) -> bool:
            found = server.look("admin", forked)
            return bool(found["waiting_for"]) or found["status"] in RUN_ENDED

        _within(TAKEN_SECONDS, is_settled)
        log = judged.ask("read", "GET", f"/api/v1/runs/{forked}/attempts/ship/1/log")
        if log.status == 200 and b"production" in log.body:
            yield f"an_agent_keeps_no_approval: run {forked} shipped to production: {log.body[:200]!r}"
    yield from judged.wrong


# -- workers ---------------------------------------------------------------------------------------------------------


def forged_log(server: AttackedServer) -> Iterator[str]:
    """A worker that claims the host of another one writes over the log of its attempt."""
    judged = Judged(server)
    text = "name: far\nsteps:\n  - step: far\n    shell: 'true'\n    resources: {labels: [far]}\n"
    server.client.change("admin", "PUT", "workflows/far", {"text": text})
    run_id = server.client.change("admin", "POST", "runs", {"workflow": "far"})["run_id"]
    offer = {"cpus": 4.0, "memory": 1 << 30, "gpus": 0, "labels": ["far"], "host": "far", "tasks_max": 1}

    def exchange(who: str, worker: str, **others: Any) -> Reply:
        given = {"ended": [], "logs": [], "offer": None, "is_beat": True, **others}
        return judged.store(who, "worker", "work.exchange", worker=worker, **given)

    for who, name in (("worker", "red one"), ("worker two", "red two")):
        register = {"name": name, "host": "far", "pid": 1, "labels": ["far"]}
        judged.store(who, "worker", "work.register", worker=register, lease_seconds=30.0)
    leases: list[Any] = []

    def is_leased() -> bool:
        leases.extend(exchange("worker", "red one", offer=offer).json["leases"])
        return bool(leases)

    if not _within(TAKEN_SECONDS, is_leased):
        yield "a_remote_worker_gets_tasks: none was leased"
        return
    key = {"run_id": run_id, "place": "far", "attempt": 1, "stream": "stdout"}

    def chunk(data: bytes, start: int = 0) -> dict[str, Any]:
        return {"key": key, "start": start, "data": base64.b64encode(data).decode(), "is_last": False}

    honest = b"all is well\n"
    exchange("worker", "red one", logs=[chunk(honest)])
    for data, start in ((b"forged forged forged forged\n", 0), (b"forged\n", 5), (b"forged\n", len(honest))):
        exchange("worker two", "red two", logs=[chunk(data, start)])
    # The one that ran it does not say something else later either.
    exchange("worker", "red one", logs=[chunk(b"all was bad, and more\n")])
    found = judged.store("read", "read", "server_records.read_log", key=key, start=0, end=1000).body
    if not found.startswith(honest) or b"forged" in found:
        yield f"stored_logs_are_kept: {found!r}, which was {honest!r}"
    for who, name in (("worker", "red one"), ("worker two", "red two")):
        judged.store(who, "worker", "work.retire", worker=name)
    server.client.change("admin", "POST", f"runs/{run_id}:cancel", {"now": True, "reason": "over"})
    yield from judged.wrong


def forged_results(server: AttackedServer) -> Iterator[str]:
    """Results that name what is no artifact, or a run of another project: every route of the run still answers."""
    judged = Judged(server)
    text = "name: odd\nsteps:\n  - step: odd\n    shell: 'true'\n    resources: {labels: [odd]}\n"
    server.client.change("admin", "PUT", "workflows/odd", {"text": text})
    offer = {"cpus": 4.0, "memory": 1 << 30, "gpus": 0, "labels": ["odd"], "host": "odd", "tasks_max": 1}
    register = {"name": "red odd", "host": "odd", "pid": 1, "labels": ["odd"]}
    judged.store("worker", "worker", "work.register", worker=register, lease_seconds=30.0)
    theirs = server.ids.runs[BLUE]["letters"]
    own = {"name": "RUN/odd/1/out.json", "size": 1, "sha256": "0" * 64, "format": "json"}
    results: tuple[dict[str, Any], ...] = (
        *(
            {"output": {"$artifact": one}}
            for one in ("x", None, {}, own, {**own, "size": -1}, {**own, "format": "file"})
        ),
        *({"artifacts": [one]} for one in ({}, own, {"$artifact": own}, {"$artifact": "x"})),
        *({"data": {"x": {"$artifact": one}}} for one in (1, own)),
        {"reused_run_id": theirs},
    )
    for result in results:
        run_id = server.client.change("admin", "POST", "runs", {"workflow": "odd"})["run_id"]
        leases: list[Any] = []

        def exchange(**others: Any) -> Reply:
            given = {"ended": [], "logs": [], "offer": None, "is_beat": True, **others}
            return judged.store("worker", "worker", "work.exchange", worker="red odd", **given)

        def is_leased(run_id: int = run_id, leases: list[Any] = leases) -> bool:
            leases += [one for one in exchange(offer=offer).json["leases"] if one["task"]["run_id"] == run_id]
            return bool(leases)

        if not _within(TAKEN_SECONDS, is_leased):
            yield f"a_remote_worker_gets_tasks: run {run_id} has none that is leased, before {result}"
            return
        report = {"type": "TaskEnded", "at": AT, "place": "odd", "attempt": leases[0]["task"]["attempt"], **result}
        named = json.loads(json.dumps(report).replace("RUN", str(run_id)))
        if exchange(ended=[{"token": leases[0]["token"], "report": named}]).status != 200:
            server.client.change("admin", "POST", f"runs/{run_id}:cancel", {"now": True, "reason": "refused"})
        _within(TAKEN_SECONDS, partial(_has_ended, server, run_id))
        if f'"reused_run_id":{theirs}'.encode() in judged.ask("read", "GET", f"/api/v1/runs/{run_id}/events").body:
            yield f"no_run_names_those_of_others: run {run_id} has reused a result of run {theirs}"
        values = {"run_id": run_id, "step": "odd", "place": "odd", "attempt": 1, "index": 0, "seq": 2}
        for route in (*ROUTES, *PAGES.routes):
            if route.method == "GET" and "{run_id" in route.path and "stream" not in route.path:
                path = route.full_path.replace(":int", "").replace("{sha256}", "0" * 64)
                for key, value in values.items():
                    path = path.replace(f"{{{key}}}", str(value))
                judged.ask("read", "GET", path)
    judged.store("worker", "worker", "work.retire", worker="red odd")
    yield from judged.wrong


def _has_ended(server: AttackedServer, run_id: int) -> bool:
    return server.look("admin", run_id)["status"] in RUN_ENDED


# -- damage ----------------------------------------------------------------------------------------------------------


def unreadable_runs(server: AttackedServer) -> Iterator[str]:
    """Runs whose rows were damaged: every route of them and about all runs still answers, and they can be removed."""
    judged = Judged(server)
    runs = {name: server.new_run(name) for name in ("broken", "letters", "parked")}
    is_postgres = bool(server.stage.home.store_url)
    damage = "'\\x7b'" if is_postgres else "X'7b'"
    first = "run_id = {0} AND seq = 1" if is_postgres else "id = ({0} << 32) + 1"
    own_row = "rows SET data = {0} WHERE kind = 'run' AND" if is_postgres else "runs SET state = {0} WHERE"
    server.execute(f"UPDATE {own_row.format(damage)} run_id = {runs['broken']}")
    server.execute(f"UPDATE events SET entry = {damage} WHERE {first.format(runs['letters'])}")
    server.execute(f"UPDATE rows SET data = {damage} WHERE run_id = {runs['parked']}")
    values = {"step": "load", "place": "load", "attempt": "1", "index": "0", "seq": "2", "name": "broken"}
    values |= {"sha256": "0" * 64, "token_id": "a", "digest": "0"}
    for route in (*ROUTES, *PAGES.routes):
        if route.method != "GET" or "store/" in route.path or "stream" in route.path or "doctor" in route.path:
            continue
        for name in ("broken", "letters", "parked") if "{run_id" in route.path else ("",):
            path = route.full_path.replace(":int", "")
            for key, value in {**values, "run_id": str(runs.get(name, 0))}.items():
                path = path.replace(f"{{{key}}}", value)
            judged.ask("admin", "GET", path)
    for name in ("broken", "letters", "parked"):
        judged.post("admin", f"runs/{runs[name]}:cancel", {"now": True, "reason": "damaged"})
        judged.post("admin", f"runs/{runs[name]}:retry", {"reason": "damaged"})
        removed = judged.ask("admin", "DELETE", f"/api/v1/runs/{runs[name]}")
        if removed.status != 200 or removed.json["run_ids"] != [runs[name]]:
            yield f"a_damaged_run_can_be_removed: run {runs[name]}: {removed.status} {removed.body[:200]!r}"
    yield from judged.wrong


def overtaken_by_a_migration(server: AttackedServer) -> Iterator[str]:
    """A newer version has migrated the store: this server is not ready, and takes and gives nothing."""
    if server.stage.home.store_url:
        server.execute("UPDATE schema_version SET version = 99")
        server.execute(
            "CREATE OR REPLACE FUNCTION schema_needed() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 99::bigint'"
        )
    else:
        # As the newest migration does it, for a later one.
        said = f"(schema {newest('sqlite')})"
        for kind, name, text in server.execute("SELECT type, name, sql FROM sqlite_schema"):
            if said in (text or ""):
                server.execute(f"DROP {kind} {name}")
                server.execute(text.replace(said, "(schema 99)"))
        server.execute("PRAGMA user_version = 99")
    judged = Judged(server)
    # It may look now and then only.
    if not _within(TAKEN_SECONDS, lambda: judged.ask("nobody", "GET", "/readyz").status == 503):
        yield "an_overtaken_server_is_not_ready: /readyz is 200"
    asked = [
        judged.post(VICTIM.name, "runs", {"workflow": "pulse"}),
        judged.ask(VICTIM.name, "GET", "/api/v1/runs"),
        judged.ask(VICTIM.name, "GET", f"/api/v1/runs/{server.ids.runs[BLUE]['letters']}"),
        judged.store("read", "read", "runs", before=None, limit=5, statuses=[]),
        judged.store("worker", "worker", "work.now"),
    ]
    for reply in asked:
        if reply.status != 503:
            yield f"an_overtaken_server_refuses: {reply.status} {reply.body[:200]!r}"
    yield from (words for words in judged.wrong if " 503 " not in words)


# -- input -----------------------------------------------------------------------------------------------------------


def odd_input(server: AttackedServer) -> Iterator[str]:
    """Times without a zone, NULs, halves of characters, names that are too long: refused, never a bug."""
    judged = Judged(server)
    naive = "2026-01-02T03:04:05"
    for since, until in ((naive, naive), (naive, AT), (AT, naive), ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")):
        judged.store("read", "read", "lists.outcome_counts", since=since, until=until)
        for name in ("lists.find", "lists.count"):
            wanted = {"since": since, "until": until}
            arguments: dict[str, Any] = {"wanted": wanted, "limit": 5}
            judged.store("read", "read", name, **arguments, **({"before": None} if name == "lists.find" else {}))
    for text in ("\0", "a\0b", "\ud800", "x" * 100_000, '"', "*", "a" * 41):
        for field in ("words", "starters", "workflows", "statuses", "failure_codes"):
            judged.store("read", "read", "lists.find", wanted={field: [text]}, before=None, limit=5)
        judged.store("read", "read", "lists.find", wanted={"attributes": [["label", text, text]]}, before=None, limit=5)
        encoded = quote(text.encode("utf-8", "surrogatepass"))[:60_000]
        for path in (f"runs?search={encoded}", f"runs?q={encoded}", f"runs?workflow={encoded}", f"workflows/{encoded}"):
            judged.ask("read", "GET", f"/api/v1/{path}")
        judged.store("read", "read", "tagged_rows", tag=text, limit=5)
        judged.store("read", "read", "recent_rows", workflow=text, kind=text, key=text, limit=5)
        judged.store("read", "read", "rows_of_kind", kind=text)
    run_id = server.ids.runs[RED]["letters"]
    for name in (f"{run_id}/{'x' * 256}", f"{run_id}/{'x' * 990}", f"{run_id}/" + "a/" * 400 + "a", f"{run_id}/é\0"):
        path = f"/api/v1/store/artifacts?name={quote(name)}&format=file"
        judged.ask("worker", "POST", path, b"a", STORE_HEADERS)
    yield from judged.wrong


def reused_key(server: AttackedServer) -> Iterator[str]:
    """The same Idempotency-Key for something else: refused, and not the answer to the first."""
    judged = Judged(server)
    first = {"workflow": "letters", "labels": {"a": "1"}}
    judged.post("run", "runs", first, Idempotency_Key="reused")
    notify = [{"on": ["failed"], "to": ["nobody"]}]
    changes: tuple[dict[str, Any], ...] = (
        *({"labels": {"a": "2"}}, {"labels": {}}, {"inputs": {"target": "b"}}, {"notify": notify}),
    )
    for change in changes:
        reply = judged.post("run", "runs", {**first, **change}, Idempotency_Key="reused")
        if reply.status not in (409, 422):
            yield f"a_key_is_for_one_request: {change} got {reply.status} {reply.body[:200]!r}"
    yield from judged.wrong


def login_answers(server: AttackedServer) -> Iterator[str]:
    """`/login` gives what the description of the interface says, whatever the code."""
    judged = Judged(server)
    described = judged.ask("read", "GET", "/openapi.json").json["paths"]["/login"]["get"]["responses"]
    undescribed: dict[str, str] = {}
    for query in ("", "?code=", "?code=a", "?code=a&code=b", "?code=%00", "?other=1", f"?code={'x' * 5000}"):
        for accept in ("text/html", "application/json", "*/*"):
            reply = judged.ask("nobody", "GET", f"/login{query}", headers={"Accept": accept})
            media = reply.media.partition(";")[0]
            content = described.get(str(reply.status), {}).get("content", {})
            if str(reply.status) not in described or (media and not any(media in one for one in content)):
                undescribed[f"{reply.status} {reply.media}"] = f"/login{query[:20]} for {accept}"
    yield from (f"answers_are_documented: {path} is {what}" for what, path in undescribed.items())
    yield from judged.wrong


# -- much and slow ---------------------------------------------------------------------------------------------------


def slow_bodies(server: AttackedServer) -> Iterator[str]:
    """Bodies that never end: others are served meanwhile, and the server gives up in the end."""
    head = (
        f"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {CALLERS['run'].secret}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    with ExitStack() as opened:
        slow = []
        for _ in range(50):
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.sendall(head.encode())
            connection.settimeout(0.0)
            slow.append(connection)
        yield from server.pulse()

        def is_given_up(connection: socket.socket) -> bool:
            try:
                return len(connection.recv(1000)) >= 0
            except BlockingIOError:
                return False
            except OSError:
                return True

        if not _within(BODY_SECONDS, lambda: all(map(is_given_up, slow[:1]))):
            yield f"bodies_have_a_time_limit: one is waited for after {BODY_SECONDS:.0f}s"


def repeated_ids(server: AttackedServer) -> Iterator[str]:
    """Questions of somebody who may only read, with one id hundreds of thousands of times: a short answer is enough.

    Several at once took gigabytes, and all threads for changes for a minute.
    """
    run_id, count = server.ids.runs[RED]["letters"], 400_000
    asked: dict[str, dict[str, Any]] = {
        "lists.records": {"run_ids": [run_id] * count},
        "lists.attributes": {"run_ids": [run_id] * count},
        "lists.places": {"keys": [[run_id, "write"]] * (count // 2)},
        "lists.find": {
            "wanted": {"starters": [f"u{number}" for number in range(count // 5)]},
            "before": None,
            "limit": 5,
        },
    }

    def ask(name: str) -> Reply:
        body = json.dumps(asked[name]).encode()
        with closing(Client(server.port, LONG_SECONDS)) as client:
            return client.ask("read", "POST", f"/api/v1/store/read/{name}", body, STORE_HEADERS)

    with ThreadPoolExecutor(6) as pool:
        replies = [pool.submit(ask, name) for name in [*asked] * 2]
        yield from _others_wait(server)
        for one in replies:
            if (reply := one.result()).status not in (200, 422) or len(reply.body) > 100_000:
                yield f"answers_are_short: {reply.status} with {len(reply.body)} bytes after {reply.seconds:.1f}s"


def long_names(server: AttackedServer) -> Iterator[str]:
    """Names of megabytes that there are not: the loop of the server read them several times to say so."""

    def ask(_: int) -> Reply:
        body = b'{"' + b"t" * 4_000_000 + b'": 1}'
        with closing(Client(server.port, LONG_SECONDS)) as client:
            return client.ask("read", "POST", "/api/v1/workflows:validate", body, JSON_HEADERS)

    with ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(ask, number) for number in range(16)]
        yield from _others_wait(server)
        for one in replies:
            if (reply := one.result()).status != 422 or len(reply.body) > 100_000:
                yield f"answers_are_short: {reply.status} with {len(reply.body)} bytes after {reply.seconds:.1f}s"


def revoked_reader(server: AttackedServer) -> Iterator[str]:
    """A log that somebody follows whose token is revoked meanwhile: nothing more of it is told."""
    text = "name: tick\nsteps:\n  - step: tick\n    shell: 'while true; do echo tick; sleep 0.2; done'\n"
    server.client.change("admin", "PUT", "workflows/tick", {"text": text})
    created = server.client.change("admin", "POST", "tokens", {"user": "leaver", "scopes": ["read"]})
    run_id = server.client.change("admin", "POST", "runs", {"workflow": "tick"})["run_id"]
    target = f"/api/v1/runs/{run_id}/attempts/tick/1/log"
    _within(TAKEN_SECONDS, lambda: server.client.ask("read", "GET", target).status == 200)
    head = f"GET {target}?follow=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {created['secret']}\r\n\r\n"
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=REVOKED_SECONDS)) as connection:
        connection.sendall(head.encode())
        _within(TAKEN_SECONDS, lambda: b"tick\n" in connection.recv(1 << 16))
        server.client.ask("admin", "DELETE", f"/api/v1/tokens/{created['token']['id']}")
        until = time.monotonic() + REVOKED_SECONDS
        while time.monotonic() < until and not connection.recv(1 << 16).endswith(b"0\r\n\r\n"):
            pass
        if time.monotonic() >= until:
            yield f"revoked_tokens_read_nothing: the log of run {run_id} is told after {REVOKED_SECONDS:.0f}s"
    server.client.change("admin", "POST", f"runs/{run_id}:cancel", {"now": True, "reason": "over"})


def many_drafts(server: AttackedServer) -> Iterator[str]:
    """Proposals of megabytes, as many as are taken; then somebody lists them."""
    padding = "#" + "x" * 3_500_000
    with closing(Client(server.port, LONG_SECONDS)) as client:
        for number in range(12):
            text = f"name: odd{number}\n{padding}\nsteps:\n  - step: a\n    shell: 'true'\n"
            client.ask(
                "propose", "POST", "/mcp/", *tool_call("propose_workflow", {"name": f"odd{number}", "text": text})
            )
        listed = client.ask("read", "GET", "/api/v1/drafts")
        if listed.status != 200 or len(listed.body) > DRAFTS_BYTES:
            yield f"answers_are_short: {listed.status} with {len(listed.body)} bytes after {listed.seconds:.1f}s"
        for number in range(12):
            client.ask("admin", "DELETE", f"/api/v1/workflows/odd{number}/draft")


def _others_wait(server: AttackedServer) -> Iterator[str]:
    """How long the victim waits meanwhile for what takes milliseconds."""
    questions: tuple[tuple[str, bytes | None], ...] = (("GET", None), ("POST", b'{"workflow": "pulse"}'))
    with closing(Client(server.port, LONG_SECONDS)) as client:
        for method, body in questions * 3:
            reply = client.ask(VICTIM.name, method, "/api/v1/runs", body, JSON_HEADERS if body else {})
            if reply.status not in (200, 201) or reply.seconds > WAITED_SECONDS:
                yield f"others_are_served: {method} /api/v1/runs is {reply.status} after {reply.seconds:.1f}s"


def refused_callers(server: AttackedServer) -> Iterator[str]:
    """Those who are refused again and again do not fill the audit."""
    count = 300

    def rows() -> int:
        return int(server.execute("SELECT count(*) FROM audit")[0][0])

    asked: dict[str, tuple[str, str, str]] = {
        "an unknown token": ("unknown", "GET", "/api/v1/runs"),
        "no token": ("nobody", "POST", "/api/v1/runs"),
        "a missing scope": ("read", "POST", "/api/v1/tokens"),
        "another project": ("read", "GET", f"/api/v1/runs/{server.ids.runs[BLUE]['letters']}"),
    }
    for what, (who, method, target) in asked.items():
        before = rows()
        body = b"{}" if method == "POST" else None
        for _ in range(count):
            server.client.ask(who, method, target, body, JSON_HEADERS if body else {})
        if (added := rows() - before) > count // 2:
            yield f"refusals_do_not_fill_the_audit: {added} rows for {count} requests with {what}"


# -- files -----------------------------------------------------------------------------------------------------------


def open_files(server: AttackedServer) -> Iterator[str]:
    """What lies in the home is for its owner alone."""
    for path in sorted(server.stage.home.folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077 and not _is_of_a_step(path, server.stage.home.folder):
            yield f"files_are_private: {path.relative_to(server.stage.home.folder)} has mode {mode:o}"


def _is_of_a_step(path: Path, home: Path) -> bool:
    """What a step wrote has the mode that the step gave it, in a folder that nobody else can enter."""
    return path.relative_to(home).parts[0] == "work"


ATTACKS: dict[str, Attack] = {
    "forged_retry": Attack(forged_retry),
    "forged_pause": Attack(forged_pause),
    "undecodable_revision": Attack(undecodable_revision),
    "other_steps": Attack(other_steps),
    "forged_fork": Attack(forged_fork),
    "unbounded_workers": Attack(unbounded_workers),
    "long_texts": Attack(long_texts, is_alone=True),
    "planted_definition": Attack(planted_definition),
    "kept_approval": Attack(kept_approval),
    "forged_log": Attack(forged_log),
    "forged_results": Attack(forged_results),
    "unreadable_runs": Attack(unreadable_runs),
    "other_projects_artifacts": Attack(other_projects_artifacts),
    "other_projects_events": Attack(other_projects_events),
    "documents": Attack(documents),
    "odd_input": Attack(odd_input),
    "reused_key": Attack(reused_key),
    "login_answers": Attack(login_answers),
    "slow_bodies": Attack(slow_bodies, is_alone=True),
    "repeated_ids": Attack(repeated_ids),
    "long_names": Attack(long_names),
    "many_drafts": Attack(many_drafts),
    "revoked_reader": Attack(revoked_reader),
    "refused_callers": Attack(refused_callers),
    "open_files": Attack(open_files),
    "hostile_deliveries": Attack(hostile_deliveries),
    "overtaken_by_a_migration": Attack(overtaken_by_a_migration, is_alone=True),
}
