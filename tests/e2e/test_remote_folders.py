"""A remote worker on a host that has no folder of the server: a mount namespace in which the server's home is empty."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mulligan.core.model import events as e
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.server.catalogue.texts import WorkflowText, read_text
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service

_MULLIGAN = (sys.executable, "-P", "-m", "mulligan")
_ALONE = ("unshare", "--mount", "--uts", "sh", "-c")


def _can_hide() -> bool:
    words = [*_ALONE, "hostname there && mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not _can_hide(), reason="mount namespaces are for root on Linux")

# Everything runs on the other host.
FLOW = """
name: everywhere
defaults: {resources: {labels: [there]}}
secrets: {word: {file: word.txt}}
inputs: {url: {type: string}}
steps:
  - {step: where, shell: pwd; cat given.txt, reads: [given.txt]}
  - {step: write, needs: [where], shell: echo 5 | tee five.txt, writes: [five.txt], logs: {stdout: write.log}}
  - {step: below, needs: [write], shell: mkdir -p sub && cd sub && cat ../five.txt}
  - {step: inside, needs: [below], cwd: sub, shell: cat ../five.txt}
  - step: python
    needs: [write]
    python: |
      import os, here
      def main():
          return {"cwd": os.getcwd(), "five": open("five.txt").read().strip(), "here": here.NAME}
  - step: classes
    python: |
      import os, here
      def main():
          errors = {"1": here.Refused("no"), "2": ConnectionResetError("by peer")}
          if os.environ["MULLIGAN_ATTEMPT"] in errors:
              raise errors[os.environ["MULLIGAN_ATTEMPT"]]
          return os.environ["MULLIGAN_ATTEMPT"]
    retry:
      rules:
        - {exceptions: [here.Refused], max_retries: 1, delay: 1ms}
        - {exceptions: [builtins.ConnectionError], max_retries: 1, delay: 1ms}
  - {step: query, needs: [write], sql: {connection: 'sqlite:///numbers.db', query: select 2 + 3 as five}}
  - {step: ask, http: {url: '${inputs.url}/healthz'}}
  - {step: agent, agent: {provider: scripted, prompt: say hello}}
  - {step: large, python: 'def main(): return "x" * 300000'}
  - step: read_large
    needs: [large]
    python: 'def main(text): return len(text)'
    args: {text: '${steps.large.output}'}
  - {step: keep, shell: echo kept > "$MULLIGAN_OUTPUT_DIR/kept.txt"}
  - {step: secret, shell: 'test "$WORD" = swordfish', env: {WORD: '${secrets.word}'}}
  - {step: each, map: {over: '[1, 2, 3]'}, do: ['test -e given.txt && echo ${item}']}
  - step: listed
    needs: [write]
    map: {over: {file: five.txt}}
    do: ['echo ${item} > listed.txt']
    writes: [listed.txt]
  - {step: fragile, needs: [write], shell: test -e repaired, on_failure: {commands: [touch repaired], rerun: 1}}
  - {step: call, needs: [write], workflow: child.yaml}
"""
CHILD = """
name: child
defaults: {resources: {labels: [there]}}
steps:
  - {step: read, shell: cat five.txt}
