"""A Git repository for tests: a folder with one commit on `main`, and the home of runs in it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


class Repository:
    """The user's checkout, and where the test stands in it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, has_commit: bool = False) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        shutil.copytree(_made_once(has_commit=has_commit).name, folder, dirs_exist_ok=True)
        if has_commit:
            # The index has the inodes of the files that were copied.
            self.git("reset", "-q")
        self.stand("")

    def stand(self, below: str, run: int = 1) -> None:
        """Where a worker stands that is told to open the worktree of a run."""
        (self.folder / below).mkdir(parents=True, exist_ok=True)
        self._monkeypatch.chdir(self.folder / below)
        self._monkeypatch.setenv("MULLIGAN_OUTPUT_DIR", str(self.folder / ".mulligan" / "runs" / str(run) / "output"))

    def git(self, *words: str, within: str | Path = "") -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.folder / within, check=True, capture_output=True, encoding="utf-8"
        )
        return done.stdout.rstrip("\n")

    def write(self, name: str, text: str, within: str | Path = "") -> Path:
        path = self.folder / within / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def commit(self, message: str = "more", within: str | Path = "") -> None:
        self.git("add", "-A", within=within)
        self.git("commit", "-q", "-m", message, within=within)

    def read(self, name: str) -> str | None:
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    @property
    def branches(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads/").splitlines()

    @property
    def worktrees(self) -> list[str]:
        lines = self.git("worktree", "list", "--porcelain").splitlines()
        return [Path(line.removeprefix("worktree ")).name for line in lines if line.startswith("worktree ")][1:]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return Repository(tmp_path / "my project", monkeypatch, has_commit=True)


@cache
def _made_once(*, has_commit: bool) -> TemporaryDirectory[str]:
    """A repository to copy, which is removed when the tests end: a process of Git costs more than a copy."""
    made = TemporaryDirectory(prefix="mulligan-repository-")
    atexit.register(made.cleanup)
    folder = Path(made.name)
    commands = [
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "Tester"],
        ["config", "user.email", "tester@example.org"],
        ["config", "commit.gpgsign", "false"],
    ]
    (folder / ".gitignore").write_text(".mulligan\n", encoding="utf-8")
    if has_commit:
        (folder / "base.txt").write_text("base\n", encoding="utf-8")
        commands += [["add", "-A"], ["commit", "-q", "-m", "base"]]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for words in commands:
        subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True)
    for sample in (folder / ".git" / "hooks").glob("*.sample"):
        sample.unlink()
    return made
