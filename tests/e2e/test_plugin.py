"""The plugin in examples/, as its users have it: installed, without a network, beside us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mulligan

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


# By day one test installs it.
@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the plugin is: a folder on the path."""
    folder = tmp_path_factory.mktemp("installed")
    words = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *words, "--target", str(folder), str(EXAMPLE)], check=True)
    return folder


def command(folder: Path, *words: str, installed: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = [str(Path(mulligan.__file__).parents[1]), *([str(installed)] if installed else [])]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MULLIGAN_")}
    environment["PYTHONPATH"] = os.pathsep.join(path)
    line = [sys.executable, "-m", "mulligan", *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)


def test_a_workflow_runs_with_the_action_that_the_package_adds(tmp_path: Path, installed: Path) -> None:
    said = command(tmp_path, "run", str(EXAMPLE / "checked.yaml"), "--json", installed=installed)

    assert said.returncode == 0, said.stderr
    ran = json.loads(said.stdout)
    assert ran["steps"]["check"]["output"] == {"checksum": HELLO, "bytes": 5}
    logs = command(tmp_path, "logs", "1", "check", installed=installed)
    assert f"{HELLO}  fetched.txt\n" in logs.stdout


@pytest.mark.nightly
def test_its_own_failure_climbs_the_ladder(tmp_path: Path, installed: Path) -> None:
    file = str(EXAMPLE / "checked.yaml")

    said = command(tmp_path, "run", file, "-i", "expect=abc", "--json", installed=installed)

    ran = json.loads(said.stdout)
    failure = ran["failures"][0]
    assert (said.returncode, ran["degraded"]) == (0, True)
    assert (failure["code"], failure["message"]) == ("CHECKSUM_WRONG", "'fetched.txt' is not what it should be")
    assert (failure["details"]["found"], failure["details"]["expected"]) == (HELLO, "abc")
    assert (tmp_path / "refused.txt").read_text() == "hello"


@pytest.mark.nightly
def test_the_schema_for_editors_has_its_keys(tmp_path: Path, installed: Path) -> None:
    said = command(tmp_path, "schema", installed=installed)

    found = json.loads(said.stdout)["$defs"]
    assert found["action_checksum"]["required"] == ["file"]
    assert {"required": ["checksum"]} in found["step"]["oneOf"]


def test_where_it_is_not_installed_its_key_is_unknown(tmp_path: Path) -> None:
    said = command(tmp_path, "validate", str(EXAMPLE / "checked.yaml"))

    assert said.returncode == 2
    assert "'checksum' is not a key of step 'check'" in said.stderr


@pytest.mark.nightly
def test_a_worker_that_does_not_have_it_says_what_to_install(tmp_path: Path, installed: Path) -> None:
    asking = "name: asking\nsteps: [{step: ask, approve: go on?}, {step: check, needs: [ask], checksum: here.txt}]"
    (tmp_path / "asking.yaml").write_text(asking)
    command(tmp_path, "run", "asking.yaml", installed=installed)

    said = command(tmp_path, "approve", "1", "ask", "--reason", "yes", "--follow", "--json")

    failure = json.loads(command(tmp_path, "show", "1", "--json").stdout)["failures"][0]
    assert said.returncode == 1
    assert (failure["code"], failure["retryable"]) == ("INPUT_INVALID", False)
    assert failure["message"] == (
        "this worker does not have 'mulligan_checksum:run' of 'mulligan-checksum': "
        "install it where the worker runs (pip install 'mulligan-checksum')"
    )
