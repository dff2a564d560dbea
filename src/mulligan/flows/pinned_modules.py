"""Modules whose source is pinned with the run: a script, or cells of a notebook.

Runs in any interpreter, like `child_main`. The text is executed once, as an import would. Dataclasses, annotations and
`pickle` find the module by its name.
"""

from __future__ import annotations

import linecache
import os
import sys
import types

# The modules that were made in this process, by name, text and file.
_modules: dict[tuple[str, str, str], types.ModuleType] = {}


def load(name: str, source: str, file: str) -> types.ModuleType:
    """Return the module with this text, and let its name mean it. Without a `file` it is of a notebook."""
    module = _modules.get((name, source, file))
    if module is None:
        module = _modules[name, source, file] = _execute(name, source, file)
    sys.modules[name] = module
    return module


def is_loaded(name: str, source: str, file: str) -> bool:
    """Whether `load` has the module with this text already."""
    return (name, source, file) in _modules


def _execute(name: str, source: str, file: str) -> types.ModuleType:
    module = types.ModuleType(name)
    # Its exceptions are also those of `__main__`: see `mulligan.values.exception_names`.
    module.__dict__["__mulligan_pinned__"] = True
    shown = file or f"<cell {len(_modules) + 1}>"
    if file:
        module.__file__ = file
    # For tracebacks, and for what asks for the source of a function: the file may have changed since.
    linecache.cache[shown] = (len(source), None, source.splitlines(keepends=True), shown)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(compile(source, shown, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except BaseException as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        if isinstance(error, SystemExit):
            message = f"'{os.path.basename(shown)}' exits when it is loaded"
            raise RuntimeError(f"{message}: put that under 'if __name__ == \"__main__\":'") from error
        raise
    return module
