"""Finding and building environments: once, under a lock, keyed by what requirements resolve to, and never half."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mulligan.cache_folder import cache_folder
from mulligan.worker.environments.environment_builder import Builder
from mulligan.worker.environments.environment_cache import (
    Busy,
    find_unused,
    is_ready,
    lock_folder,
    note_use,
    python_in,
    remove_unused,
)
from mulligan.worker.environments.installers import InstallFailed

from .wheels import OFFLINE_PIP, OFFLINE_UV, FakePython, FakeUv, make_wheel

REAL_UV = shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))
DAY = 24 * 3600.0


class Builds:
    """Builds in one cache, with a fake uv unless the environment says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.uv = FakeUv(folder / "bin", "tiny==1.0", "other==3.0")
        self.environ = {"PATH": f"{self.uv.folder}:{os.environ['PATH']}"}
        self.log = io.StringIO()

    def request(self, *requirements: str) -> dict[str, Any]:
        return {"base": sys.executable, "requirements": list(requirements), "cache": str(self.cache)}

    def build(self, *requirements: str) -> str:
        return Builder(self.request(*requirements), self.environ, self.log).build()

    def environments(self) -> list[str]:
        return sorted(os.listdir(self.cache / "python" / "environments"))


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path)


def version_in(folder: str, module: str = "tiny") -> str:
    code = f"import {module}; print({module}.VERSION)"
    return subprocess.run(
        [python_in(folder), "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


# -- the installers themselves


@pytest.mark.nightly
def test_venv_and_pip_build_an_environment_with_what_a_package_needs_in_turn(tmp_path: Path) -> None:
    builds = Builds(tmp_path)
    make_wheel(tmp_path / "wheels", "tiny", "1.0")
    make_wheel(tmp_path / "wheels", "tiny", "2.0", requires=("other",))
    make_wheel(tmp_path / "wheels", "other", "3.0")
    builds.environ = {**os.environ, **OFFLINE_PIP, "PIP_FIND_LINKS": str(tmp_path / "wheels")}

    folder = builds.build("tiny>=2")

    assert (version_in(folder), version_in(folder, "other")) == ("2.0", "3.0")
    assert json.loads(Path(folder, "ready.json").read_text())["pins"] == ["other==3.0", "tiny==2.0"]


@pytest.mark.skipif(REAL_UV is None, reason="there is no uv here: what is said to it is tested with a fake one")
def test_uv_builds_the_same_environment_as_pip(tmp_path: Path) -> None:
    builds = Builds(tmp_path)
    make_wheel(tmp_path / "wheels", "tiny", "2.0", requires=("other",))
    make_wheel(tmp_path / "wheels", "other", "3.0")
    ours = {
        "UV_FIND_LINKS": str(tmp_path / "wheels"),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "MULLIGAN_INSTALLER": REAL_UV,
    }
    builds.environ = {**os.environ, **OFFLINE_UV, **ours}  # type: ignore[dict-item]

    folder = builds.build("Tiny>=2")

    assert (version_in(folder), version_in(folder, "other")) == ("2.0", "3.0")
    assert json.loads(Path(folder, "ready.json").read_text())["pins"] == ["other==3.0", "tiny==2.0"]
    with pytest.raises(InstallFailed) as caught:
        builds.build("tiny>=9")
    assert "tiny>=9" in caught.value.message


def test_uv_resolves_creates_and_installs_without_looking_for_more(builds: Builds) -> None:
    folder = builds.build("tiny>=1")

    compile_call, venv_call, install_call = builds.uv.calls
    assert compile_call.startswith(f"pip compile --no-header --no-annotate --quiet --python {sys.executable}")
    assert venv_call == f"venv --quiet --no-project --python {sys.executable} {folder}/venv"
    assert install_call.startswith(f"pip install --python {folder}/venv/bin/python --no-deps -r ")
    assert version_in(folder) == "1.0"


def test_an_interpreter_without_pip_gets_one_once(builds: Builds, tmp_path: Path) -> None:
    python = FakePython(tmp_path, pip="24.0")
    builds.environ = {**builds.environ, "MULLIGAN_INSTALLER": "pip"}
    request = {**builds.request("tiny-thing"), "base": str(python.program)}

    folder = Builder(request, builds.environ, builds.log).build()
    Builder({**request, "requirements": ["lib"]}, builds.environ, builds.log).build()

    made = [call for call in python.calls if call.startswith("-m venv") and "--without-pip" not in call]
    assert len(made) == 1
    resolved, installed = [call for call in python.calls if call.startswith("-m pip")][:2]
    assert resolved.startswith(f"-m pip --python {python.program} install --dry-run --ignore-installed --report ")
    assert resolved.endswith(" -- tiny-thing")
    assert installed.startswith(f"-m pip --python {folder}/venv/bin/python install --no-deps -r ")
    # A name as uv writes it; a package from an address with the commit that was found there.
    assert json.loads(Path(folder, "ready.json").read_text())["pins"] == [
        "lib @ git+https://example.org/lib.git@0a1b#subdirectory=py",
        "tiny-thing==1.0",
    ]


def test_an_interpreter_whose_pip_is_too_old_is_refused(builds: Builds, tmp_path: Path) -> None:
    python = FakePython(tmp_path, pip="20.1")
    environ = {**builds.environ, "MULLIGAN_INSTALLER": "pip"}

    with pytest.raises(InstallFailed) as caught:
        Builder({**builds.request("tiny"), "base": str(python.program)}, environ, builds.log).build()

    assert not caught.value.is_transient
    assert "it brings pip 20.1, and 22.3 is needed" in caught.value.message


# -- once


def test_an_environment_is_built_once_and_needs_no_index_after_that(builds: Builds) -> None:
    folder = builds.build("tiny>=1")
    builds.uv.offer()  # the index is empty now

    assert builds.build("tiny>=1") == folder
    assert len(builds.uv.calls) == 3


def test_a_newer_version_changes_nothing_until_the_environment_is_removed(builds: Builds) -> None:
    folder = builds.build("tiny>=1")
    builds.uv.offer("tiny==1.0", "tiny==2.0")

    assert version_in(builds.build("tiny>=1")) == "1.0"
    assert all(remove_unused(path, 0.0) for path in find_unused(str(builds.cache), 0.0))
    assert not os.path.exists(folder)
    assert version_in(builds.build("tiny>=1")) == "2.0"


def test_requirements_that_resolve_to_the_same_set_share_an_environment(builds: Builds) -> None:
    assert builds.build("tiny>=1", "other") == builds.build("other>=2", "tiny")
    assert builds.uv.count("venv") == 1
    assert len(builds.environments()) == 1


def test_the_order_of_requirements_does_not_matter(builds: Builds) -> None:
    assert builds.build("tiny", "other") == builds.build("other", "tiny")
    assert builds.uv.count("pip compile") == 1


def test_an_environment_whose_interpreter_is_gone_is_built_again(builds: Builds) -> None:
    folder = builds.build("tiny")
    os.unlink(python_in(folder))

    assert builds.build("tiny") == folder
    assert version_in(folder) == "1.0"


def test_what_was_resolved_is_installed_again_if_the_environment_was_removed(builds: Builds) -> None:
    folder = builds.build("tiny>=1")
    shutil.rmtree(folder)
    builds.uv.offer("tiny==2.0")

    assert builds.build("tiny>=1") == folder
    assert builds.uv.count("pip compile") == 1


def test_what_was_resolved_and_cannot_be_installed_any_more_is_resolved_again(builds: Builds) -> None:
    folder = builds.build("tiny>=1")
    shutil.rmtree(folder)
    builds.uv.offer("tiny==2.0")
    builds.uv.withdraw("tiny==1.0")

    assert version_in(builds.build("tiny>=1")) == "2.0"
    assert "cannot be installed any more" in builds.log.getvalue()


def test_a_damaged_record_is_not_trusted(builds: Builds) -> None:
    builds.build("tiny")
    [request] = (builds.cache / "python" / "requests").iterdir()
    (request / "resolved.json").write_text("[")

    assert version_in(builds.build("tiny")) == "1.0"
    assert builds.uv.count("pip compile") == 2


# -- never half


def test_what_a_killed_process_left_half_built_is_removed_and_built_again(builds: Builds, tmp_path: Path) -> None:
    builds.uv.close_gate()
    arguments = [json.dumps(builds.request("tiny")), str(tmp_path / "result"), str(tmp_path / "error")]
    code = "import sys; from mulligan.worker.environments.environment_builder import main; main(*sys.argv[1:])"
    first = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True, env=builds.environ
    )
    assert first.stderr is not None
    for line in first.stderr:
        if line == "installing\n":
            break
    first.kill()
    first.wait()
    first.stderr.close()
    [key] = builds.environments()
    half = str(builds.cache / "python" / "environments" / key)
    assert os.path.exists(f"{half}/venv") and not is_ready(half)
    # Its installer lives on and would write into a new environment: the lock is held until it ends.
    with pytest.raises(Busy):
        lock_folder(half, is_waiting=False)

    builds.uv.open_gate()

    assert builds.build("tiny") == half
    assert version_in(half) == "1.0"
    assert builds.uv.count("venv") == 2


def test_a_failed_build_leaves_nothing_that_looks_ready(builds: Builds) -> None:
    builds.uv.offer("tiny==1.0")
    (builds.uv.folder / "gate").write_text("fail")

    with pytest.raises(InstallFailed) as caught:
        builds.build("tiny")

    assert (caught.value.message, caught.value.is_transient) == ("Failed to fetch: the index is away", True)
    (builds.uv.folder / "gate").unlink()
    assert version_in(builds.build("tiny")) == "1.0"


def test_the_failure_is_written_for_the_engine(builds: Builds, tmp_path: Path) -> None:
    code = "import sys; from mulligan.worker.environments.environment_builder import main; main(*sys.argv[1:])"
    arguments = [json.dumps(builds.request("nothing")), str(tmp_path / "result"), str(tmp_path / "error")]

    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=builds.environ)

    assert (done.returncode, done.stdout, os.path.exists(tmp_path / "result")) == (1, "", False)
    assert json.loads((tmp_path / "error").read_text()) == {
        "code": "REQUIREMENTS_FAILED",
        "message": "its requirements cannot be installed: No solution found when resolving dependencies: Because "
        "nothing was not found in the package registry",
        "retryable": False,
        "details": {"requirements": ["nothing"], "interpreter": sys.executable},
    }


