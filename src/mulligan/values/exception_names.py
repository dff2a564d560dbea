"""What is said of an exception: the names under which rules and failures know its class, and why a debugger ended.

Runs in any interpreter, like `child_main`: standard library only.
"""

from __future__ import annotations

import sys

BUILTINS, MAIN = "builtins", "__main__"
# The module that the code of a step is executed in; and what a module has whose text is pinned with a run.
STEP_MODULE, PINNED_MARK = "__mulligan__", "__mulligan_pinned__"
# Every exception is one of these: their names say nothing.
_ROOTS = (object, BaseException)


def names_with_bases(error: BaseException) -> list[str]:
    """The names of its class, then those of its bases, the nearest first."""
    names: list[str] = []
    for kind in type(error).__mro__:
        if kind not in _ROOTS and issubclass(kind, BaseException):
            names += [name for name in names_of(kind) if name not in names]
    return names


def names_of(kind: type) -> list[str]:
    """The names of a class: where it is defined, and where packages above that offer it.

    `["requests.exceptions.Timeout", "requests.Timeout"]`. A class of Python itself is only called `TimeoutError`, one
    of a script, a notebook or the code of a step `__main__.QuotaExceeded`.
    """
    module, name = str(kind.__module__), str(kind.__qualname__)
    if module == BUILTINS:
        return [name]
    if module in (MAIN, STEP_MODULE):
        return [f"{MAIN}.{name}"]
    names = [f"{module}.{name}"]
    above = module.rpartition(".")[0]
    while above:
        if _offered(above, name) is kind:
            names.append(f"{above}.{name}")
        above = above.rpartition(".")[0]
    if getattr(sys.modules.get(module), PINNED_MARK, False) is True:
        names.append(f"{MAIN}.{name}")
    return names


def _offered(module: str, name: str) -> object:
    """What a loaded module has under this name; it may import that only now, and that may fail in any way."""
    try:
        return getattr(sys.modules.get(module), name, None)
    except Exception:
        return None


def debugger_hint(error: BaseException) -> str:
    """What to do where a debugger has ended at once, since there is no terminal; "" for any other exception."""
    kind = type(error)
    if (kind.__module__, kind.__name__) != ("bdb", "BdbQuit"):
        return ""
    return "a step has no terminal for a debugger; call the function itself: NAME.fn(…)"
