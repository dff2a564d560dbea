"""The code that a result is known by: what counts of a project's modules, and what does not."""

from __future__ import annotations

import os
import py_compile
import sys
from pathlib import Path

import pytest

from mulligan.worker.outputs.code_digest import code_of, digest_call
from mulligan.worker.outputs.code_files import INLINE, Code

HELPER = "def helper(x): return x + LIMIT\nLIMIT = 3\ndef untouched(): return 1\n"
STEP = "from helpers import helper\ndef load(n):\n    return helper(n)\ndef other(): return 2\n"
PROJECT = {"sales.py": STEP, "helpers.py": HELPER}


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def code(folder: Path, call: str = "sales:load", **sources: str) -> Code:
    return code_of(call, [str(folder)], sources)


# -- what counts: a module, what it was, what it is now

COUNTS = {
    "its own text": ("sales.py", STEP, STEP.replace("helper(n)", "helper(n) * 2")),
    "a function that it calls": ("helpers.py", HELPER, HELPER.replace("x +", "x -")),
    "a constant that this reads": ("helpers.py", HELPER, HELPER.replace("= 3", "= 4")),
    "a default": ("sales.py", STEP.replace("(n)", "(n=1)"), STEP.replace("(n)", "(n=2)")),
    "a change of a constant": ("helpers.py", "LIMIT = {}\n" + HELPER, "LIMIT = {}\nLIMIT[1] = 2\n" + HELPER),
    "what runs unless it is the program": (
        "sales.py",
        STEP + "if __name__ != '__main__':\n    LIMIT = 3\n",
        STEP + "if __name__ != '__main__':\n    LIMIT = 4\n",
    ),
    "what runs if it is not the program": (
        "sales.py",
        STEP + "if __name__ == '__main__':\n    pass\nelse:\n    LIMIT = 3\n",
        STEP + "if __name__ == '__main__':\n    pass\nelse:\n    LIMIT = 4\n",
    ),
    "what runs at its import": ("sales.py", STEP, STEP + "import os\nos.environ['A'] = 'b'\n"),
    "what runs at an import that it does not use": (
        "helpers.py",
        HELPER + "import plugins\n",
        HELPER + "import plugins\nprint(1)\n",
    ),
    "a method": ("helpers.py", "class helper:\n  def a(self): return 1\n", "class helper:\n  def a(self): return 2\n"),
    "a base class": (
        "helpers.py",
        "class B:\n  x = 1\nclass helper(B): pass\n",
        "class B:\n  x = 2\nclass helper(B): pass\n",
    ),
    "a field of a dataclass": ("helpers.py", "class helper:\n  x: int = 1\n", "class helper:\n  x: int = 2\n"),
    "a decorator of its own": (
        "sales.py",
        "def twice(f): return f\n@twice\ndef load(): pass\n",
        "def twice(f): return lambda: 2\n@twice\ndef load(): pass\n",
    ),
    "an inner function": (
        "sales.py",
        "def load():\n  def inner(): return 1\n  return inner()\n",
        "def load():\n  def inner(): return 2\n  return inner()\n",
    ),
    "a lambda": ("helpers.py", "helper = lambda x: x\n", "helper = lambda x: -x\n"),
    "the later of two definitions": ("helpers.py", HELPER, HELPER + "def helper(x): return 0\n"),
    "a name in a string": (
        "sales.py",
        "import sys\ndef a(): return 1\ndef load(): return getattr(sys.modules[__name__], 'a')()\n",
        "import sys\ndef a(): return 2\ndef load(): return getattr(sys.modules[__name__], 'a')()\n",
    ),
    "any name, if they are looked up": (
        "sales.py",
        "def a1(): return 1\ndef load(n): return globals()['a' + n]()\n",
        "def a1(): return 2\ndef load(n): return globals()['a' + n]()\n",
    ),
    "an import in a function": (
        "sales.py",
        "def load():\n  from helpers import untouched\n  return untouched()\n",
        "def load():\n  from helpers import helper\n  return helper()\n",
    ),
    "one of two modules": (
        "sales.py",
        "try:\n  from fast import f\nexcept ImportError:\n  from helpers import helper as f\ndef load(): f()\n",
        "try:\n  from fast import f\nexcept ImportError:\n  from helpers import untouched as f\ndef load(): f()\n",
    ),
    "a module that cannot be read as Python": ("helpers.py", "this is no Python 1", "this is no Python 2"),
}


