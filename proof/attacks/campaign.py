"""Sessions of attacks: batch after batch of requests, and after each a look at all that must hold."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from random import Random

import msgspec

from mulligan.testing.postgres import PostgresServer, own_schema, own_server
from proof.attacks.attacked_server import AttackedServer, Client, Reply, attacked
from proof.attacks.laws import broken
from proof.attacks.requests import Request, RequestMaker
from proof.crashes.forked_processes import ForkedProcesses, forked_processes
from proof.stage import Stage

BATCH, BATCHES = 250, 40
# How many clients send the requests of a batch at the same time.
CLIENTS = 4
# A finding that needs several requests is made small, by so many more servers.
SHRINKING_TRIES = 12
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")

Say = Callable[[str], object]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong, and the requests that show it."""

    words: str
    store: str
    requests: tuple[Request, ...] = ()
    # The named attack that found it.
    attack: str = ""
    # Which batch of which session of which seed it was.
    batch: str = ""
    # Whether these requests show it on a new server.
    is_repeatable: bool = False

    @property
    def law(self) -> str:
        return self.words.partition(":")[0]

    @property
    def signature(self) -> str:
        """The same for two findings of one cause: numbers and names differ between servers."""
        call = self.requests[-1].call if len(self.requests) == 1 else self.attack
        said = self.words if "Traceback" not in self.words else self.words.strip().splitlines()[-1]
        return f"{self.law} {call} {_NUMBER.sub('0', said)[:120]}"


class Battlefield:
    """Where servers are attacked: a folder, a process that forks theirs, and a database server if one is asked for.

    `defect` breaks the product on purpose: "module:function", called in each of its processes.
    """

    def __init__(self, folder: Path, server_url: str = "", defect: str = "") -> None:
        self._folder, self._server_url, self._defect = folder, server_url, defect
        self._open = ExitStack()
        self._number = 0

    def __enter__(self) -> Battlefield:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @cached_property
    def processes(self) -> ForkedProcesses:
        return self._open.enter_context(forked_processes(Stage(self._folder), defect=self._defect))

    @cached_property
    def _server(self) -> PostgresServer:
        return self._open.enter_context(own_server())

    @contextmanager
    def server(self, store: str) -> Iterator[AttackedServer]:
        """A new server over a new store. Its folder is left there if something was wrong."""
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        with ExitStack() as opened:
            url = "" if store == "sqlite" else opened.enter_context(own_schema(self._server_url or self._server.url))
            with attacked(Stage(folder, url), self.processes) as server:
                yield server
        shutil.rmtree(folder, ignore_errors=True)


class Campaign:
    """Attacks the server of one kind of store, and keeps what was found."""

    def __init__(
        self, battlefield: Battlefield, store: str, seed: int, *, clients: int = CLIENTS, say: Say = lambda _: None
    ) -> None:
        self._battlefield, self.store, self._seed = battlefield, store, seed
        self._clients = clients
        self._say = say
        self.requests = 0
        self.batches = 0
        self.statuses: Counter[int] = Counter()
        self.found: dict[str, Finding] = {}

    def session(
        self,
        number: int,
        *,
        batches: int = BATCHES,
        size: int = BATCH,
        until: float = float("inf"),
        shrink: bool = True,
    ) -> None:
        """One server, from its start to its end. It ends early when what is wrong would only be found again."""
        with self._battlefield.server(self.store) as server:
            for batch in range(batches):
                if time.monotonic() > until:
                    break
                name = f"{self._seed}/{number}/{batch}"
                maker = RequestMaker(Random(name), server.ids)
                sent = [maker.make() for _ in range(size)]
                wrong, is_known = self._attack(server, sent, name)
                if is_known:
                    # The answers have said which requests they were, and the server goes on.
                    continue
                if wrong:
                    self._note_all(wrong, sent, name, shrink=shrink)
                    break
            else:
                name, sent = f"{self._seed}/{number}/end", []
            for words in server.end():
                self._note(Finding(words, self.store, batch=name))

    def replay(self, requests: Sequence[Request]) -> list[str]:
        """What these requests show on a new server, one after the other."""
        wrong: list[str] = []
        with self._battlefield.server(self.store) as server:
            for request in requests:
                wrong += broken(request, _send(server.client, request))
            wrong += server.wrong(len(requests))
            wrong += server.end()
        return wrong

    def _attack(self, server: AttackedServer, sent: Sequence[Request], name: str) -> tuple[list[str], bool]:
        """Send a batch; what is wrong afterwards, and whether that is only the log of what was answered wrongly."""
        bugs = 0
        for request, words in self._judged(server, sent):
            self._note(Finding(words, self.store, (request,), batch=name))
            bugs += words.startswith("no_request_is_a_bug:")
        self.requests += len(sent)
        self.batches += 1
        wrong = list(server.wrong(len(sent)))
        return wrong, bool(bugs) and all(one.startswith("no_bug_is_logged: the server") for one in wrong)

    def _judged(self, server: AttackedServer, sent: Sequence[Request]) -> Iterator[tuple[Request, str]]:
        clients = [Client(server.port) for _ in range(self._clients)]

        def carry_out(number: int) -> list[tuple[Request, str]]:
            found = []
            for request in sent[number :: self._clients]:
                reply = _send(clients[number], request)
                self.statuses[reply.status] += 1
                found += [(request, words) for words in broken(request, reply)]
            clients[number].close()
            return found

        with ThreadPoolExecutor(self._clients) as pool:
            for found in pool.map(carry_out, range(self._clients)):
                yield from found

    # -- what was found

    def _note_all(self, wrong: list[str], sent: Sequence[Request], name: str, *, shrink: bool) -> None:
        for words in wrong:
            finding = Finding(words, self.store, tuple(sent), batch=name)
            if finding.signature not in self.found:
                self._note(self._shrunk(finding) if shrink else finding, finding.signature)

    def _note(self, finding: Finding, signature: str = "") -> None:
        signature = signature or finding.signature
        if signature not in self.found:
            self.found[signature] = finding
            self._say(f"{finding.batch or finding.attack}: {finding.words[:1500]}")
            if len(finding.requests) == 1:
                self._say(f"  {finding.requests[0]}")

    def note(self, finding: Finding) -> None:
        """Keep what a named attack has found."""
        self._note(finding)

    def _shrunk(self, finding: Finding) -> Finding:
        """The same with as few of its requests as show it, one after the other, on new servers."""
        requests, tries = list(finding.requests), 0

        def shows(some: Sequence[Request]) -> bool:
            nonlocal tries
            tries += 1
            return any(words.startswith(f"{finding.law}:") for words in self.replay(some))

        self._say(f"{finding.batch}: {finding.words[:300]}\n  looking for the requests that show it")
        if not shows(requests):
            return finding
        pieces = 2
        while len(requests) > 1 and tries < SHRINKING_TRIES:
            size = -(-len(requests) // pieces)
            parts = [requests[at : at + size] for at in range(0, len(requests), size)]
            kept = next((part for part in parts if tries < SHRINKING_TRIES and shows(part)), None)
            if kept is None and size == 1:
                break
            requests, pieces = (kept, 2) if kept is not None else (requests, pieces * 2)
        return msgspec.structs.replace(finding, requests=tuple(requests), is_repeatable=True)


def _send(client: Client, request: Request) -> Reply:
    return client.ask(request.who, request.method, request.target, request.body, request.headers)
