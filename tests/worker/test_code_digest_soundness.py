"""Random projects of which one number is changed: a function that gives another result has another code."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.nightly import IS_NIGHTLY

from mulligan.worker.outputs.code_digest import code_of

PROJECTS = 500 if IS_NIGHTLY else 15
MODULES, STATEMENTS = 4, 6


class Project:
    """Modules that import those before them, in every way that Python has; `numbers` stand in their text as `@0@`."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0
        self.texts: list[str] = []
        for index in range(MODULES):
            self.texts.append(self._module(index))

    def written(self, changed: int) -> list[str]:
        values = [str(7**number % 1009 + (number == changed) * 5000) for number in range(self.count)]
        texts = self.texts
        for number, value in enumerate(values):
            texts = [text.replace(f"@{number}@", value) for text in texts]
        return texts

    def _number(self) -> str:
        self.count += 1
        return f"@{self.count - 1}@"

    def _module(self, index: int) -> str:
        known, lines = [self._number()], []
        for number in range(STATEMENTS):
            name = f"n{index}_{number}"
            if index and self.rng.random() < 0.5:
                lines += self._import(index, name, known)
            lines += self._statement(name, known)
        if self.rng.random() < 0.5 and index:
            other = self.rng.randrange(index)
            lines.append(f"import m{other} as patched{index}\npatched{index}.n{other}_0 = lambda: {self._number()}")
        lines.append(f"def entry(): return {self._sum(known)}")
        return "\n".join(lines) + "\n"

    def _sum(self, known: list[str]) -> str:
        return " + ".join([self._number(), *self.rng.choices(known, k=2)])

    def _import(self, index: int, name: str, known: list[str]) -> list[str]:
        """An import of an earlier module; what it makes known is added, as an expression."""
        other = self.rng.randrange(index)
        taken = f"n{other}_{self.rng.randrange(STATEMENTS)}"
        kind = self.rng.randrange(6)
        if kind == 0:
            known.append(f"{taken}_{name}()")
            return [f"from m{other} import {taken} as {taken}_{name}"]
        if kind == 1:
            known.append(f"m{other}.{taken}()")
            return [f"import m{other}"]
        if kind == 2:
            known.append(f"alias_{name}.{taken}()")
            return [f"import m{other} as alias_{name}"]
        if kind == 3:
            known.append(f"{taken}()")
            return [f"from m{other} import *"]
        if kind == 4:
            known.append(f"late_{name}()")
            return [f"def late_{name}():\n    from m{other} import {taken} as here\n    return here()"]
        known.append(f"getattr(value_{name}, '{taken}')()")
        return [f"try:\n    import m{other} as value_{name}\nexcept ImportError:\n    pass"]

    def _statement(self, name: str, known: list[str]) -> list[str]:
        """A callable with this name, made in one of many ways."""
        value, kind = self._sum(known), self.rng.randrange(9)
        known.append(f"{name}()")
        if kind == 0:
            return [f"c_{name} = {self._number()}", f"def {name}(): return c_{name} + {value}"]
        if kind == 1:
            return [f"{name} = lambda: {value}"]
        if kind == 2:
            return [f"class K_{name}:\n    v = {self._number()}", f"def {name}(): return K_{name}.v + {value}"]
        if kind == 3:
            return [f"l_{name} = []", f"l_{name}.append({self._number()})", f"def {name}(): return sum(l_{name})"]
        if kind == 4:
            return [f"def {name}(given=lambda: {value}): return given()"]
        if kind == 5:
            decorator = f"def d_{name}(f): return lambda: f() + {self._number()}"
            return [decorator, f"@d_{name}\ndef {name}(): return {value}"]
        if kind == 6:
            return [f"def {name}():\n    def inner(): return {value}\n    return inner()"]
        if kind == 7:
            by_name = f"def {name}(): return globals()['h_' + '{name}']()"
            return [f"def h_{name}(): return {value}", by_name]
        return [f"def {name}(): return {self._number()}", f"if True:\n    def {name}(): return {value}"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    forget()


def forget() -> None:
    for index in range(MODULES):
        sys.modules.pop(f"m{index}", None)


def outcome(folder: Path, texts: list[str]) -> tuple[int, str]:
    """What the last module gives, and the hash of its code."""
    for index, text in enumerate(texts):
        (folder / f"m{index}.py").write_text(text)
    forget()
    importlib.invalidate_caches()
    given: int = importlib.import_module(f"m{MODULES - 1}").entry()
    return given, code_of(f"m{MODULES - 1}:entry", [str(folder)], {}).digest


def test_a_function_that_gives_another_result_has_another_code(folder: Path) -> None:
    missed, changes, same = [], 0, 0
    for seed in range(PROJECTS):
        project = Project(seed)
        before = outcome(folder, project.written(-1))
        number = project.rng.randrange(project.count)
        after = outcome(folder, project.written(number))
        changes += before[0] != after[0]
        same += before[1] == after[1]
        if before[0] != after[0] and before[1] == after[1]:
            missed.append((seed, number))

    assert missed == []
    # It is not so because every change counts, or because none has an effect.
    assert changes > PROJECTS / 10
    assert same > PROJECTS / 10
