"""Retry rules as Python writes them."""

from __future__ import annotations

import sys

from mulligan.flows.context import given, refuse
from mulligan.flows.functions import MAIN
from mulligan.values.exception_names import names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from typing import Any

    Duration = str | int | float | timedelta


class Retry:
    """When a failed attempt is repeated, and after which delay.

        Retry(max_retries=3, delay="1s", factor=2)
        Retry(codes=["CONNECTION", "TIMEOUT"], max_retries=5)
        Retry(exceptions=[ConnectionError, httpx.TimeoutException], max_retries=5)
        Retry(rules=[Retry(exit_codes=[75]), Retry(any=True, max_retries=1)], max_attempts=6)

    `exceptions` are classes, which their subclasses match too, or their dotted names for what is not imported here.
    Durations are `"30s"`, `"5m"`, a number of seconds or a `timedelta`. The keywords are the keys of `retry` in a file.
    """

    __slots__ = ("keys",)

    if not TYPE_CHECKING:

        def __new__(cls, **keys):
            """Refuse unknown keys with a hint, before `__init__` does it without one."""
            known = cls.__init__.__kwdefaults__
            for name in keys.keys() - known.keys():
                from mulligan.language.text.suggestions import key_hint

                hint = key_hint(name, known)
                refuse("unknown_key", f"'{name}' is not a key of Retry", hint=hint, word=name)
            return super().__new__(cls)

    def __init__(
        self,
        *,
        codes: Sequence[str] | str | None = None,
        exit_codes: Sequence[int | str] | int | str | None = None,
        exceptions: Sequence[type[BaseException] | str] | type[BaseException] | str | None = None,
        pattern: str | None = None,
        any: bool | None = None,
        max_retries: int | None = None,
        max_attempts: int | None = None,
        delay: Duration | None = None,
        delays: Sequence[Duration] | None = None,
        factor: float | None = None,
        max_delay: Duration | None = None,
        jitter: float | None = None,
        recovery_script: Any = None,
        adjust: dict[str, Any] | None = None,
        rules: Sequence[Retry | dict[str, Any]] | None = None,
        deadline: Duration | None = None,
        host: str | None = None,
        conversation: str | None = None,
    ) -> None:
        self.keys: dict[str, Any] = given(locals())
        _refuse_classes(codes)
        if exceptions is not None:
            listed = exceptions if isinstance(exceptions, list | tuple | set | frozenset) else [exceptions]
            self.keys["exceptions"] = [_exception_name(one) for one in listed]

    def __repr__(self) -> str:
        return f"Retry({', '.join(f'{name}={value!r}' for name, value in self.keys.items())})"


def _refuse_classes(codes: Any) -> None:
    listed = codes if isinstance(codes, list | tuple) else [codes]
    found = next((one for one in listed if isinstance(one, type)), None)
    if found is not None:
        name = found.__name__
        message = f"a code is a text such as 'CONNECTION', and this is the class '{name}'"
        refuse("type", message, hint=f"write exceptions=[{name}]", word=name)


def _exception_name(one: Any) -> str:
    """The name of a class, as workers know it."""
    if isinstance(one, str):
        return one
    if not (isinstance(one, type) and issubclass(one, BaseException)):
        named = type(one).__name__ if isinstance(one, BaseException) else ""
        message = f"'exceptions' takes classes of exceptions, and this is {one!r}"
        hint = f"write exceptions=[{named}]" if named else "such as exceptions=[ConnectionError]"
        refuse("type", message, hint=hint, word=named)
    name, spec = names_of(one)[0], getattr(sys.modules[MAIN], "__spec__", None)
    if name.startswith(f"{MAIN}.") and spec is not None and spec.name != MAIN:
        # `python -m package.module`: workers import it as that.
        return f"{spec.name}{name.removeprefix(MAIN)}"
    return name
