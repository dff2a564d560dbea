"""What the engine watches beside its tasks: a descriptor that may break, be closed, and have its number given away."""

from __future__ import annotations

import os
import selectors

import pytest

from mulligan.worker.supervisor.fd_events import unwatch, watch_reads


@pytest.fixture
def selector() -> selectors.BaseSelector:
    return selectors.DefaultSelector()


def readable() -> int:
    """A descriptor at its end: it can be read again and again."""
    reader, writer = os.pipe()
    os.close(writer)
    return reader


def test_what_is_forgotten_wakes_nobody(selector: selectors.BaseSelector) -> None:
    broken = readable()
    watch_reads(selector, broken, None)

    unwatch(selector, broken)

    assert selector.select(0) == []
    os.close(broken)


def test_what_was_closed_before_can_be_forgotten(selector: selectors.BaseSelector) -> None:
    broken = readable()
    watch_reads(selector, broken, None)
    os.close(broken)

    unwatch(selector, broken)

    assert not selector.get_map()


def test_a_number_that_is_another_s_by_now_is_not_forgotten(selector: selectors.BaseSelector) -> None:
    broken = readable()
    watch_reads(selector, broken, None)
    other = readable()
    os.dup2(other, broken)
    heard: list[str] = []
    watch_reads(selector, broken, lambda: heard.append("other"))

    unwatch(selector, broken)
    for key, _ in selector.select(0):
        key.data()

    assert heard == ["other"]
    os.close(other)
    os.close(broken)
