"""When an engine looks into its store: at rest seldom, if the store wakes it for whatever others write."""

from __future__ import annotations

import pytest

from mulligan.engine.change_watch import IDLE_SECONDS, NOTIFIED_IDLE_SECONDS, ChangeWatch
from mulligan.testing.clock import JumpingClock


class Feed:
    """A store of which only the feed is asked."""

    has_news = False

    def has_changes(self) -> bool:
        return self.has_news


@pytest.mark.parametrize(("is_notified", "polls"), [(True, 6), (False, 60)])
def test_a_worker_at_rest_looks_every_ten_seconds_if_its_store_notifies_it(is_notified: bool, polls: int) -> None:
    clock = JumpingClock()
    watch = ChangeWatch(Feed(), clock, is_shared=True)  # type: ignore[arg-type]
    watch.is_notified = is_notified
    watch.begin_poll()
    before = watch.polls

    for _ in range(6_660):
        clock.advance(0.01)
        if watch.is_due():
            watch.begin_poll()

    seconds = NOTIFIED_IDLE_SECONDS if is_notified else IDLE_SECONDS
    assert polls <= watch.polls - before <= 66.6 / seconds


def test_what_others_write_is_looked_at_with_the_next_poll() -> None:
    clock, feed = JumpingClock(), Feed()
    watch = ChangeWatch(feed, clock, is_shared=True)  # type: ignore[arg-type]
    watch.is_notified = True
    watch.begin_poll()
    clock.advance(0.02)
    assert not watch.is_due()

    feed.has_news = True
    clock.advance(0.02)

    assert watch.is_due()
