"""Programs and flows that call each other, for the tests of whole runs. Workers import this module."""

from __future__ import annotations

from typing import Any

from mulligan import StepError, StepFailed, flow, gather, program, route, step


@step
def add(number: int) -> int:
    if number > 90:
        raise StepError("BIG", "it is too big")
    return number + 1


@program
def inner(number: int) -> int:
    return add(add(number))


@flow
def twice(number: int):  # type: ignore[no-untyped-def]
    return add(add(number))


@flow
def named(number: int):  # type: ignore[no-untyped-def]
    return {"result": twice(number)}


@program
def outer() -> list[Any]:
    found: list[Any] = [inner(1), twice(2), named(3), *gather(twice.call(one) for one in (4, 5))]
    found.append(twice.options(key="last")(6))
    try:
        inner(100)
    except StepFailed as failed:
        found.append(failed.code)
    return found


@program
def factorial(number: int) -> int:
    return 1 if number < 2 else number * factorial(number - 1)


@program
def endless() -> None:
    endless()


@flow
def around(number: int):  # type: ignore[no-untyped-def]
    return add(inner(number))


@program(logs={"stdout": "./repair.log"})
def repair(number: int) -> int:
    print("repairing")
    return add(number)


@flow
def routed(number: int):  # type: ignore[no-untyped-def]
    failed = add(number)
    route(failed, repair(1), on="failure", then="continue")
    return failed