outputs: {five: '${steps.read.output}'}
"""


class Other:
    """A server, and the command line of another host on which its home is empty."""

    def __init__(self, folder: Path) -> None:
        self.home, self.other = folder / "server" / "home", folder / "other"
        self.other.mkdir()
        self.home.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")}
        self.environment = {**kept, "MULLIGAN_LEASE": "5s", "MULLIGAN_AGENT_SCRIPTED": "cat given.txt"}
        self._processes: list[subprocess.Popen[str]] = []
        with (folder / "server.log").open("ab") as log:
            words = [*_MULLIGAN, "server", "--home", str(self.home), "--port", "0", "--json"]
            self.server = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, env=self.environment, cwd=folder / "server", text=True
            )
        self._processes.append(self.server)
        assert self.server.stdout is not None
        first = json.loads(self.server.stdout.readline())
        self.url, self.token = first["url"], first["token"]
        self._log = folder / "worker.log"

    @property
    def work(self) -> Path:
        """The folder of the worker for runs of the server."""
        return self.other / "servers" / urlsplit(self.url).netloc.replace(":", "_") / "work"

    def start_worker(self, *words: str, home: str = "") -> subprocess.Popen[str]:
        with Service(Home(self.home)) as service:
            token = service.tokens.create(TokenForm(user="builder", scopes=("worker",))).secret
        command = shlex.join([*_MULLIGAN, "worker", "--server", self.url, "--home", home or str(self.other), *words])
        hidden = f"hostname there && mount -t tmpfs none {shlex.quote(str(self.home.parent))} && exec {command}"
        before = self._count_there()
        with self._log.open("ab") as log:
            worker = subprocess.Popen(
                [*_ALONE, hidden],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**self.environment, "MULLIGAN_TOKEN": token, "PYTHONPATH": str(self.work)},
                cwd=self.other,
                text=True,
            )
        self._processes.append(worker)
        until(lambda: self._count_there() > before or worker.poll() is not None)
        assert worker.poll() is None, self._log.read_text()
        return worker

    def _count_there(self) -> int:
        # The worker of the server may be registered a moment after this one.
        return sum(worker["host"] == "there" for worker in self.ask("GET", "workers")["workers"])

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = HTTPConnection(urlsplit(self.url).netloc)
        try:
            sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), sent)
            reply = connection.getresponse()
            answer = reply.read()
            assert reply.status < 300, answer
            return json.loads(answer)
        finally:
            connection.close()

    def ended(self, run_id: int) -> Any:
        until(lambda: self.ask("GET", f"runs/{run_id}")["status"] in ("completed", "failed", "cancelled"))
        return self.ask("GET", f"runs/{run_id}")

    def close(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
        assert self.server.stdout is not None
        self.server.stdout.close()


def until(is_so: Callable[[], Any]) -> None:
    """Wait for something that another process does; a test that waits for long fails by its assertion."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Other]:
    found = Other(tmp_path)
    yield found
    found.close()


