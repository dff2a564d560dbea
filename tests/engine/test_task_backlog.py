"""The tasks that wait for capacity: oldest first, and those that only wait apart from those that compute."""

from __future__ import annotations

from mulligan.engine.task_backlog import BacklogEntry, TaskBacklog


def backlog(*names: str) -> TaskBacklog:
    """Names in capital letters wait for another machine."""
    made = TaskBacklog()
    for name in names:
        made.append((name, 1), waits=name.isupper())
    return made


def popped(found: TaskBacklog, *, skips_waiting: bool = False) -> list[str]:
    names = []
    while (entry := found.pop(skips_waiting=skips_waiting)) is not None:
        names.append(entry.task_key[0])
    return names


def test_the_oldest_comes_first_of_either_kind() -> None:
    assert popped(backlog("a", "B", "c", "D")) == ["a", "B", "c", "D"]


def test_those_that_wait_are_skipped_and_stay() -> None:
    found = backlog("A", "B", "c", "D", "e")

    assert popped(found, skips_waiting=True) == ["c", "e"]
    assert found.has_only_waiting
    assert popped(found) == ["A", "B", "D"]
    assert not found


def test_what_is_put_back_is_where_it_was() -> None:
    found = backlog("a", "B", "c")
    entries = [entry for _ in range(2) if isinstance(entry := found.pop(skips_waiting=False), BacklogEntry)]

    found.put_back(entries)
    found.append_first(("Z", 1), waits=True)

    assert list(found) == [("Z", 1), ("a", 1), ("B", 1), ("c", 1)]
    assert popped(found) == ["Z", "a", "B", "c"]