REGISTRY = "FOUND = []\ndef register(one):\n    FOUND.append(one)\n    return one\n"
BASE = "class Base:\n    def __init_subclass__(cls): FOUND.append(cls)\nFOUND = []\n"
REGISTERED = {
    "by a decorator": (REGISTRY, "@register\ndef one(): return 1\n", "FOUND"),
    "by a call that is assigned": (REGISTRY, "_ = register(1)\n", "FOUND"),
    "by what is handed to a call": (REGISTRY, "def one(): return 1\ndone = list(map(register, [one]))\n", "FOUND"),
    "by a default": (REGISTRY, "def unused(one=register(1)): pass\n", "FOUND"),
    "by the body of a class": (REGISTRY, "class Unused:\n    FOUND += [1]\n    register(1)\n", "FOUND"),
    "by its base class": (BASE, "class One(Base):\n    number = 1\n", "FOUND"),
    "by being a subclass": (BASE, "class One(Base):\n    number = 1\n", "Base.__subclasses__()"),
    "by a generic function": (
        "from functools import singledispatch\n@singledispatch\ndef kind(x): return 0\n",
        "@kind.register\ndef _(x: int): return 1\n",
        "kind(n)",
    ),
    "by a function that makes a global name": (
        "",
        "def make():\n    global made\n    made = 1\n_ = list([make()])\n",
        "made",
    ),
}


@pytest.mark.parametrize(("first", "then", "use"), REGISTERED.values(), ids=REGISTERED.keys())
def test_what_makes_itself_known_when_it_is_imported_counts(tmp_path: Path, first: str, then: str, use: str) -> None:
    load = f"def load(n): return {use}\n"
    before = code(project(tmp_path, {"sales.py": first + then + load}))

    after = code(project(tmp_path, {"sales.py": first + then.replace("1", "2") + load}))

    assert after.parts != before.parts


@pytest.mark.parametrize(("file", "before", "after"), COUNTS.values(), ids=COUNTS.keys())
def test_a_change_of_what_a_function_uses_is_another_code(tmp_path: Path, file: str, before: str, after: str) -> None:
    first = code(project(tmp_path / "first", {**PROJECT, file: before}))
    second = code(project(tmp_path / "second", {**PROJECT, file: after}))

    assert first.digest != second.digest


DOES_NOT = {
    "a comment": ("helpers.py", HELPER, "# now with a comment\n" + HELPER),
    "formatting": ("sales.py", STEP, STEP.replace("helper(n)", "helper(\n        n,\n    )")),
    "docstrings": ("sales.py", STEP, f'"""New."""\n{STEP}'.replace("load(n):\n", 'load(n):\n    """New."""\n')),
    "a function that is not used": ("helpers.py", HELPER, HELPER.replace("return 1", "return 2")),
    "another step": ("sales.py", STEP, STEP.replace("return 2", "return 3")),
    "how it is tried again": (
        "sales.py",
        "from mulligan import step\n@step(retry=1)\ndef load(): pass\n",
        "from mulligan import step\n@step(retry=2)\ndef load(): pass\n",
    ),
    "what only a script does": ("sales.py", STEP, STEP + "if __name__ == '__main__': load(1)\n"),
    "another file": ("unused.py", "A = 1", "A = 2"),
}


@pytest.mark.parametrize(("file", "before", "after"), DOES_NOT.values(), ids=DOES_NOT.keys())
def test_a_change_of_anything_else_is_not(tmp_path: Path, file: str, before: str, after: str) -> None:
    first = code(project(tmp_path / "first", {**PROJECT, file: before}))
    second = code(project(tmp_path / "second", {**PROJECT, file: after}))

    assert first.digest == second.digest


HOW_IT_IS_IMPORTED = {
    "a function": ("from lib.deep import f", "f()"),
    "under another name": ("from lib.deep import f as g", "g()"),
    "a module": ("import lib.deep", "lib.deep.f()"),
    "a module under another name": ("import lib.deep as d", "d.f()"),
    "a module of a package": ("from lib import deep", "deep.f()"),
    "a module through its package": ("import lib", "lib.deep.f()"),
    "through the package": ("from lib import again", "again()"),
    "everything": ("from lib.deep import *", "f()"),
}


@pytest.mark.parametrize(("line", "use"), HOW_IT_IS_IMPORTED.values(), ids=HOW_IT_IS_IMPORTED.keys())
def test_a_function_is_followed_however_it_is_imported(tmp_path: Path, line: str, use: str) -> None:
    files = {
        "sales.py": f"{line}\ndef load(): return {use}\n",
        "lib/__init__.py": "from . import deep\nfrom .deep import f as again\n",
        "lib/deep.py": "from . import low\ndef f(): return low.g()\n",
        "lib/low.py": "def g(): return 1\ndef h(): return 1\n",
    }
    first = code(project(tmp_path / "first", files))
    second = code(project(tmp_path / "second", {**files, "lib/low.py": "def g(): return 2\ndef h(): return 1\n"}))
    third = code(project(tmp_path / "third", {**files, "lib/low.py": "def g(): return 1\ndef h(): return 2\n"}))

    assert first.digest != second.digest
    assert first.digest == third.digest