def test_every_action_of_a_run_of_the_server_works_in_the_folder_of_its_worker(other: Other, tmp_path: Path) -> None:
    other.work.mkdir(parents=True)
    (other.work / "given.txt").write_text("given\n")
    (other.work / "word.txt").write_text("swordfish")
    (other.work / "here.py").write_text("NAME = 'there'\nclass Refused(ValueError): pass\n")
    other.start_worker("--labels", "there")
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    (tmp_path / "child.yaml").write_text(CHILD)

    said = subprocess.run(
        [*_MULLIGAN, "run", str(flow), "--json", "-i", f"url={other.url}"],
        env={**other.environment, "MULLIGAN_SERVER": other.url, "MULLIGAN_TOKEN": other.token},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert said.stdout, said.stderr
    shown = json.loads(said.stdout)
    failures = {name: step.get("failure") for name, step in shown["steps"].items() if step["status"] != "completed"}
    assert (said.returncode, failures) == (0, {}), said.stderr
    outputs = {name: step.get("output") for name, step in shown["steps"].items()}
    assert outputs["where"] == f"{other.work}\ngiven"
    assert outputs["python"] == {"cwd": str(other.work), "five": "5", "here": "there"}
    # Each class is matched by the rule that names it, or a base of it: the worker reports them.
    assert outputs["classes"] == "3"
    assert outputs["inside"] == "5"
    assert outputs["read_large"] == 300000
    assert outputs["agent"]["content"] == "given"
    assert outputs["each"]["results"] == ["1", "2", "3"]
    assert (other.work / "write.log").exists()


@pytest.mark.nightly
def test_the_doctor_counts_the_workers_of_a_server(other: Other) -> None:
    other.start_worker()

    said = subprocess.run(
        [*_MULLIGAN, "doctor", "--json"],
        env={**other.environment, "MULLIGAN_SERVER": other.url, "MULLIGAN_TOKEN": other.token},
        cwd=other.other,
        capture_output=True,
        text=True,
    )

    found = {check["name"]: check["found"] for check in json.loads(said.stdout)["checks"]}
    assert "workers: 2 of this version" in found["versions"], said.stderr


WORKTREE = """
name: edit
workspace: {git: worktree, branch: 'agents/${run.id}', merge: none}
steps:
  - {step: change, shell: echo 2 >> base}
  - step: files
    needs: [change]
    map: {over: '["x", "y"]'}
    workspace: {git: worktree}
    do: ['echo ${item} > ${item}.txt', 'cat base ${item}.txt']
"""


@pytest.mark.nightly
def test_all_steps_of_a_run_work_where_its_worktree_is(other: Other) -> None:
    for folder in (other.work, other.home / "work"):
        folder.mkdir(parents=True)
        (folder / "base").write_text("1\n")
        for words in ("init -q -b main", "add base", "-c user.name=T -c user.email=t@example.org commit -q -m base"):
            subprocess.run(["git", *words.split()], cwd=folder, check=True)
    other.start_worker("--parallel", "2")
    other.ask("PUT", "workflows/edit", {"text": WORKTREE})

    runs = [other.ask("POST", "runs", {"workflow": "edit"})["run_id"] for _ in range(3)]

    ended = [other.ended(run_id) for run_id in runs]
    assert [(run["status"], run["failures"]) for run in ended] == [("completed", [])] * 3


def start(service: Service, text: str, folder: Path) -> int:
    """A run that was started by somebody in that folder."""
    [run_id] = service.changes.create(prepare(read_text(WorkflowText(text, "flow.yaml")).workflow, {}, folder))
    return run_id


STEPS = "name: many\nsteps:\n" + "".join(f"  - {{step: s{n}, shell: cat here.txt}}\n" for n in range(12))


@pytest.mark.nightly
def test_only_workers_that_have_the_folder_of_a_run_lease_its_tasks(other: Other) -> None:
    project = other.home.parent / "project"
    project.mkdir()
    (project / "here.txt").write_text("here")
    other.start_worker("--parallel", "8")
    runs = []
    with Service(Home(other.home)) as service:
        for _ in range(3):
            runs.append(start(service, STEPS, project))

    ended = [other.ended(run_id) for run_id in runs]

    assert [one["status"] for one in ended] == ["completed"] * 3
    with Service(Home(other.home)) as service:
        facts = [entry.fact for run_id in runs for entry in service.reader.events(run_id)]
    there = [fact for fact in facts if isinstance(fact, e.AttemptStarted) and fact.host == "there"]
    given_back = [fact for fact in facts if isinstance(fact, e.AttemptInterrupted)]
    # It finds out once, with what it has leased at once.
    assert len(there) == len(given_back) <= 8
    assert all(str(project) in fact.reason for fact in given_back)


@pytest.mark.nightly
def test_a_run_of_an_older_server_in_its_own_folder_runs_on_a_worker_elsewhere(other: Other) -> None:
    other.work.mkdir(parents=True)
    (other.work / "here.txt").write_text("here")
    other.start_worker("--labels", "there")
    text = "name: old\nsteps: [{step: read, shell: cat here.txt, resources: {labels: [there]}}]"
    with Service(Home(other.home)) as service:
        run_id = start(service, text, other.home / "work")

    assert other.ended(run_id)["status"] == "completed"


PROGRAM = """
import os
from mulligan import approve, program, sleep, step

there = {"labels": ["there"]}


@step(resources=there)
def note(text: str) -> str:
    with open("notes", "a") as notes:
        notes.write(text)
    return os.uname().nodename


@program(resources=there)
def far(text: str):
    print("begins", flush=True)
    where = note(text)
    print("asks", flush=True)
    approve("go on?")
    sleep(0.05)
    print("ends", flush=True)
    return where + note("!")
"""


@pytest.mark.nightly
def test_a_program_goes_on_on_another_remote_worker_when_its_own_was_killed(other: Other, tmp_path: Path) -> None:
    other.work.mkdir(parents=True)
    (tmp_path / "far.py").write_text(PROGRAM)
    environment = {**other.environment, "MULLIGAN_SERVER": other.url, "MULLIGAN_TOKEN": other.token}

    def mulligan(*words: str) -> str:
        said = subprocess.run([*_MULLIGAN, *words], env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        return said.stdout

    mulligan("publish", "far.py")
    first = other.start_worker("--labels", "there")
    run_id = other.ask("POST", "runs", {"workflow": "far", "inputs": {"text": "hello"}})["run_id"]
    until(lambda: any(wait["kind"] == "approval" for wait in other.ask("GET", f"runs/{run_id}")["waiting_for"]))
    first.kill()
    first.wait()
    # It has no file of the first one.
    other.start_worker("--labels", "there", home=str(tmp_path / "third"))
    mulligan("approve", str(run_id), "approve", "--reason", "fine")

    ended = other.ended(run_id)

    assert (ended["status"], ended["outputs"]) == ("completed", {"result": "therethere"}), ended["failures"]
    notes = [path.read_text() for path in sorted(tmp_path.rglob("notes"))]
    assert notes == ["hello", "!"]
    printed = [line.rpartition("| ")[2] for line in mulligan("logs", str(run_id), "far").splitlines()]
    assert [line for line in printed if line in ("begins", "asks", "ends")] == ["begins", "asks", "ends"], printed


SALES = """
from pathlib import Path
import regions
from mulligan import flow, step

there = {"labels": ["there"]}


@step(resources=there, reads=["data/rows.csv"])
def fetch(region: str) -> int:
    rows = Path("data/rows.csv").read_text().split()
    Path("seen.txt").write_text(region)
    return regions.size(region) + len(rows)


@flow
def region(name: str):
    return fetch(name)


@flow
def nightly():
    return region.map(["north", "south"]).results
"""


@pytest.mark.nightly
def test_a_project_is_published_and_a_remote_worker_without_its_files_runs_it(other: Other, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "sales.py").write_text(SALES)
    (project / "regions.py").write_text("def size(name):\n    return len(name)\n")
    (project / "data" / "rows.csv").write_text("a\nb\n")
    environment = {**other.environment, "MULLIGAN_SERVER": other.url, "MULLIGAN_TOKEN": other.token}

    def publish(*words: str) -> Any:
        command = [*_MULLIGAN, "publish", "sales.py:nightly", "--json", *words]
        said = subprocess.run(command, env=environment, cwd=project, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)

    dry, first, again = publish("--dry-run"), publish(), publish()
    shutil.rmtree(project)
    other.start_worker("--labels", "there")
    runs = [other.ask("POST", "runs", {"workflow": "nightly"})["run_id"] for _ in range(2)]

    ended = [other.ended(run_id) for run_id in runs]

    assert [(one["version"], one["is_new"]) for one in (dry, first, again)] == [(1, True), (1, True), (1, False)]
    assert [one["path"] for one in dry["files"]] == ["data/rows.csv", "regions.py", "sales.py"]
    assert [(one["status"], one["outputs"]) for one in ended] == [("completed", {"result": [7, 7]})] * 2
    home = other.work.parent
    digest = first["digest"].removeprefix("files:")
    assert [path.name for path in (home / "bundles").iterdir()] == [digest]
    assert not (home / "bundles" / digest / "seen.txt").exists()
    assert (home / "work" / digest[:16] / "seen.txt").exists()
