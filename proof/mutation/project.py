"""The code that is changed, its tests, and where the results of earlier runs are kept."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from .mutants import Source


class Project:
    """The packages and modules whose mutants are run, and their tests."""

    def __init__(
        self, root: Path, packages: tuple[str, ...], tests: tuple[str, ...], judged: Path, kept: str = ""
    ) -> None:
        self.root = root
        self.packages = packages
        self.tests = tests
        self.judged = judged
        self.kept = root / ".mutants" / kept
        self._test_digests: dict[tuple[str, str], str] = {}
        self._test_trees: dict[str, list[ast.stmt]] = {}

    @cached_property
    def sources(self) -> dict[str, Source]:
        """The modules of the packages by their short names, which are unique."""
        paths = [path for package in self.packages for path in self._paths(package) if path.stem != "__init__"]
        assert len({path.stem for path in paths}) == len(paths), "two modules have the same short name"
        return {path.stem: Source(path, path.stem) for path in paths}

    def _paths(self, package: str) -> list[Path]:
        folder = self.root / "src" / package.replace(".", "/")
        return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]

    def import_name(self, module: str) -> str:
        """The dotted name of a module that is known by its short name."""
        return ".".join(self.sources[module].path.relative_to(self.root / "src").with_suffix("").parts)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The test files, each with a digest of what it says and of what the files beside it help it with."""
        return {name: _digest(self.root / name, *_helpers(self.root / name)) for name in self._test_files()}

    def _test_files(self) -> Iterator[str]:
        for name in self.tests:
            path = self.root / name
            for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
                yield file.relative_to(self.root).as_posix()

    def test_digest(self, test: str) -> str:
        """A digest of one test and of what helps it: the other tests of its file may change, and new ones may come."""
        file, _, inside = test.partition("::")
        name = inside.partition("[")[0].partition("::")[0]
        if (file, name) not in self._test_digests:
            path = self.root / file
            if file not in self._test_trees:
                self._test_trees[file] = ast.parse(path.read_text()).body if path.exists() else []
            kept = [node for node in self._test_trees[file] if not _is_other_test(node, name)]
            text = "\n".join(ast.unparse(node) for node in kept).encode()
            self._test_digests[file, name] = _digest(*_helpers(path), text=text)
        return self._test_digests[file, name]


def _is_other_test(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and node.name != name


def _helpers(test_file: Path) -> list[Path]:
    return sorted(path for path in test_file.parent.glob("*.py") if not path.name.startswith("test_"))


def _digest(*paths: Path, text: bytes = b"") -> str:
    return hashlib.sha256(b"\0".join([text, *(path.read_bytes() for path in paths)])).hexdigest()[:16]
