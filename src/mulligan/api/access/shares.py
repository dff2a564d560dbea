"""Whose turn it is to use a thread: nobody has all of them, and who has fewer turns comes first."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
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
        # Those who wait, and since when: with a number for each. A token may have thousands.
        self._waiting: dict[Claimant, OrderedDict[asyncio.Future[None], int]] = {}
        self._waiting_count = 0
        self._numbers = count()

    @asynccontextmanager
    async def turn(self, claimant: Claimant) -> AsyncIterator[None]:
        """Wait for a turn. `TooManyRequests` for a token of which enough requests wait, `ServerBusy` for all."""
        self._refuse_more(claimant)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(claimant, OrderedDict())[turn] = next(self._numbers)
        self._waiting_count += 1
        self._hand_out()
        try:
            await turn
            yield
        finally:
            if not self._leave(turn, claimant):
                self._projects[claimant.project] -= 1
                self._tokens[claimant] -= 1
                self._hand_out()

    def _leave(self, turn: asyncio.Future[None], claimant: Claimant) -> bool:
        """Wait no longer; False if it has its turn already."""
        own = self._waiting.get(claimant)
        if own is None or turn not in own:
            return False
        del own[turn]
        self._waiting_count -= 1
        if not own:
            del self._waiting[claimant]
        return True

    def _refuse_more(self, claimant: Claimant) -> None:
        if len(self._waiting.get(claimant, ())) >= self._token_waiting_max:
            raise TooManyRequests(
                f"{self._token_waiting_max} requests of this token that take long are waiting already",
                hint=f"wait until they are answered, {AGAIN_SECONDS} s at least",
                retry_after=AGAIN_SECONDS,
            )
        if self._waiting_count >= self._waiting_max:
            hint = "ask again in a few seconds"
            raise ServerBusy("the server has too many requests that take long to answer", hint=hint)

    def _hand_out(self) -> None:
        """Give free threads to those whose project and token have the fewest, of these to who has waited longest."""
        while sum(self._projects.values()) < self._threads:
            able = [
                one
                for one in self._waiting
                if self._tokens[one] < self._token_max and self._projects[one.project] < self._project_max
            ]
            if not able:
                return
            claimant = min(able, key=self._rank)
            chosen = next(iter(self._waiting[claimant]))
            self._leave(chosen, claimant)
            self._projects[claimant.project] += 1
            self._tokens[claimant] += 1
            if not chosen.cancelled():
                chosen.set_result(None)

    def _rank(self, claimant: Claimant) -> tuple[int, int, int]:
        since = next(iter(self._waiting[claimant].values()))
        return self._projects[claimant.project], self._tokens[claimant], since
