"""The workloads, as a table: the contestants, the counts, and the promised bars."""

from __future__ import annotations

from dataclasses import dataclass

from peers import contestants as peer
from peers import ours
from peers.bars import AtMost, Beside
from peers.contestants import Contestant

FAN_SIZES = (1_000, 10_000, 100_000)
FAN_PARALLEL = (2, 8)
# From this size on one round is enough, and the peers that take minutes run only when asked for.
LARGE = 100_000
# What is committed of a chain's step, roughly, and of an inline call: the size of its fact.
_CHAIN_BYTES, _INLINE_BYTES = 300, 330
_LOOP = "LangGraph, one node in a loop"
_BARE = "bare SQLite commits"
_OWN_CHAIN = "Mulligan, chain of a file"
_THREADS = "DBOS, called by 8 threads"


@dataclass(frozen=True, slots=True)
class Workload:
    """One table. `is_net`: a run with a count of 1 is timed too and taken off, so that start-up is told apart."""

    group: str
    title: str
    count: int
    ours: tuple[Contestant, ...]
    peers: tuple[Contestant, ...] = ()
    bars: tuple[Beside | AtMost, ...] = ()
    parallel: int = 1
    unit: str = "steps"
    is_net: bool = True
    on_postgres: bool = False
    rounds_max: int = 3


_MULLIGAN_CHAIN = Contestant("Mulligan", ours.chain)
_MULLIGAN_RUNS = Contestant("Mulligan", ours.mulligan_runs)


def all_workloads(with_slow_peers: bool = False) -> list[Workload]:
    """Every workload of the bench, in the order of the tables."""
    return [CHAIN, CHAIN_POSTGRES, PROGRAM, INLINE, RUNS_POSTGRES, RUNS, *_fans(with_slow_peers), START, *MEMORY]


CHAIN = Workload(
    "chain",
    "no-op Python steps in a chain, each durable with fsync, SQLite",
    1_000,
    (_MULLIGAN_CHAIN,),
    (
        Contestant(_BARE, peer.bare_commits(_CHAIN_BYTES), "sqlite"),
        Contestant("LangGraph", peer.langgraph_chain("sqlite", "chain"), "langgraph"),
        Contestant(_LOOP, peer.langgraph_chain("sqlite", "loop"), "langgraph"),
        Contestant("DBOS", peer.dbos_chain("sqlite"), "dbos"),
    ),
    (Beside("LangGraph", 3, 5), Beside(_LOOP, 3, 5), Beside("DBOS", 6, 10), Beside(_BARE, 0.2, 0.35)),
)

CHAIN_POSTGRES = Workload(
    "chain-postgres",
    "no-op Python steps in a chain, each durable with fsync, PostgreSQL",
    1_000,
    (_MULLIGAN_CHAIN,),
    (
        Contestant("DBOS", peer.dbos_chain("postgres"), "dbos"),
        Contestant("LangGraph", peer.langgraph_chain("postgres", "chain"), "langgraph"),
        Contestant(_LOOP, peer.langgraph_chain("postgres", "loop"), "langgraph"),
    ),
    (Beside("DBOS", 3, 5), Beside("LangGraph", 1.7, 3), Beside(_LOOP, 1.7, 3)),
    on_postgres=True,
)

PROGRAM = Workload(
    "program",
    "calls of a no-op step by a program, each durable with fsync, SQLite",
    1_000,
    (Contestant("Mulligan", ours.program(is_inline=False)),),
    (Contestant(_OWN_CHAIN, ours.chain), Contestant("DBOS", peer.dbos_chain("sqlite"), "dbos")),
    (Beside(_OWN_CHAIN, 0.6),),
    unit="calls",
)

INLINE = Workload(
    "program",
    "calls of a no-op inline step by a program, each durable with fsync, SQLite",
    1_000,
    (Contestant("Mulligan", ours.program(is_inline=True)),),
    (
        Contestant(_BARE, peer.bare_commits(_INLINE_BYTES), "sqlite"),
        Contestant("DBOS", peer.dbos_chain("sqlite"), "dbos"),
    ),
    (Beside("DBOS", 4), Beside(_BARE, 0.8)),
    unit="calls",
)

RUNS_POSTGRES = Workload(
    "runs",
    "runs of three no-op Python steps, PostgreSQL",
    1_000,
    (_MULLIGAN_RUNS,),
    (
        Contestant("DBOS", peer.dbos_runs("queue"), "dbos"),
        Contestant(_THREADS, peer.dbos_runs("threads"), "dbos"),
    ),
    (Beside("DBOS", 10, 20), Beside(_THREADS, 10, 20)),
    parallel=8,
    unit="runs",
    on_postgres=True,
)

RUNS = Workload(
    "runs",
    "runs of three no-op Python steps, SQLite",
    1_000,
    (_MULLIGAN_RUNS,),
    (
        Contestant("LangGraph", peer.langgraph_runs, "langgraph"),
        Contestant("huey", peer.huey_runs, "huey"),
    ),
    (Beside("LangGraph", 10, 20), Beside("huey", 3, 8)),
    parallel=8,
    unit="runs",
)

START = Workload(
    "start",
    "step that says hello, from nothing to the end",
    1,
    (Contestant("Mulligan", ours.hello),),
    (
        Contestant("DBOS", peer.dbos_hello, "dbos"),
        Contestant("Snakemake", peer.snakemake_hello, "snakemake"),
        Contestant("Dagster", peer.dagster_hello, "dagster"),
        Contestant("Prefect", peer.prefect_hello, "prefect"),
    ),
    (
        AtMost("seconds", 0.25, 0.12),
        Beside("DBOS", 5),
        Beside("Snakemake", 5),
        Beside("Dagster", 5),
        Beside("Prefect", 5),
    ),
    is_net=False,
)

MEMORY = (
    Workload(
        "memory",
        "no-op Python steps in a chain, peak memory",
        1_000,
        (_MULLIGAN_CHAIN,),
        bars=(AtMost("megabytes", 80, 45),),
        is_net=False,
        rounds_max=1,
    ),
    Workload(
        "memory",
        "shell steps, then a join, peak memory",
        100_000,
        (Contestant("Mulligan", ours.fan("true")),),
        bars=(AtMost("megabytes", 600, 200),),
        parallel=8,
        is_net=False,
        rounds_max=1,
    ),
)


def _fans(with_slow_peers: bool) -> list[Workload]:
    return [_fan(size, parallel, with_slow_peers) for size in FAN_SIZES for parallel in FAN_PARALLEL]


def _fan(size: int, parallel: int, with_slow_peers: bool) -> Workload:
    """Shell steps beside each other. `true` may be executed without a shell; `true; true` never is."""
    xargs = Contestant("xargs", peer.xargs_fan)
    others = (
        Contestant("HyperQueue", peer.hyperqueue_fan, "hyperqueue"),
        Contestant("doit", peer.doit_fan, "doit"),
    )
    return Workload(
        "fan",
        "shell steps, then a join",
        size,
        (Contestant("Mulligan", ours.fan("true")), Contestant("Mulligan, through bash", ours.fan("true; true"))),
        (xargs,) if size >= LARGE and not with_slow_peers else (xargs, *others),
        (Beside("xargs", 0.7, 0.9), Beside("HyperQueue", 2), Beside("doit", 1.2)),
        parallel=parallel,
        rounds_max=1 if size >= LARGE else 3,
    )
