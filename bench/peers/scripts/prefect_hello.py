"""Prefect: one flow with one task that says hello, on the server that it starts for itself."""

from __future__ import annotations

from prefect import flow, task


@task
def hello() -> str:
    return "hello"


@flow
def greet() -> str:
    return hello()


assert greet() == "hello"
