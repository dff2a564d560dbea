"""What the server promises, measured: each sub-command is one promise, with its bar.

    python bench/faces.py list      100,000 runs, 500 lists a second: p99 < 50 ms; each filter < 10 ms in the server,
                                    < 300 ms as a page of the dashboard
    python bench/faces.py streams   1,000 clients of a stream: p95 < 150 ms, < 60 kB of memory each
    python bench/faces.py starts    300 starts a second, kill -9, all asked again: exactly N runs
    python bench/faces.py engine    the engine's rate beside a server with 50 watchers: >= 0.9 of its rate alone
    python bench/faces.py remote    two workers over HTTP: >= 0.5 of the rate of two at the store
    python bench/faces.py page      10,000 steps in Chromium: first paint < 250 ms, data < 600 ms, update p95 < 16 ms
    python bench/faces.py start     from the command to the address: < 2 s
    python bench/faces.py all       one after the other

`--store postgres` measures on PostgreSQL, `--small` checks that everything works. The server is a process of its own;
this process is the generator, over raw sockets. Both share the processors of the machine: the generator says how much
of one it used. Ratios are medians over rounds in which the contestants alternate. Exit code 1: a bar was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

import runs_list
from growing.server import database
from growing.server import server as postgres
from serving.browser import Browser, OpenedPage, browser
from serving.processes import ServerProcess, server, start_server
from serving.requests import Connection, percentile, send_at_rate
from serving.simulated_run import SimulatedRun
from serving.streams import Watchers

from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.views.run_list import RunQuery
from mulligan.service.service import Service
from mulligan.store import open_store

WORKFLOW = "name: bench\ninputs: {n: {type: integer, default: 0}}\nsteps: [{step: one, shell: 'true'}]\n"
CHAIN = "name: chain\nsteps:\n" + "".join(
    f"  - {{step: s{n}, shell: 'true'{f', needs: [s{n - 1}]' if n else ''}}}\n" for n in range(5)
)


@dataclass
class Bars:
    """What was measured beside what was promised."""

    is_missed: bool = False
    lines: list[str] = field(default_factory=list)

    def check(self, what: str, value: float, bar: float, unit: str = "", *, is_least: bool = False) -> None:
        is_kept = value >= bar if is_least else value < bar
        self.is_missed = self.is_missed or not is_kept
        sign = ">=" if is_least else "<"
        line = f"  {what:60}{value:10.2f} {unit:3} bar {sign} {bar:g}  {'kept' if is_kept else 'MISSED'}"
        self.lines.append(line)
        print(line, flush=True)

    def print_table(self) -> None:
        """Everything once more, without what was printed between."""
        print(f"\nall together (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors)")
        print("\n".join(self.lines), flush=True)


@dataclass
class Bench:
    asked: argparse.Namespace
    bars: Bars
    stack: ExitStack

    @property
    def is_small(self) -> bool:
        return bool(self.asked.small)

    def home(self) -> tuple[Path, str]:
        """A new home, and the URL of its store; "" for SQLite."""
        folder = self.stack.enter_context(TemporaryDirectory(prefix="mulligan-bench-", dir="/var/tmp"))
        store = ""
        if self.asked.store == "postgres":
            store = self.stack.enter_context(database(self._postgres()))
        return Path(folder) / "home", store

    def _postgres(self) -> str:
        found: str = getattr(self, "_url", "")
        if not found:
            found = self._url = self.stack.enter_context(postgres())
        return found


# -- the list --------------------------------------------------------------------------------------------------------


def measure_list(bench: Bench) -> None:
    runs = 2_000 if bench.is_small else 100_000
    home, store = bench.home()
    home.mkdir(parents=True)
    opened = open_store(store or str(home / "mulligan.db"))
    runs_list.fill(opened, runs)
    opened.close()
    queries = {name: _path(query) for name, query in runs_list.queries(runs).items()}
    with server(home, store=store, worker=False) as running:
        asyncio.run(_each_filter(bench, running, queries, rounds=3 if bench.is_small else 15))
        asyncio.run(_each_page(bench, running, queries, rounds=3 if bench.is_small else 9))
        for title, paths in (("the first page", [queries["no filter"]]), ("all filters in turn", [*queries.values()])):
            load = asyncio.run(
                send_at_rate(
                    *(running.host, running.port, running.token, paths),
                    rate=100 if bench.is_small else 500,
                    seconds=2 if bench.is_small else 20,
                )
            )
            print(
                f"  {title}: {len(load.replies) / load.seconds:.0f} answers/s {load.statuses}, p50 "
                f"{load.latency(0.5):.1f} ms, p95 {load.latency(0.95):.1f} ms, "
                f"generator {load.generator_share:.0%} of a core"
            )
            bench.bars.check(f"list at 500/s, {title}: p99", load.latency(0.99), 50.0, "ms")


async def _each_filter(bench: Bench, running: ServerProcess, queries: dict[str, str], rounds: int) -> None:
    """One request at a time: what is left besides the server is a round trip over loopback, which is subtracted."""
    client = Connection(running.host, running.port, running.token)
    empty = statistics.median([await _took(client, "/healthz") for _ in range(50)])
    worst = 0.0
    for name, path in queries.items():
        # Each time another page size, so that no answer comes from a cache.
        spent = [await _took(client, f"{path}&limit={50 + number}") for number in range(rounds)]
        found = statistics.median(spent) - empty
        worst = max(worst, found)
        print(f"    {name:40}{found * 1000:8.2f} ms")
    bench.bars.check("the slowest filter, median in the server", worst * 1000, 10.0, "ms")
    client.close()


async def _each_page(bench: Bench, running: ServerProcess, queries: dict[str, str], rounds: int) -> None:
    """The list and the first page as the dashboard shows them, with counts by status."""
    client = Connection(running.host, running.port, running.token)
    paths = {name: path.removeprefix("/api/v1") for name, path in queries.items()}
    worst = 0.0
    for name, path in {"the first page": "/", **paths}.items():
        found = statistics.median([await _took(client, path) for _ in range(rounds)])
        worst = max(worst, found)
        print(f"    {name:40}{found * 1000:8.2f} ms as a page")
    bench.bars.check("list of runs as a page: the slowest filter, median", worst * 1000, 300.0, "ms")
    client.close()


async def _took(client: Connection, path: str) -> float:
    begun = time.perf_counter()
    reply = await client.ask("GET", path)
    assert reply.status == 200, (path, reply)
    return time.perf_counter() - begun


def _path(query: RunQuery) -> str:
    """The query as the address has it."""
    pairs: list[tuple[str, str]] = [
        *(("workflow", one) for one in query.workflows),
        *(("status", one) for one in query.statuses if one != "new"),
        *(("who", one) for one in query.starters),
        *(("failure", one) for one in query.failure_codes),
        *(("label", f"{name}={value}") for name, value in query.labels.items()),
        *(("input", f"{name}={value}") for name, value in query.inputs.items()),
    ]
    pairs += [("text", query.text)] if query.text else []
    pairs += [(name, at.isoformat()) for name in ("since", "until") if (at := getattr(query, name)) is not None]
    return f"/api/v1/runs?{urlencode(pairs)}"


# -- streams ---------------------------------------------------------------------------------------------------------


def measure_streams(bench: Bench) -> None:
    clients, events = (50, 5) if bench.is_small else (1_000, 60)
    home, store = bench.home()
    with server(home, store=store, worker=False) as running, _service(home, store) as service:
        prepared = _prepared(service, home, WORKFLOW)
        service.changes.create(prepared)
        asyncio.run(_streams(bench, running, service, prepared, clients, events))


async def _streams(
    bench: Bench, running: ServerProcess, service: Service, prepared: object, clients: int, events: int
) -> None:
    warm = Watchers()
    await warm.connect(running.host, running.port, running.token, 20, "runs,pending")
    warm.close()
    await asyncio.sleep(0.5)
    before = running.memory()
    watchers = Watchers()
    begun = time.perf_counter()
    await watchers.connect(running.host, running.port, running.token, clients, "runs,run:1,pending")
    print(f"  {clients:,} clients connected in {time.perf_counter() - begun:.1f} s")
    latencies, lost = [], 0
    for number in range(events):
        # Runs start at any moment of the hub's interval.
        await asyncio.sleep(0.15 + 0.007 * (number % 15))
        (run_id,) = await asyncio.to_thread(_start_in_thread, service.home, prepared, watchers)
        seen = await watchers.all_seen()
        lost += clients - len(seen)
        latencies += [at - run_id[1] for at in seen]
    each = (running.memory() - before) / clients
    used = running.processor_seconds()
    print(
        f"  {events} events to {clients:,} clients: p50 {percentile(latencies, 0.5) * 1000:.0f} ms, p99 "
        f"{percentile(latencies, 0.99) * 1000:.0f} ms, {lost} lost, server {used:.1f} s of processor"
    )
    bench.bars.check("from the commit to a client: p95", percentile(latencies, 0.95) * 1000, 150.0, "ms")
    bench.bars.check("memory of a client", each / 1024, 60.0, "kB")
    bench.bars.check("events lost", float(lost), 1.0)
    watchers.close()


def _start_in_thread(home: Home, prepared: object, watchers: Watchers) -> list[tuple[int, float]]:
    """Start a run that all watchers wait for: its number, and when it was written."""
    with Service(home) as service:
        following = max((record.run_id for record in service.runs.page(RunQuery(limit=1)).runs), default=0) + 1
        watchers.expect(b'"run_id":%d,' % following)
        service.changes.create(prepared)  # type: ignore[arg-type]
        return [(following, time.perf_counter())]


# -- starts ----------------------------------------------------------------------------------------------------------


def measure_starts(bench: Bench) -> None:
    rate, seconds = (50, 2) if bench.is_small else (300, 20)
    home, store = bench.home()
    running = start_server(home, store=store, worker=bench.asked.worker)
    try:
        asyncio.run(_publish(running, "bench", WORKFLOW))
        given, load = asyncio.run(_start_at_rate(running, rate, seconds, kill_at=seconds / 2))
        port = running.port
        running = start_server(home, store=store, port=port, worker=bench.asked.worker)
        again = asyncio.run(_ask_all_again(running, rate * seconds))
        refused = asyncio.run(_other_inputs(running))
    finally:
        running.stop()
    with _service(home, store) as service:
        count = service.runs.count(RunQuery(), limit=10**7)
    wanted = rate * seconds
    moved = sum(given[key] != run_id for key, run_id in again.items() if key in given)
    print(
        f"  {len(given):,} of {wanted:,} starts were answered, the others were cut off; p50 "
        f"{percentile(load, 0.5) * 1000:.1f} ms, p99 {percentile(load, 0.99) * 1000:.1f} ms before the kill"
    )
    bench.bars.check("runs too many or too few", float(abs(count - wanted)), 1.0)
    bench.bars.check("keys that gave another run the second time", float(moved), 1.0)
    bench.bars.check("another input under a key is refused with 422", float(refused == 422), 1.0, is_least=True)


async def _publish(running: ServerProcess, name: str, text: str) -> None:
    client = Connection(running.host, running.port, running.token)
    reply = await client.ask("PUT", f"/api/v1/workflows/{name}", {"text": text})
    assert reply.status in (200, 201), reply
    client.close()


async def _start(client: Connection, number: int, n: int | None = None) -> tuple[int, int | None]:
    body = {"workflow": "bench", "inputs": {"n": number if n is None else n}}
    reply = await client.ask("POST", "/api/v1/runs", body, {"Idempotency-Key": f"start-{number}"})
    return reply.status, reply.json.get("run_id")


async def _start_at_rate(
    running: ServerProcess, rate: int, seconds: int, kill_at: float
) -> tuple[dict[int, int], list[float]]:
    """Start runs at fixed moments, and kill the server in between: the runs that were answered, and their times."""
    given: dict[int, int] = {}
    latencies: list[float] = []
    free = [Connection(running.host, running.port, running.token) for _ in range(64)]
    begun = time.perf_counter()

    async def one(number: int, at: float) -> None:
        client = free.pop() if free else Connection(running.host, running.port, running.token)
        try:
            status, run_id = await _start(client, number)
        except OSError:
            return
        finally:
            free.append(client)
        assert status in (200, 201), status
        assert run_id is not None
        given[number] = run_id
        latencies.append(time.perf_counter() - at)

    tasks = []
    for number in range(rate * seconds):
        at = begun + number / rate
        if (left := at - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        if number == int(rate * kill_at):
            running.kill()
        tasks.append(asyncio.ensure_future(one(number, at)))
    await asyncio.gather(*tasks)
    for client in free:
        client.close()
    return given, latencies


async def _ask_all_again(running: ServerProcess, count: int) -> dict[int, int]:
    found: dict[int, int] = {}
    numbers = iter(range(count))

    async def work() -> None:
        client = Connection(running.host, running.port, running.token)
        for number in numbers:
            status, run_id = await _start(client, number)
            assert status in (200, 201), status
            assert run_id is not None
            found[number] = run_id
        client.close()

    await asyncio.gather(*(work() for _ in range(16)))
    return found


async def _other_inputs(running: ServerProcess) -> int:
    client = Connection(running.host, running.port, running.token)
    status, _ = await _start(client, 0, n=4711)
    client.close()
    return status


# -- the engine beside a server ----------------------------------------------------------------------------------------


def measure_engine(bench: Bench) -> None:
    runs, rounds = (20, 1) if bench.is_small else (300, bench.asked.rounds)
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(_engine_alone(bench, runs))
        beside.append(_engine_beside(bench, runs, 50))
    print(f"  steps/s alone {[round(one) for one in alone]}, beside a server {[round(one) for one in beside]}")
    ratio = statistics.median(b / a for a, b in zip(alone, beside, strict=True))
    bench.bars.check("the engine's rate beside a server and 50 watchers", ratio, 0.9, is_least=True)


def _engine_alone(bench: Bench, runs: int) -> float:
    home, store = bench.home()
    with _service(home, store) as service:
        service.changes.create(_prepared(service, home, CHAIN), times=runs)
        with _workers(home, store, 1):
            return _rate(service, runs)


def _engine_beside(bench: Bench, runs: int, clients: int) -> float:
    home, store = bench.home()
    with _service(home, store) as service, server(home, store=store, worker=False) as running:
        return asyncio.run(_with_watchers(running, service, home, store, runs, clients))


async def _with_watchers(
    running: ServerProcess, service: Service, home: Path, store: str, runs: int, clients: int
) -> float:
    service.changes.create(_prepared(service, home, CHAIN), times=runs)
    watchers = Watchers()
    await watchers.connect(running.host, running.port, running.token, clients, "runs,run:1,pending")
    begun, used = time.perf_counter(), running.processor_seconds()
    with _workers(home, store, 1):
        rate = await asyncio.to_thread(_rate_of, service.home, runs)
        share = (running.processor_seconds() - used) / (time.perf_counter() - begun)
    sent = sum(client.bytes for client in watchers.clients) / clients / 1024
    print(f"    the server used {share:.0%} of a processor, and sent {sent:.0f} kB to each watcher")
    watchers.close()
    return rate


def _rate_of(home: Home, runs: int) -> float:
    with Service(home) as service:
        return _rate(service, runs)


def _rate(service: Service, runs: int) -> float:
    """Steps a second, from the first run that has ended to the last."""
    query, first, begun = RunQuery(statuses=("completed", "failed")), 0, 0.0
    while True:
        ended = service.runs.count(query)
        now = time.perf_counter()
        if ended and not first:
            first, begun = ended, now
        if ended >= runs:
            return 5 * (ended - first) / (now - begun)
        time.sleep(0.02)


@contextmanager
def _workers(
    home: Path, store: str, count: int, *, over: ServerProcess | None = None, token: str = ""
) -> Iterator[None]:
    environment = {**os.environ, **({"MULLIGAN_STORE": store} if store and over is None else {})}
    argv = [sys.executable, "-m", "mulligan", "worker"]
    if over is None:
        folders = [home] * count
    else:
        argv += ["--server", f"http://{over.host}:{over.port}", "--token", token]
        folders = [home.parent / f"remote-{number}" for number in range(count)]
    running = [
        subprocess.Popen(
            [*argv, "--home", str(folder)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for folder in folders
    ]
    try:
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(60)


_DRIVER = """
import sys
from pathlib import Path
from mulligan.engine.observers import NullObserver
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.home import Home
from mulligan.service.runs.stored.run_reader import RunReader
reader = RunReader(Home(Path(sys.argv[1]), sys.argv[2]))
with open_driver(reader, observer=NullObserver()) as driver:
    driver.serve()
