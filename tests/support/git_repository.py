"""A Git repository for tests: a folder with one commit on `main`, and the home of runs in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


class Repository:
    """The user's checkout, and where the test stands in it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Tester")
        self.git("config", "user.email", "tester@example.org")
        self.git("config", "commit.gpgsign", "false")
        self.write(".gitignore", ".mulligan\n")
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
    found = Repository(tmp_path / "my project", monkeypatch)
    found.write("base.txt", "base\n")
    found.commit("base")
    return found
