"""Dagster: one job with one op that says hello, in this process, kept in the instance of $DAGSTER_HOME."""

from __future__ import annotations

from dagster import DagsterInstance, job, op


@op
def hello() -> str:
    return "hello"


@job
def greet() -> None:
    hello()


with DagsterInstance.get() as instance:
    assert greet.execute_in_process(instance=instance).output_for_node("hello") == "hello"
