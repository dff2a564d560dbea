"""The program as a process of its own: with an environment, a mask and descriptors that a test may choose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SRC = Path(__file__).parent.parent.parent / "src"
# As the installed command starts: the folder that one is in is no place to import from.
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from mulligan.cli.main import main; main()"


class Outside:
    """A folder to work in, a folder for what is temporary, and the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.temporary = folder / "temporary"
        self.home = self.folder / ".mulligan"
        for one in (self.folder, self.temporary):
            one.mkdir()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *words: object, umask: int = -1, **variables: str) -> subprocess.CompletedProcess[bytes]:
        """What a command line gives."""
        command = [sys.executable, "-I", "-c", START, str(SRC), *map(str, words)]
        environment = {**os.environ, "TMPDIR": str(self.temporary), **variables}
        return subprocess.run(
            command, cwd=self.folder, env=environment, umask=umask, capture_output=True, check=False, timeout=120
        )

    def ran(self, text: str, *words: object, **options: Any) -> dict[str, Any]:
        """A workflow that is run: what `--json` prints of it."""
        self.write("flow.yaml", text)
        done = self.run("run", "flow.yaml", "--json", *words, **options)
        assert done.stdout, done.stderr.decode()
        found: dict[str, Any] = json.loads(done.stdout)
        return found
