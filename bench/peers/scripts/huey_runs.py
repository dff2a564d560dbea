"""huey: COUNT pipelines of three no-op tasks on SQLite with fsync, PARALLEL workers."""

from __future__ import annotations

import sys
from typing import Any

from huey import SqliteHuey

count, parallel = int(sys.argv[1]), int(sys.argv[2])
huey = SqliteHuey("bench", filename="huey.db", fsync=True, journal_mode="wal", timeout=60)


@huey.task()
def first() -> int:
    return 1


@huey.task()
def second(before: int) -> int:
    return before + 1


@huey.task()
def third(before: int) -> int:
    return before + 1


def main() -> None:
    # Its default polling interval grows to ten seconds.
    consumer: Any = huey.create_consumer(
        workers=parallel, worker_type="thread", periodic=False, initial_delay=0.001, max_delay=0.01
    )
    consumer.start()
    results = [huey.enqueue(first.s().then(second).then(third)) for _ in range(count)]
    for _, _, last in results:
        assert last.get(blocking=True, backoff=1.0, max_delay=0.01, timeout=600) == 3
    consumer.stop(graceful=True)


main()
