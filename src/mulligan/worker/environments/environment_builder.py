"""The process that finds the environment for some requirements, or builds it. It runs as the first part of an attempt.

What it prints is the attempt's log while it runs. It writes the path of the environment's folder to a file; or why
there is none, as the error of the attempt. Killed at any point, it leaves nothing that looks ready to the next one.
Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial

from mulligan.worker.environments import interpreter_identity
from mulligan.worker.environments.environment_cache import (
    ENVIRONMENTS,
    PIP,
    READY,
    REQUESTS,
    RESOLVED,
    clear_folder,
    folder_of,
    is_ready,
    locked,
    make_folder,
    python_in,
    read_json,
    venv_in,
    write_json,
)
from mulligan.worker.environments.installers import (
    PIP_VERSION_MIN,
    Installer,
    InstallFailed,
    Pip,
    Run,
    Uv,
    find_uv,
    installer_environment,
    run_installer,
)

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

CODE = "REQUIREMENTS_FAILED"
# Compiling may take long; an installer that takes longer hangs.
BUILD_SECONDS_MAX = 3600
_FAILED = "failed.json"
_LOG = "build.log"
_SCRATCH = "scratch-"
_OTHERS_MAY_WRITE = 0o022


class Builder:
    """Find or build one environment. `request` has the interpreter (`base`), `requirements` and the `cache` folder."""

    def __init__(self, request: Mapping[str, Any], environ: Mapping[str, str], out: TextIO) -> None:
        self._base: str = request["base"]
        self._requirements: list[str] = sorted(request["requirements"])
        self._cache: str = request["cache"]
        self._environ = environ
        self._environment = installer_environment(environ)
        self._out = out
        self._started = time.time()
        self._log_file: TextIO | None = None
        self._pip_version = ""
        # Locks that an installer keeps locked until it has ended.
        self._locks: list[int] = []

    def build(self) -> str:
        """Return the folder of an environment that is ready. Raises InstallFailed and OSError."""
        _check_owner(self._cache)
        identity = self._identify()
        folder = folder_of(self._cache, REQUESTS, _digest(identity, self._requirements))
        with locked(folder, lambda: self._say("waiting for another process that builds the same environment")) as lock:
            known = read_json(f"{folder}/{RESOLVED}") or {}
            environment = self._folder_for(known)
            if environment and is_ready(environment):
                return environment
            self._repeat_failure(folder)
            self._locks.append(lock)
            try:
                return self._build(folder, identity, known.get("pins"))
            except InstallFailed as failed:
                failure = {"at": time.time(), "message": failed.message, "is_transient": failed.is_transient}
                write_json(f"{folder}/{_FAILED}", failure)
                raise

    def _folder_for(self, known: Mapping[str, Any]) -> str:
        key = known.get("environment")
        return folder_of(self._cache, ENVIRONMENTS, key) if isinstance(key, str) else ""

    def _repeat_failure(self, folder: str) -> None:
        """Fail as the process did that we waited for: a hundred items need not ask a dead index one after the other."""
        failed = read_json(f"{folder}/{_FAILED}")
        if failed is not None and failed["at"] >= self._started:
            raise InstallFailed(failed["message"], is_transient=failed["is_transient"])

    def _build(self, folder: str, identity: list[Any], pins: list[str] | None) -> str:
        """Resolve unless that was done before, then install. What was resolved long ago may be gone from the index."""
        for left in (name for name in os.listdir(folder) if name.startswith(_SCRATCH)):
            shutil.rmtree(f"{folder}/{left}")
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as scratch:
            installer = self._installer(identity, scratch)
            count = len(self._requirements)
            what = "1 requirement" if count == 1 else f"{count} requirements"
            self._say(f"building an environment for {what} with {installer.name}: {', '.join(self._requirements)}")
            if pins is not None:
                try:
                    return self._install(folder, identity, pins, installer, scratch)
                except InstallFailed:
                    self._say("what it resolved to before cannot be installed any more: resolving it again")
            resolved = installer.resolve(self._requirements, scratch)
            return self._install(folder, identity, resolved, installer, scratch)

    def _install(self, folder: str, identity: list[Any], pins: list[str], installer: Installer, scratch: str) -> str:
        key = _digest(identity, pins)
        environment = folder_of(self._cache, ENVIRONMENTS, key)
        on_wait = partial(self._say, "waiting for another process that builds or removes the same environment")
        with locked(environment, on_wait) as lock:
            if not is_ready(environment):
                self._locks.append(lock)
                try:
                    self._fill(environment, pins, installer, scratch)
                finally:
                    self._locks.remove(lock)
        resolution = {"requirements": self._requirements, "pins": pins, "environment": key, "at": time.time()}
        write_json(f"{folder}/{RESOLVED}", resolution)
        return environment

    def _fill(self, environment: str, pins: list[str], installer: Installer, scratch: str) -> None:
        """Build in place, since an environment cannot be moved. What an earlier process left is removed."""
        clear_folder(environment)
        with open(f"{environment}/{_LOG}", "w", encoding="utf-8") as log_file:
            self._log_file = log_file
            try:
                installer.create(venv_in(environment))
                if pins:
                    installer.install(pins, venv_in(environment), scratch)
            finally:
                self._log_file = None
        write_json(f"{environment}/{READY}", {"pins": pins, "installer": installer.name, "base": self._base})
        self._say(f"built in {time.time() - self._started:.1f}s: {', '.join(pins) or 'nothing to install'}")

    # -- interpreter and installer

    def _identify(self) -> list[Any]:
        """Return what distinguishes the interpreter, so that another version of it gets environments of its own."""
        answer = interpreter_identity.identify() if self._base == sys.executable else self._ask(self._base)
        self._pip_version = answer["pip"]
        known: list[Any] = answer["interpreter"]
        return known

    def _ask(self, interpreter: str) -> dict[str, Any]:
        """Return what another interpreter answers to `identify`."""
        command = [interpreter, "-I", interpreter_identity.__file__]
        try:
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
            answer: dict[str, Any] = json.loads(done.stdout)
        except subprocess.CalledProcessError as error:
            raise self._unusable((error.stderr.strip().splitlines() or ["it ended with an error"])[-1]) from None
        except (OSError, ValueError) as error:
            raise self._unusable(getattr(error, "strerror", None) or "its answer is not understood") from None
        return answer

    def _unusable(self, reason: str) -> InstallFailed:
        return InstallFailed(f"'{self._base}' cannot be used as a Python: {reason}", is_transient=False)

    def _installer(self, identity: list[Any], scratch: str) -> Installer:
        def run(command: Sequence[str]) -> None:
            run_installer(command, self._environment, scratch, self._log, self._locks)

        if uv := find_uv(self._environ):
            return Uv(uv, self._base, run)
        pip = self._base if _is_new_enough(self._pip_version) else self._own_pip(identity, run)
        return Pip(pip, self._base, run)

    def _own_pip(self, identity: list[Any], run: Run) -> str:
        """Return an interpreter that has pip, made from the wheel that comes with Python. It is made once."""
        folder = folder_of(self._cache, PIP, _digest(identity, []))
        with locked(folder, lambda: self._say("waiting for another process that installs pip")):
            if not is_ready(folder):
                self._say(f"'{self._base}' has no usable pip: creating one")
                clear_folder(folder)
                run([self._base, "-m", "venv", venv_in(folder)])
                brought = self._ask(python_in(folder))["pip"]
                if not _is_new_enough(brought):
                    needed = ".".join(map(str, PIP_VERSION_MIN))
                    raise self._unusable(
                        f"it brings pip {brought or '?'}, and {needed} is needed; use uv, or a newer one"
                    )
                write_json(f"{folder}/{READY}", {"base": self._base, "pip": brought})
        return python_in(folder)

    # -- log

    def _say(self, text: str) -> None:
        self._log(f"mulligan: {text}\n")

    def _log(self, line: str) -> None:
        for file in (self._out, self._log_file):
            if file is not None:
                file.write(line)
                file.flush()


def _check_owner(cache: str) -> None:
    """Refuse a folder that another user could put programs into."""
    make_folder(cache)
    found = os.stat(cache)
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & _OTHERS_MAY_WRITE:
        message = f"'{cache}' may be written by other users, and programs from it would run; set MULLIGAN_CACHE"
        raise InstallFailed(message, is_transient=False)


def _is_new_enough(pip_version: str) -> bool:
    parts = pip_version.split(".")[:2]
    return all(part.isdecimal() for part in parts) and tuple(map(int, parts)) >= PIP_VERSION_MIN


def _digest(identity: list[Any], names: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([identity, list(names)]).encode()).hexdigest()[:32]


def _on_alarm(*_: object) -> None:
    raise InstallFailed(f"it took longer than {BUILD_SECONDS_MAX // 60} minutes")


def main(request_text: str, result_path: str, error_path: str) -> None:
    """Write the folder of the environment to `result_path`, or a failure to `error_path`. Exit with 0 or 1."""
    os.umask(0o077)
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.alarm(BUILD_SECONDS_MAX)
    request = json.loads(request_text)
    try:
        folder = Builder(request, os.environ, sys.stderr).build()
        write_json(result_path, {"folder": folder})
        return
    except InstallFailed as failed:
        message, is_transient = failed.message, failed.is_transient
    except OSError as error:
        message = f"{error.filename or request['cache']}: {(error.strerror or str(error)).lower()}"
        is_transient = True
    except Exception as error:  # a mistake of ours, or a file that somebody changed: never a traceback
        message, is_transient = f"{type(error).__name__}: {error}", True
    details = {"requirements": request["requirements"], "interpreter": request["base"]}
    failure = {"code": CODE, "message": f"its requirements cannot be installed: {message}", "retryable": is_transient}
    write_json(error_path, {**failure, "details": details})
    print(f"mulligan: {failure['message']}", file=sys.stderr)
    sys.exit(1)