def test_an_interpreter_that_is_none_is_refused(builds: Builds) -> None:
    request = {**builds.request("tiny"), "base": "/bin/false"}

    with pytest.raises(InstallFailed) as caught:
        Builder(request, builds.environ, builds.log).build()

    assert (caught.value.message, caught.value.is_transient) == (
        "'/bin/false' cannot be used as a Python: it ended with an error",
        False,
    )


# -- whose it is


def test_everything_in_the_cache_is_for_its_owner_only(builds: Builds) -> None:
    before = os.umask(0o022)
    try:
        folder = builds.build("tiny")
    finally:
        os.umask(before)

    for path in (builds.cache, builds.cache / "python", builds.cache / "python" / "environments", Path(folder)):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_cache_that_others_may_write_to_is_refused(builds: Builds) -> None:
    builds.cache.mkdir()
    builds.cache.chmod(0o777)

    with pytest.raises(InstallFailed) as caught:
        builds.build("tiny")

    assert "MULLIGAN_CACHE" in caught.value.message
    assert builds.uv.calls == []


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"MULLIGAN_CACHE": "/c", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/mulligan"),
        ({"HOME": "/h"}, "/h/.cache/mulligan"),
        ({}, "/work/.mulligan/cache"),
    ],
)
def test_the_cache_is_where_the_user_keeps_caches(environ: dict[str, str], folder: str) -> None:
    assert cache_folder(environ, "/work/.mulligan") == folder


