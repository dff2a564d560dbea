"""How the function of a step travels to a worker: by the name under which it is imported, or as source.

A function at the top of a module is called by its name. A function of `__main__` cannot be imported by another process,
so its source is pinned with the run: the text of the whole script, or of what a notebook cell uses (`cell_source`).
Source, and not a pickle: a person can read it, and another version of Python can run it.
"""

from __future__ import annotations

import keyword
import os
import sys
from types import CodeType, ModuleType

from mulligan.flows.context import RECORDER
from mulligan.flows.functions import (
    MAIN,
    defining_code,
    find,
    is_same,
    lookup,
    plain_function,
    refuse_function,
    written_function,
)

# `typing` itself is not imported: a step whose module imports `mulligan` should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LAMBDA = "<lambda>"
_LOCALS = "<locals>"


def _as_identifier(stem: str) -> str:
    """A name for a module that is like this one: `my_flow` for `my-flow`."""
    found = "".join(one if one.isalnum() else "_" for one in stem)
    return found if found.isidentifier() else f"flow_{found}"


def action_for(function: Any) -> dict[str, str]:
    """What stands under `python:` for a step that calls `function`. LanguageError if no worker could call it.

    `{"call": "module:name"}`, with `source` and `file` if the module is pinned with the run.
    """
    plain = plain_function(function)
    module, name = getattr(plain, "__module__", None), getattr(plain, "__qualname__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        # The `__self__` of a function of a module in C is the module.
        or (hasattr(plain, "__self__") and not isinstance(plain.__self__, ModuleType))
    ):
        kind = type(plain).__name__
        message = f"a step calls a function, and this is a {kind}"
        refuse_function(message, plain, "write a function with 'def' that calls it")
    if _LAMBDA in name:
        refuse_function("a lambda cannot be a step", plain, "write it as a function with 'def'")
    if module == MAIN:
        return _pin(plain, name)
    if _LOCALS in name:
        message = f"workers cannot import '{name}': it is defined inside a function"
        refuse_function(message, plain, f"move it to the top of the module '{module}'")
    if module.startswith("<"):  # a file that workers cannot import: see the reader of Python files
        hint = "call mulligan from the folder of this file, or from one above it"
        if not (stem := module[1:-1]).isidentifier():
            hint = f"'{stem}' is not the name of a module: rename the file to {_as_identifier(stem)}.py"
        refuse_function(f"workers cannot import the function '{name}'", plain, hint)
    if not is_same(find(module, name), plain):
        message = f"workers cannot import '{name}' from '{module}': that name is something different there"
        refuse_function(message, plain, "put @step above all other decorators, and keep the name of the function")
    call = {"call": f"{module}:{name}"}
    return {**call, **_search_folder(module, sys.modules[module])}


def _search_folder(name: str, module: ModuleType) -> dict[str, str]:
    """`import_from`: the folder that this process imports the module from, unless workers look there anyway.

    Workers look into the folder of the run and find what is installed. They do not have what this process alone has on
    its search path: the folder of its script, what `PYTHONPATH`, pytest or the program itself has added, or the folder
    in which it was started, if it has left that since.
    """
    path = os.path.splitext(os.path.abspath(getattr(module, "__file__", None) or ""))[0].removesuffix("/__init__")
    below = "/" + name.replace(".", "/")
    if not path.endswith(below):
        return {}  # built in, or a loader of its own has found it
    folder = path.removesuffix(below) or "/"
    if os.path.realpath(folder) == _run_folder():
        # `flows/nightly.py` is `flows.nightly` for workers, and imports what stands beside it.
        folder = _folder_of_main()
        return {"import_from": _relative(folder)} if folder and path.startswith(os.path.join(folder, "")) else {}
    if folder not in map(os.path.abspath, sys.path) or folder in _installed_folders():
        return {}
    return {"import_from": _relative(folder)}


def _folder_of_main() -> str:
    """The folder of the script or of the file that is read, which Python imports from; "" if workers do so anyway."""
    main = sys.modules[MAIN]
    file = getattr(main, "__file__", None)
    folder = getattr(main, "__mulligan_folder__", "")
    if file is not None and getattr(main, "__spec__", None) is None:
        folder = os.path.dirname(os.path.abspath(file))
    return "" if not folder or os.path.realpath(folder) == _run_folder() else folder


