"""What the code of a step says with `logging`: one line on stderr for each record, with time, level and logger.

It takes the place of `logging.lastResort`, which prints warnings without a time and drops the rest. So a step that sets
up `logging` itself gets what it has set up. Any interpreter: standard library only. Most steps do not import `logging`,
so nothing is loaded before one does.
"""

from __future__ import annotations

import os
import sys
import time

# `typing` itself is not imported: a step that imports this should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

LOGGING = "logging"
# `log_level` of a step.
LEVEL_VARIABLE = "MULLIGAN_LOG_LEVEL"
# What our own actions say counts from WARNING on: their libraries say more.
OF_STEPS, OF_ACTIONS = "info", "warning"


def watch_logging() -> None:
    """Have records printed: now if `logging` is loaded, otherwise once it is."""
    if LOGGING in sys.modules:
        print_records(sys.modules[LOGGING])
    else:
        sys.meta_path.insert(0, _Watcher())


def print_records(module: ModuleType) -> None:
    """Print records from the level of the step on, unless its code sets up something else."""

    class RecordPrinter(module.Handler):  # type: ignore[name-defined, misc]
        def emit(self, record: logging.LogRecord) -> None:
            try:
                sys.stderr.write(f"{head(record.created, record.levelname)} {record.name}: {self.format(record)}\n")
            except Exception:
                self.handleError(record)

    configure = module.basicConfig

    def configure_if_asked(**fields: Any) -> None:
        # `logging.info(…)` calls it without anything, and would add a handler that prints no time.
        if fields:
            configure(**fields)

    module.lastResort = RecordPrinter()  # type: ignore[attr-defined]
    module.basicConfig = configure_if_asked  # type: ignore[attr-defined]
    _set_level(module)


def follow_level(default: str) -> None:
    """Another step of the same process may ask for another level. `default`: for one that asks for none."""
    global _default
    _default = default
    if LOGGING in sys.modules:
        _set_level(sys.modules[LOGGING])


_default = OF_STEPS


def _set_level(module: ModuleType) -> None:
    level = os.environ.get(LEVEL_VARIABLE, _default).upper()
    module.root.setLevel(getattr(module, level, module.INFO))


def head(seconds: float, level: str) -> str:
    """How a line begins: `2026-11-16T15:43:11.650Z WARNING`."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{at}.{int(seconds % 1 * 1000):03}Z {'_'.join(level.split())}"


class _Watcher:
    """Finds `logging` once, and has it set up when it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != LOGGING:
            return None
        sys.meta_path.remove(self)
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_print(module: ModuleType) -> None:
            execute(module)
            if hasattr(module, "lastResort"):  # a module of the user's may have the name
                print_records(module)

        spec.loader.exec_module = execute_and_print  # type: ignore[method-assign]
        return spec
