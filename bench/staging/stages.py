"""The stages of a run, as a table: the functions of the product that each consists of.

A function is named as `module:name`, where it is looked up when it is called. The time of a function is that without
the functions in it that belong to another stage.
"""

from __future__ import annotations

from typing import NamedTuple

READING, CREATING, ENDING, REST = "reading the file", "creating the run, its first turn", "at the end", "the rest"
SHOWING = "final JSON"
COMMIT = "COMMIT, with its fsync"


class Stage(NamedTuple):
    """A part of the work, and its functions. `then`: the name of what follows in the function that called it."""

    name: str
    functions: tuple[str, ...]
    then: str = ""


# Before the first task starts, and after the run has ended: everything else there is CREATING or ENDING.
AROUND = (
    Stage(
        READING,
        (
            "mulligan.formats.loading:examine",
            "mulligan.service.runs.changes.prepared_runs:prepare",
        ),
    ),
    Stage(SHOWING, ("mulligan.cli.running.drive_run:show_json_parts",)),
)

# What happens for each step, in the order in which it happens.
PER_STEP = (
    Stage("waiting for the step (epoll)", ("selectors:EpollSelector.select",)),
    Stage("receive and decode", ("mulligan.worker.child.warm_child:WarmChild.receive",)),
    Stage("report: side files, end of the task", ("mulligan.worker.child.called_tasks:CalledTasks.on_child_ready",)),
    Stage("collect, timers, news", ("mulligan.engine.engine:Engine.tick",)),
    Stage("core turn", ("mulligan.engine.run_driver:RunDriver.decide",)),
    Stage("task from the state", ("mulligan.engine.run_driver:make_task",)),
    Stage("rows from the journal", ("mulligan.engine.run_driver:RunDriver.build_commit",)),
    Stage("BEGIN", ("mulligan.store.sqlite.sqlite:SqliteStore.commit",)),
    Stage("statements and encoding", ("mulligan.store.sqlite.sqlite:SqliteStore._write_commits",), then=COMMIT),
    Stage(COMMIT, ()),
    Stage("statements and encoding", ("mulligan.store.postgres.postgres:PostgresStore.commit",)),
    Stage("parameters to bytes", ("mulligan.store.postgres.postgres_pipeline:pipeline",)),
    Stage("round trip, with its fsync", ("mulligan.store.postgres.postgres_pipeline:_exchanged",)),
    Stage("after the commit", ("mulligan.engine.turns:TurnTaker._confirm",)),
    Stage("lease: secrets and artifacts in, order", ("mulligan.worker.local_executor:LocalExecutor.start",)),
    Stage("encode and send", ("mulligan.worker.child.child_pool:ChildPool.start_task",)),
    Stage(
        "tail: display",
        (
            "mulligan.service.rendering.console.display:Display.committed",
            "mulligan.service.rendering.console.display:Display.tick",
        ),
    ),
    Stage("tail: home, heartbeat, end", ("mulligan.service.driving.driver:Driver._once",)),
)
# The first call of this ends CREATING, and the end of that begins ENDING.
FIRST_TASK = "mulligan.worker.local_executor:LocalExecutor.start"
DRIVING = "mulligan.service.driving.driver:Driver.drive"
