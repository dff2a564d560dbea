"""uv and pip: which one is used, what it may inherit, and what its words mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.worker.environments.installers import (
    InstallFailed,
    describe_installer,
    explain,
    find_uv,
    installer_environment,
)

from .wheels import FakeUv

NO_VERSION = """\
Looking in links: /wheels
ERROR: Could not find a version that satisfies the requirement tiny>=9 (from versions: 1.0, 2.502)
ERROR: No matching distribution found for tiny>=9"""
UNREACHABLE = """\
WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3\
.connection.HTTPConnection object at 0xffffbb67de50>: Failed to establish a new connection: [Errno 111] Connection \
refused')': /simple/tiny/
ERROR: Could not find a version that satisfies the requirement tiny (from versions: none)"""
CONFLICT = """\
Collecting async-timeout
ERROR: Cannot install tiny<1 and tiny>=2 because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested tiny<1"""
BROKEN = """\
  error: subprocess-exited-with-error

  × Building wheel for tiny (pyproject.toml) did not run successfully.
  │ exit code: 1
  ╰─> [2 lines of output]"""
UV_NO_VERSION = """\
error: No solution found when resolving dependencies
  cause: Because tiny was not found in the package registry and you require tiny, we can conclude that your \
requirements are unsatisfiable."""
UV_UNREACHABLE = """\
error: Request failed after 1 retry in 1.3s
  cause: Failed to fetch: http://127.0.0.1:9/simple/tiny/
  cause: Connection refused (os error 111)"""
UV_OLDER = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because tiny was not found in the package registry, your requirements are unsatisfiable."""


@pytest.mark.parametrize(
    ("printed", "message", "is_transient"),
    [
        (
            NO_VERSION,
            "Could not find a version that satisfies the requirement tiny>=9 (from versions: 1.0, 2.502)",
            False,
        ),
        (
            UNREACHABLE,
            "Could not find a version that satisfies the requirement tiny (from versions: none) (connection broken by "
            "'NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused')': "
            "/simple/tiny/)",
            True,
        ),
        (
            CONFLICT,
            "Cannot install tiny<1 and tiny>=2 because these package versions have conflicting dependencies",
            False,
        ),
        (
            BROKEN,
            "Building wheel for tiny (pyproject.toml) did not run successfully. exit code: 1 > [2 lines of output]",
            True,
        ),
        (
            UV_NO_VERSION,
            "No solution found when resolving dependencies: Because tiny was not found in the package registry and you "
            "require tiny, we can conclude that your requirements are unsatisfiable",
            False,
        ),
        (
            UV_UNREACHABLE,
            "Request failed after 1 retry in 1.3s: Failed to fetch: http://127.0.0.1:9/simple/tiny/: Connection "
            "refused (os error 111)",
            True,
        ),
        (
            UV_OLDER,
            "No solution found when resolving dependencies: Because tiny was not found in the package registry, your "
            "requirements are unsatisfiable",
            False,
        ),
        ("something odd", "something odd", True),
        ("", "uv ended with exit code 2", True),
    ],
)
def test_the_message_is_the_line_that_says_why(printed: str, message: str, is_transient: bool) -> None:
    failed = explain(printed.splitlines(), "uv ended with exit code 2")

    assert (failed.message, failed.is_transient) == (message, is_transient)


def test_uv_is_used_if_it_is_on_the_path_and_not_if_pip_is_named(tmp_path: Path) -> None:
    uv = FakeUv(tmp_path / "bin")

    assert find_uv({"PATH": str(uv.folder)}) == str(uv.program)
    assert find_uv({"PATH": str(tmp_path)}) is None
    assert find_uv({"PATH": str(uv.folder), "MULLIGAN_INSTALLER": "pip"}) is None
    assert find_uv({"PATH": str(tmp_path), "MULLIGAN_INSTALLER": str(uv.program)}) == str(uv.program)


def test_an_installer_that_is_named_and_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InstallFailed) as caught:
        find_uv({"PATH": str(tmp_path), "MULLIGAN_INSTALLER": "uv"})

    assert not caught.value.is_transient
    assert "MULLIGAN_INSTALLER" in caught.value.message


def test_an_installer_inherits_its_index_and_nothing_that_leads_it_to_another_environment() -> None:
    found = installer_environment(
        {"PIP_INDEX_URL": "https://here", "PYTHONPATH": "/x", "VIRTUAL_ENV": "/x", "PIP_TARGET": "/x"}
    )

    assert found["PIP_INDEX_URL"] == "https://here"
    assert found["PIP_NO_INPUT"] == "1"
    assert not {"PYTHONPATH", "VIRTUAL_ENV", "PIP_TARGET"} & found.keys()


def test_without_uv_the_installer_is_pip_or_what_python_brings_along(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path)}

    assert "pip" in str(describe_installer(nothing, {"pip", "venv"}.__contains__))
    assert "ensurepip" in str(describe_installer(nothing, {"ensurepip", "venv"}.__contains__))
    assert describe_installer(nothing, {"pip"}.__contains__) is None
