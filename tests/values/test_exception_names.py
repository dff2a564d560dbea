"""The names of exceptions: those that tracebacks show, and those that people write."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import pytest

from mulligan.values.exception_names import names_of, names_with_bases


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (ConnectionResetError, ["ConnectionResetError"]),
        (OSError, ["OSError"]),
        (json.JSONDecodeError, ["json.decoder.JSONDecodeError", "json.JSONDecodeError"]),
    ],
)
def test_a_class_has_the_names_under_which_it_is_defined_and_offered(kind: type, names: list[str]) -> None:
    assert names_of(kind) == names


def test_the_bases_of_an_exception_follow_and_what_is_no_exception_is_left_out() -> None:
    class Marked:
        pass

    class Slow(Marked, TimeoutError):
        pass

    own = f"{__name__}.{Slow.__qualname__}"
    assert names_with_bases(Slow()) == [own, "TimeoutError", "OSError", "Exception"]


@pytest.mark.parametrize("module", ["__main__", "__mulligan__"])
def test_a_class_of_a_script_and_of_the_code_of_a_step_is_one_of_main(module: str) -> None:
    kind = type("Refused", (Exception,), {"__module__": module})

    assert names_of(kind) == ["__main__.Refused"]


def test_another_class_of_that_name_in_the_package_above_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    package: Any = ModuleType("shop")
    package.Refused = ValueError
    monkeypatch.setitem(sys.modules, "shop", package)
    kind = type("Refused", (Exception,), {"__module__": "shop.errors"})

    assert names_of(kind) == ["shop.errors.Refused"]
