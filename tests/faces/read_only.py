"""Commands on a home that can be read and not written, in a process of their own.

A user without special rights gets a folder without write permission. Root may write that, so root gets a read-only
mount, in a mount namespace that ends with the process. Run as a program, this is that process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support.commands import SRC, Said, mulligan

_ROOT = Path(__file__).parent.parent.parent
_IS_ROOT = os.geteuid() == 0


def said_read_only(home: Path, commands: Iterable[tuple[object, ...]]) -> list[Said]:
    """What each command says about a home that it cannot write."""
    words = [[str(word) for word in command] for command in commands]
    if not _IS_ROOT:
        _allow_writing(home, is_allowed=False)
    try:
        done = subprocess.run(
            [*(["unshare", "-m"] if _IS_ROOT else []), sys.executable, "-m", "tests.faces.read_only", str(home)],
            input=json.dumps([str(Path.cwd()), words]).encode(),
            capture_output=True,
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": f"{_ROOT}:{SRC}"},
            timeout=120,
        )
    except FileNotFoundError:
        pytest.skip("there is no 'unshare' here, and root may write every folder")
    finally:
        if not _IS_ROOT:
            _allow_writing(home, is_allowed=True)
    if done.returncode == 9 or b"unshare failed" in done.stderr:
        pytest.skip(f"no read-only mount can be made here: {done.stderr.decode().strip()}")
    assert done.returncode == 0, done.stderr.decode()
    return [Said(*one) for one in json.loads(done.stdout)]


def _allow_writing(home: Path, *, is_allowed: bool) -> None:
    for path in (home, *home.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(mode | 0o200 if is_allowed else mode & ~0o222)


def _main(home: str) -> None:
    folder, commands = json.load(sys.stdin)
    if _IS_ROOT:
        for words in (["mount", "--bind", home, home], ["mount", "-o", "remount,ro,bind", home]):
            if subprocess.run(words).returncode:
                sys.exit(9)
    os.chdir(folder)
    print(json.dumps([mulligan(*words) for words in commands]))


if __name__ == "__main__":
    _main(sys.argv[1])
