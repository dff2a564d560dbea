"""What is changed and who is asked: the code, its tests, and where the results of earlier hunts are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from .mutants import Source


class Project:
    """A package whose mutants are hunted, and the tests that hunt them."""

    def __init__(self, root: Path, package: str, tests: tuple[str, ...], judged: Path) -> None:
        self.root = root
        self.package = package
        self.tests = tests
        self.judged = judged
        self.kept = root / ".mutants"

    @cached_property
    def sources(self) -> dict[str, Source]:
        """The modules of the package by their short names."""
        folder = self.root / "src" / self.package.replace(".", "/")
        return {path.stem: Source(path, path.stem) for path in sorted(folder.glob("*.py"))}

    @cached_property
    def digests(self) -> dict[str, str]:
        """The test files, each with a digest of what it says and of what the files beside it help it with."""
        return {name: _digest(self.root / name, *_helpers(self.root / name)) for name in self._test_files()}

    def _test_files(self) -> Iterator[str]:
        for name in self.tests:
            path = self.root / name
            for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
                yield file.relative_to(self.root).as_posix()


def _helpers(test_file: Path) -> list[Path]:
    return sorted(path for path in test_file.parent.glob("*.py") if not path.name.startswith("test_"))


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]
