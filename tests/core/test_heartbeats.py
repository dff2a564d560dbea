"""Which worker may declare another one dead: one in contact with the store for a whole lease."""

from __future__ import annotations

import pytest

from mulligan.core.deciding.workers.expiry_permission import HeartbeatSeries, first_heartbeat

LEASE = 30.0
EVERY = LEASE / 6


def beaten(contact: HeartbeatSeries, *moments: float) -> HeartbeatSeries:
    """After heartbeats that were sent and accepted at these moments."""
    for moment in moments:
        contact = contact.after_heartbeat(moment, moment, LEASE)
    return contact


def steadily(contact: HeartbeatSeries, since: float, until: float) -> HeartbeatSeries:
    count = int((until - since) / EVERY)
    return beaten(contact, *(since + EVERY * number for number in range(1, count + 1)))


def test_a_worker_that_has_just_started_judges_nobody_for_a_lease():
    contact = steadily(first_heartbeat(0), 0, LEASE)

    assert not contact.may_expire_others(LEASE, LEASE)
    assert contact.may_expire_others(LEASE + 0.1, LEASE)


@pytest.mark.parametrize("outage", [LEASE / 2 + 0.1, LEASE, 100 * LEASE])
def test_a_worker_that_was_cut_off_gives_everybody_a_lease_from_its_return(outage: float):
    back = 2 * LEASE + outage
    contact = beaten(steadily(first_heartbeat(0), 0, 2 * LEASE), back)

    assert not contact.may_expire_others(back, LEASE)

    contact = steadily(contact, back, back + LEASE)
    assert not contact.may_expire_others(back + LEASE, LEASE)
    assert contact.may_expire_others(back + LEASE + 0.1, LEASE)


def test_a_short_cut_changes_nothing():
    contact = beaten(steadily(first_heartbeat(0), 0, 2 * LEASE), 2.5 * LEASE)

    assert contact.may_expire_others(2.5 * LEASE, LEASE)


def test_a_heartbeat_whose_answer_takes_long_is_a_cut():
    contact = steadily(first_heartbeat(0), 0, 2 * LEASE)

    contact = contact.after_heartbeat(2 * LEASE + EVERY, 3 * LEASE, LEASE)

    assert not contact.may_expire_others(3 * LEASE, LEASE)


def test_an_answer_that_took_long_is_a_cut_for_the_heartbeat_before_it_too():
    """The next heartbeat is soon after the answer, and long after the one that was answered so late was sent."""
    contact = steadily(first_heartbeat(0), 0, 2 * LEASE)
    contact = contact.after_heartbeat(2 * LEASE, 2 * LEASE + 0.45 * LEASE, LEASE)

    contact = beaten(contact, 2 * LEASE + 0.45 * LEASE + EVERY)

    assert not contact.may_expire_others(2 * LEASE + 0.45 * LEASE + EVERY, LEASE)


def test_a_worker_whose_last_heartbeat_is_old_judges_nobody_until_the_next_one():
    """What it asks the store after a heartbeat may take long, and the store may have been away meanwhile."""
    contact = steadily(first_heartbeat(0), 0, 2 * LEASE)

    assert contact.may_expire_others(2.5 * LEASE, LEASE)
    assert not contact.may_expire_others(2.5 * LEASE + 0.1, LEASE)
