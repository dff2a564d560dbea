"""Makes the stores of this folder with Mulligan 0.1.0. The README says how to call it; no test does.

Runs of `workflows/` are left in every state a run can be in; the examples of the release are run to their ends. Those
that are killed are killed last and together: another command of 0.1.0 would notice that they are dead.
"""

from __future__ import annotations

import io
import lzma
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

# Of 0.1.0: later releases have no such function.
from mulligan.testing.postgres import installed_programs, own_server  # type: ignore[attr-defined]

HERE = Path(__file__).parent
FOLDER = Path("/tmp/golden")
# Steps run here, now and when a test goes on with them: every machine has it.
WHERE = "/"
SCHEMA = "mulligan_golden"
KILLED = ("running", "backoff", "map", "parent", "loop", "breaker")
# They need a server, an agent, files of their own, or minutes.
EXAMPLES_WITHOUT = ("# inputs:", "# env:", "# folder:", "sleep 1", "timeout: 1m")


class Release:
    """The command line of the release, over one store."""

    def __init__(self, mulligan: Path, store: str) -> None:
        self.mulligan = str(mulligan)
        self.home = FOLDER / "home"
        self.environment = {
            **{"PATH": f"{mulligan.parent}:/usr/bin:/bin", "HOME": str(FOLDER), "LANG": "C.UTF-8", "GATE": ""},
            **{"MULLIGAN_HOME": str(self.home), "MULLIGAN_BY": "ann", "MULLIGAN_CGROUP": ""},
            **({"MULLIGAN_STORE": store} if store else {}),
        }

    def call(self, *words: str, cwd: str = WHERE) -> None:
        done = subprocess.run(
            [self.mulligan, *words], cwd=cwd, env=self.environment, stdin=subprocess.DEVNULL, check=False, timeout=30
        )
        print(words, "->", done.returncode, flush=True)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """A process that runs the workflow, once its step is under way."""
        started = FOLDER / f"started-{name}"
        process = subprocess.Popen(
            [self.mulligan, "run", str(FOLDER / "workflows" / f"{name}.yaml")],
            cwd=WHERE,
            env={**self.environment, "STARTED": str(started)},
            stdin=subprocess.DEVNULL,
        )
        while not started.exists():
            assert process.poll() is None
            time.sleep(0.05)
        return process


def leave_runs(release: Release, examples: Path) -> None:
    workflows = FOLDER / "workflows"
    for name in ("completed", "failed", "parked", "approval", "partly", "artifacts"):
        release.call("run", str(workflows / f"{name}.yaml"))
    run_examples(release, examples)
    pause(release)
    cancel(release)
    processes = [release.start(name) for name in KILLED]
    # The retry of 'backoff' and the open breaker are on the disk by then.
    time.sleep(3)
    for process in processes:
        process.kill()
        process.wait()


def run_examples(release: Release, examples: Path) -> None:
    for path in sorted(examples.glob("*.yaml")):
        text = path.read_text()
        if path.stem in ("artifacts", "breaker", "breaker-fail", "sub-workflow-child") or any(
            word in text for word in EXAMPLES_WITHOUT
        ):
            continue
        folder = FOLDER / "examples" / path.stem
        folder.mkdir(parents=True)
        release.call("run", str(path), "--wait", "5s", cwd=str(folder))


def pause(release: Release) -> None:
    process = release.start("paused")
    release.call("pause", newest(release), "--reason", "maintenance")
    (FOLDER / "started-paused.end").touch()
    process.wait()


def cancel(release: Release) -> None:
    process = release.start("cancelled")
    release.call("cancel", newest(release), "--reason", "wrong day")
    process.wait()


def newest(release: Release) -> str:
    """The number of the run that was started last."""
    command = [release.mulligan, "list", "-n", "1", "--json"]
    said = subprocess.run(command, cwd=WHERE, env=release.environment, stdout=subprocess.PIPE, check=True).stdout
    return said.decode().partition('"run_id":')[2].partition(",")[0].strip()


def keep_home(release: Release, target: Path) -> None:
    """The home as the killed processes left it, with the log that is not in the file yet."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path in sorted(release.home.rglob("*")):
            if path.is_file() and not path.name.endswith("-shm") and "logs" not in path.parts:
                found = archive.gettarinfo(str(path), str(path.relative_to(release.home)))
                found.uid = found.gid = 0
                found.uname = found.gname = ""
                with path.open("rb") as content:
                    archive.addfile(found, content)
    target.write_bytes(lzma.compress(file.getvalue(), preset=9))


def keep_schema(url: str, target: Path) -> None:
    dump = [str(installed_programs() / "pg_dump"), "--no-owner", "--no-privileges", f"--schema={SCHEMA}"]
    said = subprocess.run([*dump, "--inserts", "--rows-per-insert=200", url], stdout=subprocess.PIPE, check=True).stdout
    # Without what only psql or the newest servers read.
    left_out = (b"\\", b"--", b"SET transaction_timeout")
    lines = [line for line in said.splitlines() if not line.startswith(left_out)]
    target.write_bytes(lzma.compress(b"\n".join(line for line in lines if line) + b"\n", preset=9))


@contextmanager
def schema() -> Iterator[tuple[str, str]]:
    """The URL of a server, and of an empty schema there."""
    with own_server() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {SCHEMA}")
        yield server.url, f"{server.url}&options=-csearch_path%3D{SCHEMA}"


def main(checkout: Path) -> None:
    for kind in ("sqlite", "postgres"):
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(HERE / "workflows", FOLDER / "workflows")
        shutil.copytree(checkout / "examples", FOLDER / "source")
        mulligan = checkout / ".venv" / "bin" / "mulligan"
        if kind == "sqlite":
            release = Release(mulligan, "")
            leave_runs(release, FOLDER / "source")
            keep_home(release, HERE / "home.tar.xz")
        else:
            with schema() as (server, url):
                leave_runs(Release(mulligan, url), FOLDER / "source")
                keep_schema(server, HERE / "postgres.sql.xz")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