# -- garbage


def make_old(folder: str, seconds: float) -> None:
    path = f"{folder}/ready.json"
    then = os.stat(path).st_mtime - seconds
    os.utime(path, (then, then))


def test_an_environment_that_was_not_used_for_long_is_removed_with_its_resolution(builds: Builds) -> None:
    old, young = builds.build("tiny"), builds.build("other")
    make_old(old, 31 * DAY)

    found = find_unused(str(builds.cache), 30 * DAY)

    assert len(found) == 2
    assert all(remove_unused(path, 30 * DAY) for path in found)
    assert (os.path.exists(old), os.path.exists(young)) == (False, True)
    assert len(os.listdir(builds.cache / "python" / "requests")) == 1


def test_an_environment_in_use_is_not_removed(builds: Builds) -> None:
    folder = builds.build("tiny")
    make_old(folder, 31 * DAY)
    fd = lock_folder(folder, is_shared=True)

    assert not remove_unused(folder, 30 * DAY)

    os.close(fd)
    assert remove_unused(folder, 30 * DAY)


def test_a_use_keeps_an_environment(builds: Builds) -> None:
    folder = builds.build("tiny")
    make_old(folder, 31 * DAY)

    note_use(folder)

    assert find_unused(str(builds.cache), 30 * DAY) == []


def test_a_removed_folder_is_locked_anew(builds: Builds) -> None:
    folder = builds.build("tiny")
    assert remove_unused(folder, 0.0)

    fd = lock_folder(folder)

    assert os.path.samestat(os.fstat(fd), os.stat(f"{folder}/lock"))
    os.close(fd)
