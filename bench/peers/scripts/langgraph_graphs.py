"""The graphs of LangGraph's workloads, and its savers with every commit synced to disk."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class Nothing(TypedDict):
    done: int


def step(state: Nothing) -> Nothing:
    return {"done": state["done"] + 1}


def chain(count: int, saver: BaseCheckpointSaver[Any]) -> Any:
    """`count` nodes, one after the other, as a workflow file would have them."""
    graph = StateGraph(Nothing)
    names = [f"s{i}" for i in range(count)]
    for name in names:
        graph.add_node(name, step)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=saver)


def loop(count: int, saver: BaseCheckpointSaver[Any]) -> Any:
    """One node, `count` times over: the cheapest chain that LangGraph has, since a checkpoint grows with its nodes."""
    graph = StateGraph(Nothing)
    graph.add_node("s", step)
    graph.add_edge(START, "s")
    graph.add_conditional_edges("s", lambda state: "s" if state["done"] < count else END, ["s", END])
    return graph.compile(checkpointer=saver)


def run(graph: Any, count: int, thread: str) -> None:
    """One run of `count` steps, each checkpointed before the next one starts."""
    config = {"configurable": {"thread_id": thread}, "recursion_limit": count + 10}
    assert graph.invoke({"done": 0}, config, durability="sync") == {"done": count}


@contextmanager
def saver_on(store: str) -> Iterator[BaseCheckpointSaver[Any]]:
    """The saver of `store` (sqlite or postgres); what it holds at the end is left there to be counted."""
    if store == "postgres":
        with PostgresSaver.from_conn_string(os.environ["BENCH_POSTGRES"]) as saver:
            saver.setup()
            yield saver
        return
    connection = sqlite3.connect("checkpoints.db", check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    yield SqliteSaver(connection)
    connection.close()
