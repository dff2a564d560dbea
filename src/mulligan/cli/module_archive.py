"""The compiled modules of a command in one file, so that it does not search for hundreds of them.

Python looks for each module, opens its compiled file and compares it with the source: a tenth of the time of a short
command. An archive has the same code in one file, in our `__pycache__`. The rule when to use it is that of Python: the
source is in the folder of its package and has the size and the time that it had. Any other module is imported as
usual, and a command that imported many in that way writes the archive again when it ends (ADR 84).

Only modules inside of packages are in it, ours and those of others: which file they are follows from their package,
while a module of its own may be another one tomorrow, when `sys.path` is another one.
"""

from __future__ import annotations

import marshal
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    # `typing` takes as long to load as all of this file.
    from collections.abc import Callable, Sequence
    from types import CodeType, ModuleType

    About = tuple[str, int, int, bool, str]

# Fewer modules than this from elsewhere are not worth writing the file again.
MISSING_MIN = 30
# Of a compiled file of Python: its version, flags, and the time and size of its source.
_HEADER_BYTES = 16
_LENGTH_BYTES = 8


class ModuleArchive:
    """Finds modules by the archive in the `__pycache__` of `folder`; to be put first into `sys.meta_path`."""

    def __init__(self, folder: str) -> None:
        # Named like a compiled file, of a module that cannot exist: another Python has another one.
        self.path = cache_from_source(os.path.join(folder, "archive.modules.py"))
        # By name: the source, its time and size, whether it is a package, the compiled file, where the code is.
        self._entries: dict[str, tuple[str, int, int, bool, str, int, int]] = {}
        self._file = self._start = -1
        self._imported_before = frozenset(sys.modules)
        try:
            self._file = os.open(self.path, os.O_RDONLY)
            size = os.fstat(self._file).st_size
            length = min(size, int.from_bytes(os.read(self._file, _LENGTH_BYTES), "little"))
            magic, entries = marshal.loads(os.read(self._file, length))  # noqa: S302 - as Python reads its own cache
        except (OSError, EOFError, ValueError, TypeError):
            return
        if magic == MAGIC_NUMBER:
            self._entries, self._start = entries, _LENGTH_BYTES + length

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        entry = self._entries.get(name)
        if entry is None or path is None:
            return None
        file, mtime, size, is_package, cached, start, end = entry
        folder = file[: -len("/__init__.py")] if is_package else file
        if list(path) != [folder.rpartition(os.sep)[0]]:
            return None
        try:
            found = os.stat(file)
        except OSError:
            return None
        if (found.st_mtime_ns, found.st_size) != (mtime, size):
            return None
        loader = _ArchiveLoader(name, file, lambda: self._read(start, end))
        spec = ModuleSpec(name, loader, origin=file, is_package=is_package)
        spec.has_location = True
        spec.cached = cached
        if is_package:
            spec.submodule_search_locations = [folder]
        return spec

    def _read(self, start: int, end: int) -> bytes:
        """The code of one module: all that was ever imported is far more than one command needs.

        OSError if another host has replaced the file on a network file system.
        """
        return os.pread(self._file, end - start, self._start + start)

    def update(self) -> None:
        """Write the archive again if this process imported many modules that are not in it."""
        if sys.dont_write_bytecode:
            return
        others = {
            name: module
            for name, module in sys.modules.items()
            if "." in name and name not in self._imported_before and _is_found_by_python(module, name)
        }
        if len(others) < MISSING_MIN:
            return
        new = {name: entry for name, module in others.items() if (entry := _compiled(module)) is not None}
        try:
            kept = {
                name: (entry[:5], self._read(entry[5], entry[6]))
                for name, entry in self._entries.items()
                if name not in others
            }
        except OSError:
            kept = {}
        self._write({**kept, **new})

    def _write(self, modules: dict[str, tuple[About, bytes]]) -> None:
        entries, position = {}, 0
        for name, (about, code) in modules.items():
            entries[name] = (*about, position, position + len(code))
            position += len(code)
        index = marshal.dumps((MAGIC_NUMBER, entries))
        unfinished = f"{self.path}.{os.getpid()}"
        try:
            with open(unfinished, "xb") as file:
                file.write(len(index).to_bytes(_LENGTH_BYTES, "little") + index)
                file.writelines(code for _, code in modules.values())
            os.replace(unfinished, self.path)
        except OSError:
            # The package belongs to somebody else, or the disk is full: nobody needs the archive.
            try:
                os.unlink(unfinished)
            except OSError:
                pass


class _ArchiveLoader(SourceFileLoader):
    """Loads a module as its base does, with code from the archive."""

    def __init__(self, name: str, path: str, read: Callable[[], bytes]) -> None:
        super().__init__(name, path)
        self._read = read

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            code: CodeType = marshal.loads(self._read())  # noqa: S302
        except (OSError, EOFError, ValueError, TypeError):
            # Somebody has changed the file. Python has what it has compiled itself, or compiles it again.
            return super().get_code(fullname)
        return code


def _is_found_by_python(module: ModuleType, name: str) -> bool:
    """Whether Python itself found the source of the module; not the archive, nor another finder."""
    spec = getattr(module, "__spec__", None)
    return spec is not None and spec.name == name and type(spec.loader) is SourceFileLoader


def _compiled(module: ModuleType) -> tuple[About, bytes] | None:
    """What to write about a module that Python found; None if it has no compiled file that is up to date."""
    spec = module.__spec__
    if spec is None or spec.origin is None or spec.cached is None:
        return None
    try:
        found = os.stat(spec.origin)
        with open(spec.cached, "rb") as compiled:
            data = compiled.read()
        code = marshal.loads(data[_HEADER_BYTES:])  # noqa: S302
    except (OSError, EOFError, ValueError, TypeError):
        return None
    stamp = b"".join(int(part).to_bytes(4, "little") for part in (0, found.st_mtime, found.st_size))
    if data[:_HEADER_BYTES] != MAGIC_NUMBER + stamp or code.co_filename != spec.origin:
        return None
    is_package = spec.submodule_search_locations is not None
    return (spec.origin, found.st_mtime_ns, found.st_size, is_package, spec.cached), data[_HEADER_BYTES:]