def _installed_folders() -> frozenset[str]:
    """The folders of installed modules, of which every process of this interpreter knows."""
    if not _installed:
        import site

        sites = [*site.getsitepackages(), site.getusersitepackages()]
        found = {os.path.dirname(os.__file__), *map(os.path.abspath, sites)}
        for folder in filter(os.path.isdir, sites):
            for name in os.listdir(folder):
                if name.endswith(".pth"):  # such as that of a package which is installed to be edited
                    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as lines:
                        found.update(os.path.abspath(os.path.join(folder, line.strip())) for line in lines)
        _installed.append(frozenset(found))
    return _installed[0]


_installed: list[frozenset[str]] = []


def _pin(function: Any, name: str) -> dict[str, str]:
    """The source of a function of `__main__`."""
    main = sys.modules[MAIN]
    code, file = defining_code(function), getattr(main, "__file__", None)
    if file is None or code is None or code.co_filename != file or not is_same(lookup(main, name), function):
        return _of_cell(function)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != MAIN:
        # `python -m package.module`: workers import it as that.
        return {"call": f"{spec.name}:{name}", **_search_folder(spec.name, main)}
    path = os.path.abspath(file)
    if (text := _script(path)) is None:
        refuse_function(f"the script '{file}' cannot be read any more", function, "keep it until its run has started")
    if not _defines(text, file, code):
        refuse_function(f"'{file}' has changed since this process loaded it", function, "start it again")
    return {"call": f"{_module_name(path)}:{name}", "source": text, "file": _relative(path)}


def _of_cell(function: Any) -> dict[str, str]:
    """The source of a function of a session as it is now. While a flow is built, it is put together once."""
    known: dict[Any, dict[str, str]] = getattr(RECORDER.get(), "pinned", {})
    written = written_function(function)
    if written not in known:
        from mulligan.flows.cell_source import action_for_cell

        known[written] = action_for_cell(function)
    return known[written]


def _script(path: str) -> str | None:
    try:
        status = os.stat(path)
        found = _texts.get(path)
        if found is None or found[0] != (status.st_mtime_ns, status.st_size):
            _texts.clear()
            import tokenize

            with tokenize.open(path) as lines:
                found = _texts[path] = (status.st_mtime_ns, status.st_size), lines.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    return found[1]


# The script as it was last read, with its time and size; and the code of its functions, by name.
_texts: dict[str, tuple[tuple[int, int], str]] = {}
_codes: dict[str, dict[str, list[CodeType]]] = {}


def _defines(text: str, file: str, code: CodeType) -> bool:
    """Whether compiling the text gives this code."""
    codes = _codes.get(text)
    if codes is None:
        _codes.clear()
        codes = _codes[text] = {}
        try:
            todo = [compile(text, file, "exec", dont_inherit=True)]
        except (SyntaxError, ValueError):
            return False
        while todo:
            one = todo.pop()
            codes.setdefault(one.co_name, []).append(one)
            todo += [const for const in one.co_consts if isinstance(const, CodeType)]
    return any(_is_same_code(one, code) for one in codes.get(code.co_name, ()))


def _is_same_code(one: CodeType, other: CodeType) -> bool:
    """Whether both were compiled from the same lines. Their own `==` also compares what the interpreter has cached."""
    if (one.co_firstlineno, one.co_code, one.co_names, one.co_varnames, len(one.co_consts)) != (
        *(other.co_firstlineno, other.co_code, other.co_names, other.co_varnames, len(other.co_consts)),
    ):
        return False
    return all(
        _is_same_code(left, right)
        if isinstance(left, CodeType) and isinstance(right, CodeType)
        else repr(left) == repr(right)
        for left, right in zip(one.co_consts, other.co_consts, strict=True)
    )


def _module_name(path: str) -> str:
    """The name of the script as a module. It hides no module of Python, and `if __name__ == "__main__":` is false."""
    stem = os.path.splitext(os.path.basename(path))[0]
    name = "".join(char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in stem)
    is_free = name == stem and not keyword.iskeyword(name) and name not in (*sys.stdlib_module_names, "mulligan", MAIN)
    return name if is_free and not name[:1].isdigit() else f"script_{name}"


def _run_folder() -> str:
    """The folder of the run: the current one, or that of the files that were published, on a worker."""
    return os.environ.get("MULLIGAN_SOURCE") or os.getcwd()


def _relative(path: str) -> str:
    """The path below the folder of the run, otherwise the whole."""
    return path.removeprefix(os.path.join(_run_folder(), ""))


def script_text(function: Any) -> tuple[str, str] | None:
    """The text of the file in which a function is defined, and the file as workers find it; None if there is none."""
    code = defining_code(function)
    if code is None or (text := _script(path := os.path.abspath(code.co_filename))) is None:
        return None
    return text, _relative(path)
