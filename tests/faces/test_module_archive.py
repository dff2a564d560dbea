"""The compiled modules in one file: used if nothing has changed, and ignored if anything has."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from mulligan.cli.module_archive import MISSING_MIN, ModuleArchive

PACKAGE = "archived_for_a_test"


class ImportedPackage:
    """A package with enough modules for an archive, imported with and without it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / PACKAGE
        (self.root / "inner").mkdir(parents=True)
        for name in ("__init__", "inner/__init__", *(f"inner/m{number}" for number in range(MISSING_MIN))):
            (self.root / f"{name}.py").write_text(f"def where():\n    return '{name}'\n")

    def forget(self) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, ModuleArchive)]
        importlib.invalidate_caches()

    def imported(self) -> tuple[ModuleArchive, ModuleType]:
        """Import all modules as a command does that has just begun; return the archive and one of the modules."""
        self.forget()
        archive = ModuleArchive(str(self.root))
        sys.meta_path.insert(0, archive)
        modules = [importlib.import_module(f"{PACKAGE}.inner.m{number}") for number in range(MISSING_MIN)]
        return archive, modules[0]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImportedPackage]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    package = ImportedPackage(tmp_path)
    yield package
    package.forget()


def is_from_archive(module: ModuleType) -> bool:
    return type(module.__loader__) is not SourceFileLoader


def test_a_module_of_the_archive_is_like_one_that_python_found(package: ImportedPackage) -> None:
    archive, usual = package.imported()
    archive.update()

    _, module = package.imported()

    assert (is_from_archive(usual), is_from_archive(module)) == (False, True)
    assert (module.__file__, module.__cached__) == (usual.__file__, usual.__cached__)
    assert (module.__package__, module.where()) == (f"{PACKAGE}.inner", "inner/m0")
    assert module.where.__code__.co_filename == usual.__file__
    assert inspect.getsource(module) == "def where():\n    return 'inner/m0'\n"
    assert sys.modules[f"{PACKAGE}.inner"].__path__ == [str(package.root / "inner")]


def test_a_changed_source_is_imported_anew(package: ImportedPackage) -> None:
    archive, _ = package.imported()
    archive.update()
    (package.root / "inner" / "m0.py").write_text("def where():\n    return 'elsewhere'\n")

    _, changed = package.imported()

    assert changed.where() == "elsewhere"
    assert is_from_archive(sys.modules[f"{PACKAGE}.inner.m1"])


def test_a_source_of_the_same_size_and_another_time_is_imported_anew(package: ImportedPackage) -> None:
    archive, _ = package.imported()
    archive.update()
    file = package.root / "inner" / "m0.py"
    file.write_text(file.read_text().replace("m0", "m9"))
    os.utime(file, (1, 1))

    assert package.imported()[1].where() == "inner/m9"


@pytest.mark.parametrize("damage", [b"", b"\0" * 8, b"\xff" * 100, b"\x05" + b"\0" * 7 + b"i\0\0\0\0"])
def test_a_file_that_is_no_archive_is_ignored_and_written_again(package: ImportedPackage, damage: bytes) -> None:
    archive, _ = package.imported()
    Path(archive.path).write_bytes(damage)

    archive, module = package.imported()
    archive.update()

    assert not is_from_archive(module)
    assert is_from_archive(package.imported()[1])


def test_a_package_in_another_place_is_imported_from_there(package: ImportedPackage, tmp_path: Path) -> None:
    package.imported()[0].update()
    archive = ModuleArchive(str(package.root))

    assert archive.find_spec(f"{PACKAGE}.inner.m0", [str(tmp_path / "elsewhere")]) is None
    assert archive.find_spec(f"{PACKAGE}.inner.m0", [str(package.root / "inner")]) is not None


def test_nothing_is_written_where_python_writes_no_compiled_files(
    package: ImportedPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, _ = package.imported()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    archive.update()

    assert not Path(archive.path).exists()


def test_a_folder_that_cannot_be_written_costs_only_the_archive(package: ImportedPackage) -> None:
    archive, _ = package.imported()
    folder = Path(archive.path).parent
    folder.rename(folder.with_name("gone"))

    archive.update()

    assert not folder.exists()


def test_a_few_new_modules_are_not_worth_writing(package: ImportedPackage) -> None:
    archive, _ = package.imported()
    archive.update()
    written = os.stat(archive.path).st_mtime_ns
    (package.root / "inner" / "more.py").write_text("")

    archive, _ = package.imported()
    importlib.import_module(f"{PACKAGE}.inner.more")
    archive.update()

    assert os.stat(archive.path).st_mtime_ns == written


def test_code_in_an_archive_that_somebody_has_changed_is_compiled_again(package: ImportedPackage) -> None:
    archive, _ = package.imported()
    archive.update()
    path = Path(archive.path)
    whole = path.read_bytes()
    # All code is at its end, behind the table of where it is.
    path.write_bytes(whole[:-200] + b"\0" * 200)

    _, module = package.imported()

    assert module.where() == "inner/m0"


def test_an_archive_that_is_cut_off_while_a_command_imports_is_not_missed(package: ImportedPackage) -> None:
    package.imported()[0].update()
    package.forget()
    archive = ModuleArchive(str(package.root))
    sys.meta_path.insert(0, archive)

    os.truncate(archive.path, 100)
    module = importlib.import_module(f"{PACKAGE}.inner.m0")

    assert is_from_archive(module) and module.where() == "inner/m0"