"""


@contextmanager
def _driver(home: Path, store: str) -> Iterator[None]:
    """A worker beside the store that takes turns and runs no tasks."""
    process = subprocess.Popen([sys.executable, "-c", _DRIVER, str(home), store])
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


# -- remote workers ----------------------------------------------------------------------------------------------------


def measure_remote(bench: Bench) -> None:
    runs, rounds = (20, 1) if bench.is_small else (200, 3)
    direct, remote = [], []
    for _ in range(rounds):
        for found, is_remote in ((direct, False), (remote, True)):
            home, store = bench.home()
            with _service(home, store) as service, server(home, store=store, worker=False) as running:
                service.changes.create(_prepared(service, home, CHAIN), times=runs)
                token = asyncio.run(_worker_token(running)) if is_remote else ""
                with ExitStack() as stack:
                    if is_remote:
                        # Workers over HTTP decide nothing. A driver that runs no tasks leaves them to these.
                        stack.enter_context(_driver(home, store))
                    stack.enter_context(_workers(home, store, 2, over=running if is_remote else None, token=token))
                    found.append(_rate(service, runs))
    print(f"  steps/s direct {[round(one) for one in direct]}, over HTTP {[round(one) for one in remote]}")
    ratio = statistics.median(b / a for a, b in zip(direct, remote, strict=True))
    bench.bars.check("two remote workers beside two direct ones", ratio, 0.5, is_least=True)


async def _worker_token(running: ServerProcess) -> str:
    client = Connection(running.host, running.port, running.token)
    reply = await client.ask("POST", "/api/v1/tokens", {"user": "worker", "scopes": ["worker"]})
    assert reply.status in (200, 201), reply
    client.close()
    return str(reply.json["secret"])


# -- starting it -------------------------------------------------------------------------------------------------------


def measure_start(bench: Bench) -> None:
    spent = []
    for _ in range(2 if bench.is_small else 7):
        home, store = bench.home()
        running = start_server(home, store=store)
        spent.append(running.seconds)
        running.stop()
    print(f"  seconds to the address: {[round(one, 2) for one in spent]}")
    bench.bars.check("from the command to the address, median", statistics.median(spent), 2.0, "s")


# -- pages -------------------------------------------------------------------------------------------------------------

# The mosaic has its cells, and the text says why the run is as it is.
READY = "performance.getEntriesByName('run-data').length"
PAINTED = "performance.getEntriesByName('first-contentful-paint').length"


def measure_page(bench: Bench) -> None:
    """The page of a run with many steps in Chromium, the list of many runs, and how much larger the package is."""
    home, store = bench.home()
    home.mkdir(parents=True, exist_ok=True)
    opened = open_store(store or str(home / "mulligan.db"))
    steps, large_steps = (1_000, 12_000) if bench.is_small else (10_000, 100_000)
    run, large = SimulatedRun(opened, steps), SimulatedRun(opened, large_steps)
    run.advance(steps * 7 // 10)
    large.advance(large_steps * 7 // 10)
    with server(home, store=store, worker=False) as running, browser(running) as window:
        _page_of_a_run(bench, running, window, run, f"{steps:,} steps")
        _page_of_a_large_run(bench, window, large, f"{large_steps:,} steps")
    opened.close()
    _page_of_all_runs(bench)
    _package_size(bench)


def _page_of_a_run(bench: Bench, running: ServerProcess, window: Browser, run: SimulatedRun, title: str) -> None:
    window.open(f"/runs/{run.run_id}", READY).page.close()
    empty: list[float] = []
    worked = 0.0
    opened: list[OpenedPage] = []
    for _ in range(2 if bench.is_small else 7):
        # One at a time: pages that are still open ask for what changes.
        if opened:
            opened[-1].page.close()
        # A page with next to nothing, in turn with it: what Chromium itself takes on this machine now.
        nothing = window.open("/tokens", PAINTED)
        empty.append(nothing.first_paint)
        nothing.page.close()
        begun = running.processor_seconds()
        opened.append(window.open(f"/runs/{run.run_id}", READY))
        worked += running.processor_seconds() - begun
    first = opened[-1]
    print(
        f"    first paint of a page with next to nothing: {statistics.median(empty):.0f} ms; "
        f"the server worked {worked / len(opened) * 1000:.0f} ms for each view of the run"
    )
    bench.bars.check(f"{title}: first paint, median", statistics.median(one.first_paint for one in opened), 250, "ms")
    bench.bars.check(f"{title}: data, median", statistics.median(one.data for one in opened), 600, "ms")
    first.page.bring_to_front()
    first.page.evaluate("window.mulliganUpdates = []")
    for number in range(10 if bench.is_small else 100):
        run.advance(3)
        first.page.wait_for_function(f"() => window.mulliganUpdates.length > {number}", timeout=30_000)
    spent = sorted(first.page.evaluate("window.mulliganUpdates"))
    bench.bars.check(f"{title}: update, p95 of {len(spent)}", percentile(spent, 0.95), 16, "ms")
    bench.bars.check(f"{title}: heap", first.heap(), 20, "MB")
    print(f"    received {first.received():.0f} kB")
    first.page.close()


def _page_of_a_large_run(bench: Bench, window: Browser, run: SimulatedRun, title: str) -> None:
    """The server has not loaded it yet, as after a start."""
    opened = window.open(f"/runs/{run.run_id}", "document.getElementById('run-reason')")
    page = opened.page
    seen = page.wait_for_function(f"() => ({READY}) && performance.now()", timeout=60_000).json_value()
    bench.bars.check(f"{title}: it says why, run not loaded", opened.data, 2_000, "ms")
    bench.bars.check(f"{title}: all steps on the screen, run not loaded", seen, 2_000, "ms")
    page.wait_for_function("() => !document.getElementById('run-loading')", timeout=120_000)
    print(f"    it says what was tried after {page.evaluate('performance.now()'):.0f} ms")
    again = window.open(f"/runs/{run.run_id}", READY)
    bench.bars.check(f"{title}: all steps on the screen, run loaded", again.data, 2_000, "ms")
    page = again.page
    page.wait_for_function("() => document.getElementById('gantt-note').hidden", timeout=120_000)
    begun = time.perf_counter()
    page.evaluate("(view => view.scrollTop = view.scrollHeight / 2)(document.getElementById('gantt'))")
    page.wait_for_function(
        "() => { const rows = [...document.querySelectorAll('.gantt-row .name')].map((one) => one.textContent);"
        " return rows.length > 10 && !rows.includes('…'); }"
    )
    bench.bars.check(f"{title}: scrolled to the middle", (time.perf_counter() - begun) * 1000, 1_000, "ms")
    bench.bars.check(f"{title}: received", again.received(), 1_000, "kB")
    bench.bars.check(f"{title}: heap", again.heap(), 40, "MB")
    step = window.open(f"/runs/{run.run_id}/steps/s000777", "document.getElementById('part-attempts')")
    bench.bars.check(f"{title}: the first look at a step", step.data, 2_000, "ms")
    step.page.close()


def _page_of_all_runs(bench: Bench) -> None:
    runs = 2_000 if bench.is_small else 100_000
    home, store = bench.home()
    home.mkdir(parents=True)
    opened = open_store(store or str(home / "mulligan.db"))
    runs_list.fill(opened, runs)
    opened.close()
    with server(home, store=store, worker=False) as running:
        queries = {name: _path(query) for name, query in runs_list.queries(runs).items()}
        asyncio.run(_each_page(bench, running, queries, rounds=3 if bench.is_small else 7))


def _package_size(bench: Bench) -> None:
    """What the dashboard adds to the wheel, packed as a wheel is."""
    folder = Path(__file__).parent.parent / "src" / "mulligan" / "dashboard"
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    packed.write(path, path.relative_to(folder.parent.parent))
        size = file.tell() / 1e3
    bench.bars.check("the dashboard in the wheel", size, 500, "kB")


# -- together --------------------------------------------------------------------------------------------------------


@contextmanager
def _service(home: Path, store: str) -> Iterator[Service]:
    with Service(Home(home, store), "bench") as service:
        yield service


def _prepared(service: Service, home: Path, text: str):  # type: ignore[no-untyped-def]
    home.mkdir(parents=True, exist_ok=True)
    file = home.parent / "flow.yaml"
    file.write_text(text)
    return prepare(service.workflows.load_workflow(file), {}, home.parent)


MEASURES: dict[str, Callable[[Bench], None]] = {
    "start": measure_start,
    "list": measure_list,
    "streams": measure_streams,
    "starts": measure_starts,
    "engine": measure_engine,
    "remote": measure_remote,
    "page": measure_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=(*MEASURES, "all"))
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--small", action="store_true", help="a short run, to see that it works")
    parser.add_argument("--rounds", type=int, default=5, help="engine: how often each contestant runs")
    parser.add_argument("--worker", action="store_true", help="starts: beside a worker that drives the runs")
    asked = parser.parse_args()
    bars = Bars()
    for name in MEASURES if "all" in asked.what else asked.what:
        print(f"{name} ({asked.store}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors)", flush=True)
        with ExitStack() as stack:
            MEASURES[name](Bench(asked, bars, stack))
    bars.print_table()
    return 1 if bars.is_missed else 0


if __name__ == "__main__":
    sys.exit(main())