def test_all_of_a_module_counts_that_is_imported_by_a_name_in_a_call(tmp_path: Path) -> None:
    load = "import importlib\ndef load(): return importlib.import_module('lib.deep').f()\n"
    files = {"sales.py": load, "lib/__init__.py": "", "lib/deep.py": "def f(): return 1\n"}
    before = code(project(tmp_path, files))

    assert code(project(tmp_path, {"lib/deep.py": "def f(): return 2\n"})).digest != before.digest


def test_all_of_a_module_counts_also_if_it_imports_everything_of_another(tmp_path: Path) -> None:
    dynamic = "from helpers import *\ndef a1(): return 1\ndef load(n): return globals()['a' + n]()\n"

    assert "sales.py: a1" in code(project(tmp_path, {"sales.py": dynamic, "helpers.py": HELPER})).parts


def test_all_of_a_module_counts_that_is_passed_on_as_a_value(tmp_path: Path) -> None:
    files = {"sales.py": "import helpers\ndef load(n): return getattr(helpers, n)(1)\n", "helpers.py": HELPER}

    assert "helpers.py: untouched" in code(project(tmp_path, files)).parts


def test_modules_that_import_each_other_and_functions_that_call_themselves_are_followed_once(tmp_path: Path) -> None:
    files = {
        "sales.py": "import b\nfrom b import g\ndef load(n): return load(n - 1) if n else g()\n",
        "b.py": "import sales\nfrom sales import load\ndef g(): return sales.load(0) or load(0) or h()\ndef h(): g()\n",
    }

    assert sorted(code(project(tmp_path, files)).parts) == [
        "b.py: g",
        "b.py: h",
        "b.py: load",
        "b.py: sales",
        "sales.py: g",
        "sales.py: load",
    ]


def test_the_parts_are_the_same_in_each_process_and_name_no_folder(tmp_path: Path) -> None:
    folders = [project(tmp_path / name, PROJECT) for name in ("here", "there")]

    first, second = [digest_call("sales:load", [str(folder)], {})["parts"] for folder in folders]

    assert list(first) != [] and first == second
    assert not any(str(tmp_path) in name for name in first)


def test_text_is_followed_as_a_file_is(tmp_path: Path) -> None:
    project(tmp_path, PROJECT)
    inline = code_of(f"{INLINE}:", [str(tmp_path)], {INLINE: "import helpers\ndef main(): return helpers.helper(1)"})
    pinned = code_of("sales:load", [str(tmp_path)], {"sales": STEP})

    assert {"helpers.py: helper", "helpers.py: LIMIT"} <= {*inline.parts} & {*pinned.parts}
    assert str(tmp_path / "sales.py") not in pinned.files


def test_what_is_installed_does_not_count(tmp_path: Path) -> None:
    assert code(tmp_path, "json:loads").parts == {}


def test_a_code_is_unchanged_until_a_file_of_it_is_written_or_hidden_by_another(tmp_path: Path) -> None:
    found = code(project(tmp_path, PROJECT))
    assert found.is_unchanged

    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").write_text("helper = print")

    assert not found.is_unchanged
    assert found.changed_at == max((tmp_path / name).stat().st_ctime_ns for name in PROJECT) / 1e9


def test_an_expression_that_is_nested_deeper_than_python_allows_counts_as_text(tmp_path: Path) -> None:
    deep = sys.getrecursionlimit() * 3
    first, second = [
        code(project(tmp_path / name, {"sales.py": f"def load(): return {'+'.join([name] * deep)}\n"})) for name in "xy"
    ]

    assert first.digest != second.digest


def test_what_python_has_compiled_from_an_earlier_text_of_the_same_second_is_removed(tmp_path: Path) -> None:
    file = project(tmp_path, {"sales.py": "def load(): return 1\n"}) / "sales.py"
    os.utime(file, (10**9, 10**9))
    compiled = Path(py_compile.compile(str(file), doraise=True) or "")
    os.utime(compiled, (10**9, 10**9))
    file.write_text("def load(): return 2\n")
    os.utime(file, (10**9, 10**9))

    code(tmp_path)

    assert not compiled.exists()


def test_what_is_no_file_is_no_module(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sales.py")

    assert code(tmp_path).parts == {}


def test_a_long_file_is_read_in_one_go(tmp_path: Path) -> None:
    lines = [f"def f{n}(x): y = x; return f{n - 1}(y)\n" for n in range(1, 1000)]
    project(tmp_path, {"sales.py": "def f0(x): return x\n" + "".join(lines)})

    assert len(code(tmp_path, "sales:f999").parts) == 1000
