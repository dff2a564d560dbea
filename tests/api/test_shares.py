"""Whose turn it is, where many wait."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.growth import GROWTH_MAX, count_lines

from mulligan.api.access.shares import Claimant, Shares
from mulligan.errors import ServerBusy, TooManyRequests

MANY = 10_000


async def _work(shares: Shares, claimant: Claimant, done: list[str]) -> None:
    async with shares.turn(claimant):
        await asyncio.sleep(0)
        done.append(claimant.token)


def test_a_token_of_which_many_requests_wait_holds_up_no_other_of_its_project() -> None:
    async def scene() -> list[str]:
        shares, done = Shares(4, token_max=3, token_waiting_max=MANY, waiting_max=MANY), list[str]()
        working = [asyncio.ensure_future(_work(shares, Claimant("p", "hostile"), done)) for _ in range(500)]
        await asyncio.sleep(0)
        working.append(asyncio.ensure_future(_work(shares, Claimant("p", "other"), done)))
        await asyncio.gather(*working)
        return done

    assert asyncio.run(scene()).index("other") < 10


def test_a_turn_costs_the_same_however_many_wait() -> None:
    """A burst of two thousand requests kept the loop of a server busy for eight seconds."""

    def burst(size: int) -> int:
        async def scene() -> None:
            shares, done = Shares(4, token_max=3, token_waiting_max=MANY, waiting_max=MANY), list[str]()
            await asyncio.gather(*(_work(shares, Claimant("p", "t"), done) for _ in range(size)))

        return count_lines(lambda: asyncio.run(scene()))

    small, middle, large = burst(50), burst(100), burst(200)

    assert large - middle < GROWTH_MAX * (middle - small)


def test_more_than_may_wait_are_refused_and_who_leaves_makes_room() -> None:
    async def scene() -> None:
        shares, one, two = Shares(1, token_waiting_max=2, waiting_max=3), Claimant("p", "1"), Claimant("q", "2")
        done: list[str] = []
        async with shares.turn(one):
            waiting = [asyncio.ensure_future(_work(shares, claimant, done)) for claimant in (one, one, two)]
            await asyncio.sleep(0)
            with pytest.raises(TooManyRequests):
                await _work(shares, one, done)
            with pytest.raises(ServerBusy):
                await _work(shares, two, done)
            waiting.pop(0).cancel()
            await asyncio.sleep(0)
            waiting.append(asyncio.ensure_future(_work(shares, two, done)))
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        assert sorted(done) == ["1", "2", "2"]

    asyncio.run(scene())
