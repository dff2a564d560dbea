"""Questions of `nl2sql` under trouble, with real processes: what they take, and what is left of them.

    python bench/questions.py deadline     # a deadline of 1 s inside of a query that never ends: when does it return?
python bench/questions.py hung         # 100 queries that never end, then one that does: processes left
python bench/questions.py kills        # kill -9 at every commit of a question, then resume: answers, calls repeated
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import mulligan
from mulligan.ports.fault_points import fault_listeners
from mulligan_nl2sql import Limits, Policy, QueryFailed, execute, parse_url, read_schema
from mulligan_nl2sql.command_line import main as nl2sql

COMMAND = (sys.executable, "-m", "mulligan_nl2sql.command_line")
ENDLESS = "select count(*) as n from " + ", ".join(f"customers c{n}" for n in range(10))
GOOD = "select count(*) as n from customers"
ROUNDS = 5
HUNG_QUERIES, PARALLEL, HUNG_SECONDS = 100, 4, 0.5


@contextmanager
def folder_with_shop() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="questions-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "mulligan_nl2sql.demo.shop", "shop.db"], cwd=folder, check=True)
        (folder / "policy.toml").write_text("[databases.shop.limits]\nseconds = 600\ncost = 1e300\n")
        (folder / "script.toml").write_text(f'[[answers]]\nsql = "{ENDLESS}"\n')
        yield folder


def processes_of(folder: Path) -> list[int]:
    """The processes that have a file of the folder open, or work there."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            links = [os.readlink(link) for link in (path / "fd").iterdir()] + [os.readlink(path / "cwd")]
        except OSError:
            continue
        if any(link.startswith(str(folder)) for link in links):
            found.append(int(path.name))
    return found


def measure_deadline() -> None:
    with folder_with_shop() as folder:
        environment = {**os.environ, "NL2SQL_SCRIPT": "script.toml", "MULLIGAN_HOME": str(folder / "home")}
        question = ("ask", "how many?", "--db", "sqlite:///shop.db", "--planner", "scripted", "--policy", "policy.toml")
        times = []
        for _ in range(ROUNDS):
            started = time.monotonic()
            ended = subprocess.run(
                [*COMMAND, *question, "--deadline", "1s"], cwd=folder, env=environment, capture_output=True
            )
            times.append(time.monotonic() - started)
            assert ended.returncode == 124, ended.stderr.decode()
            assert processes_of(folder) == []
    shown = " ".join(f"{seconds:.2f}" for seconds in sorted(times))
    print(f"deadline 1 s, a query that never ends: returned after {shown} s; exit code 124; no process left")


def measure_hung() -> None:
    with folder_with_shop() as folder:
        database = parse_url(f"sqlite:///{folder}/shop.db")
        schema = read_schema(database, Policy())
        policy = Policy(limits=Limits(seconds=HUNG_SECONDS, cost=1e300))

        def hang(number: int) -> str:
            try:
                execute(database, ENDLESS, schema, policy, file=folder / f"{number}.jsonl")
            except QueryFailed as failure:
                return failure.code
            return ""

        started = time.monotonic()
        with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
            codes = list(pool.map(hang, range(HUNG_QUERIES)))
        seconds = time.monotonic() - started
        left = [pid for pid in processes_of(folder) if pid != os.getpid()]
        healthy = execute(database, GOOD, schema, Policy(), file=folder / "rows.jsonl")
    print(
        f"{HUNG_QUERIES} queries that never end, {PARALLEL} at once, limit {HUNG_SECONDS:g} s: {set(codes)} in"
        f" {seconds:.1f} s; {len(left)} processes left; the next query: {healthy.rows} row"
    )


# -- kill -9 ---------------------------------------------------------------------------------------------------------


class Model(ThreadingHTTPServer):
    """Writes a wrong statement first, and repairs it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests = 0


class _Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.requests += 1
        sql = GOOD if "failed with" in asked else "select nam from customers"
        message = {"content": json.dumps({"sql": sql})}
        data = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def be_killed(number: int) -> int:
    """Ask, and die at the commit with this number; 0 lives, and says how many there were."""
    commits = 0

    def passed(point: str) -> None:
        nonlocal commits
        commits += point == "after_commit"
        if point == "after_commit" and commits == number:
            os.kill(os.getpid(), signal.SIGKILL)

    fault_listeners.append(passed)
    code = nl2sql(["ask", "how many customers?", "--db", "sqlite:///shop.db", "--planner", "openai", "--json"])
    print(commits, file=sys.stderr)
    return code


def recorded_plans(home: Path) -> int:
    """How many answers of the model are in the logs of the scans."""
    with mulligan.Home(home) as opened:
        if not list(opened.runs()):
            return 0
        scans = opened.get(1).children
        return sum(one.status == "succeeded" for scan in scans for one in scan.steps["plan"].attempts)


def measure_kills() -> None:
    with folder_with_shop() as folder, Model() as model:
        Thread(target=model.serve_forever, args=(0.01,), daemon=True).start()
        environment = {
            **os.environ,
            "OPENAI_BASE_URL": f"http://127.0.0.1:{model.server_port}/v1",
            "NL2SQL_MODEL": "stub",
            "MULLIGAN_HOME": str(folder / "home-0"),
        }
        this = (sys.executable, os.path.abspath(__file__), "be-killed")
        undisturbed = subprocess.run([*this, "0"], cwd=folder, env=environment, capture_output=True, check=True)
        expected, commits = json.loads(undisturbed.stdout)["results"], int(undisturbed.stderr.split()[-1])
        needed = model.requests
        started = time.monotonic()
        same = repeated = lost = killed = 0
        for number in range(1, commits + 1):
            environment["MULLIGAN_HOME"] = str(folder / f"home-{number}")
            model.requests = 0
            died = subprocess.run([*this, str(number)], cwd=folder, env=environment, capture_output=True)
            killed += died.returncode == -signal.SIGKILL
            asked, recorded = model.requests, recorded_plans(folder / f"home-{number}")
            resumed = subprocess.run(
                [*COMMAND, "resume", "1", "--json"], cwd=folder, env=environment, capture_output=True
            )
            answer = json.loads(resumed.stdout)
            is_same = resumed.returncode == 0 and answer["results"] == expected
            same += is_same
            if not is_same:
                print(f"killed at commit {number}: {answer['status']}: {answer['failure']}", file=sys.stderr)
            lost += asked - recorded
            repeated += model.requests - asked - (needed - recorded)
        seconds = time.monotonic() - started
    print(
        f"kill -9 at each of {commits} commits: {killed} killed, {same} resumed with the same answer,"
        f" {repeated} recorded calls of the model repeated, {lost} that were under way asked again; {seconds:.0f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["deadline", "hung", "kills", "be-killed"])
    parser.add_argument("number", nargs="?", type=int, default=0)
    given = parser.parse_args()
    if given.what == "be-killed":
        return be_killed(given.number)
    {"deadline": measure_deadline, "hung": measure_hung, "kills": measure_kills}[given.what]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
