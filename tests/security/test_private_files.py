"""Whatever the mask of the terminal says: what we write of a run is for its owner alone, and its owner can read it."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from .outside import SRC, START, Outside

# Every kind of file: small and large outputs, both logs, side files, a secret's pipes, a warm child, an agent's
# prompt, a failure's context. `look` sees what is there while steps run.
RICH = """
name: rich
secrets: {token: {env: TOKEN}}
steps:
  - {step: large, shell: "head -c 200000 /dev/zero | tr '\\\\0' a"}
  - {step: talks, shell: "echo out; echo err >&2; exit 1", on_failure: "echo handled; echo too >&2"}
  - {step: secret, shell: "echo $TOKEN; echo $TOKEN >&2", env: {TOKEN: "${secrets.token}"}}
  - step: warm
    python: |
      import sys
      def main():
          print("out")
          print("err", file=sys.stderr)
  - {step: fed, shell: cat, stdin: hello}
  - {step: asked, agent: {provider: cat, prompt: what is the time}}
  - {step: fails, shell: "false", next: {to: mends, on: failure}}
  - {step: mends, shell: "test -s $MULLIGAN_FAILURE_CONTEXT"}
  - step: look
    shell: |
      # A file of another step may be gone when it is looked at.
      find ../.. "$TMPDIR" -ignore_readdir_race -printf '%m %y %p\\n'
    cwd: .mulligan/runs/1
    capture: lines
    stdin: hello
"""
OWNERS_ALONE = {"f": 0o600, "d": 0o700, "s": 0o600, "p": 0o600}
# The program in a worker's folder with which steps find `mulligan`.
PROGRAM = re.compile(r"f .*/workers/[^/]+/mulligan")


def wanted_mode(path: str) -> int:
    return 0o700 if PROGRAM.fullmatch(path) else OWNERS_ALONE[path[0]]


def found_in(folder: Path) -> Iterator[tuple[int, str]]:
    """The mode and the path of all that is in a folder."""
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        yield stat.S_IMODE(mode), ("d" if stat.S_ISDIR(mode) else "f") + f" {path}"


@pytest.mark.parametrize("umask", [0, 0o777], ids=["that forbids nothing", "that forbids all"])
def test_all_that_a_run_leaves_and_has_meanwhile_is_its_owners_alone_under_a_mask(outside: Outside, umask: int) -> None:
    ran = outside.ran(RICH, umask=umask, TOKEN="tok-4711-example", MULLIGAN_AGENT_CAT="cat")

    meanwhile = [line.split(" ", 1) for line in ran["steps"]["look"]["output"]]
    here = [(int(mode, 8), told) for mode, told in meanwhile if not told.endswith(str(outside.temporary))]
    others = [(mode, path) for mode, path in (*here, *found_in(outside.home)) if mode != wanted_mode(path)]
    assert ran["status"] == "completed"
    assert others == []


def test_all_that_a_server_and_its_worker_write_is_its_owners_alone(outside: Outside) -> None:
    outside.ran("steps: [{step: one, shell: 'true'}]", umask=0)
    secret = outside.run("token", "create", "ada", "--scope", "write", umask=0).stdout.decode().strip()
    command = [sys.executable, "-I", "-c", START, str(SRC), "server", "--port", "0", "--log-format", "json"]
    with subprocess.Popen(
        command, cwd=outside.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, umask=0, text=True
    ) as server:
        assert server.stdout is not None
        url = next(match[0] for line in server.stdout if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
        asked = urllib.request.Request(
            f"{url}/api/v1/runs",
            json.dumps({"text": "name: served\nsteps: [{step: one, shell: echo hello}]"}).encode(),
            {"authorization": f"Bearer {secret}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert answer.status == 201
        ended = outside.run("wait", "2", umask=0)
        meanwhile = [*found_in(outside.home)]
        server.terminate()
        server.stdout.read()

    assert ended.returncode == 0, ended.stderr
    work = str(outside.home / "work")
    others = [(mode, path) for mode, path in (*meanwhile, *found_in(outside.home)) if mode != wanted_mode(path)]
    assert [(oct(mode), path) for mode, path in others if not path[2:].startswith(f"{work}/")] == []


def test_the_folders_above_a_home_that_are_made_for_it_are_its_owners_alone_too(outside: Outside) -> None:
    outside.ran("steps: [{step: one, shell: 'true'}]", "--home", "a/b/c", umask=0)

    assert {mode for mode, _ in found_in(outside.folder / "a")} == {0o700, 0o600}


def test_a_report_is_its_owners_alone_and_one_that_is_replaced_keeps_the_rights_that_it_was_given(
    outside: Outside,
) -> None:
    outside.ran("steps: [{step: one, shell: 'true'}]")
    shared = outside.write("shared.html", "")
    shared.chmod(0o644)

    outside.run("report", 1, "-o", "own.html", umask=0)
    outside.run("report", 1, "-o", "shared.html", umask=0)

    assert stat.S_IMODE((outside.folder / "own.html").stat().st_mode) == 0o600
    assert stat.S_IMODE(shared.stat().st_mode) == 0o644


def test_what_a_step_writes_has_the_mode_that_its_own_mask_gives_it(outside: Outside) -> None:
    ran = outside.ran("steps: [{step: ask, shell: umask}]", umask=0o027)

    assert ran["steps"]["ask"]["output"] == "0027"
