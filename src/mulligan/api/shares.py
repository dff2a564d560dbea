"""Whose turn it is to use a thread: nobody has all of them, and who has fewer turns comes first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from mulligan.errors import ServerBusy, TooManyRequests

# How many requests of one token wait, and how many of all. Texts are megabytes while they wait.
TOKEN_WAITING_MAX, WAITING_MAX = 8, 64
AGAIN_SECONDS = 5


class Claimant(NamedTuple):
    """Who asks: a project, and a token of it."""

    project: str = ""
    token: str = ""


# What a server does by itself has a share like that of a project.
OWN = Claimant("\0")


class Shares:
    """Turns for `threads` threads: `token_max` for each token at a time, and for each project all but one."""

    def __init__(
        self,
        threads: int,
        *,
        token_max: int = 1,
        token_waiting_max: int = TOKEN_WAITING_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._threads = threads
        self._project_max = max(1, threads - 1)
        self._token_max = token_max
        self._token_waiting_max, self._waiting_max = token_waiting_max, waiting_max
        self._projects: Counter[str] = Counter()
        self._tokens: Counter[Claimant] = Counter()
        # Those who wait, the longest first.
        self._waiting: dict[asyncio.Future[None], Claimant] = {}
        self._waiting_of: Counter[Claimant] = Counter()

    @asynccontextmanager
    async def turn(self, claimant: Claimant) -> AsyncIterator[None]:
        """Wait for a turn. `TooManyRequests` for a token of which enough requests wait, `ServerBusy` for all."""
        self._refuse_more(claimant)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = claimant
        self._waiting_of[claimant] += 1
        self._hand_out()
        try:
            await turn
            yield
        finally:
            if self._leave(turn) is None:
                self._projects[claimant.project] -= 1
                self._tokens[claimant] -= 1
                self._hand_out()

    def _leave(self, turn: asyncio.Future[None]) -> Claimant | None:
        """Wait no longer; None if it has its turn already."""
        claimant = self._waiting.pop(turn, None)
        if claimant is not None:
            self._waiting_of[claimant] -= 1
            if not self._waiting_of[claimant]:
                del self._waiting_of[claimant]
        return claimant

    def _refuse_more(self, claimant: Claimant) -> None:
        if self._waiting_of[claimant] >= self._token_waiting_max:
            raise TooManyRequests(
                f"{self._token_waiting_max} requests of this token that take long are waiting already",
                hint=f"wait until they are answered, {AGAIN_SECONDS} s at least",
                retry_after=AGAIN_SECONDS,
            )
        if len(self._waiting) >= self._waiting_max:
            hint = "ask again in a few seconds"
            raise ServerBusy("the server has too many requests that take long to answer", hint=hint)

    def _hand_out(self) -> None:
        while sum(self._projects.values()) < self._threads:
            able = [
                turn
                for turn, one in self._waiting.items()
                if self._tokens[one] < self._token_max and self._projects[one.project] < self._project_max
            ]
            if not able:
                return
            # `min` keeps the order of those who have as many.
            chosen = min(able, key=lambda turn: self._projects[self._waiting[turn].project])
            claimant = self._waiting[chosen]
            self._leave(chosen)
            self._projects[claimant.project] += 1
            self._tokens[claimant] += 1
            if not chosen.cancelled():
                chosen.set_result(None)
