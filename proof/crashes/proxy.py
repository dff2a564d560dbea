"""A proxy to a PostgreSQL server that loses one answer: the request is done, and its answer does not arrive."""

from __future__ import annotations

import socket
import tempfile
import threading
from contextlib import suppress
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

# A server says this when an answer is whole and it waits for the next question.
_READY = ord("Z")
_HEAD_BYTES = 5
_SOCKET = ".s.PGSQL.5432"
_CHUNK_BYTES = 1 << 16


class LossyProxy:
    """Listens in its own folder during the context. `nth` 0: no answer is lost."""

    def __init__(self, url: str, nth: int = 0) -> None:
        self._server = str(conninfo_to_dict(url).get("host", ""))
        self._url = url
        self._nth = nth
        self._seen = 0
        self.has_lost = False
        self._counting = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="mulligan-way-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._ends: list[socket.socket] = []

    def heal(self) -> None:
        """From now on every answer is heard."""
        self._nth = 0

    @property
    def url(self) -> str:
        """It leads through here."""
        return self._url.replace(quote(self._server, safe=""), quote(self._folder.name, safe=""))

    def __enter__(self) -> LossyProxy:
        self._listener.bind(f"{self._folder.name}/{_SOCKET}")
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._ends):
            _hang_up(one)
        self._folder.cleanup()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{self._server}/{_SOCKET}")
                self._ends += [client, server]
                for pump in (self._ask, self._answer):
                    threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK_BYTES):
                server.sendall(data)
        _hang_up(server)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        answers = Answers()
        with suppress(OSError):
            while data := server.recv(_CHUNK_BYTES):
                for answer, is_whole in answers.fed(data):
                    if is_whole and self._is_lost():
                        # Nothing of it, and nothing more: this is how a connection dies.
                        _hang_up(server)
                        break
                    client.sendall(answer)
        _hang_up(client)

    def _is_lost(self) -> bool:
        with self._counting:
            self._seen += 1
            is_lost = self._seen == self._nth
            self.has_lost |= is_lost
            return is_lost


class Answers:
    """What a server says, cut where an answer is whole."""

    def __init__(self) -> None:
        self._rest = b""

    def fed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """The messages that are complete by now, together up to the end of each answer, and whether it is that."""
        self._rest += data
        found, begin, at = [], 0, 0
        while (end := self._message_end(at)) <= len(self._rest):
            if self._rest[at] == _READY:
                found.append((self._rest[begin:end], True))
                begin = end
            at = end
        if at > begin:
            found.append((self._rest[begin:at], False))
        self._rest = self._rest[at:]
        return found

    def _message_end(self, at: int) -> int:
        """Where the message that begins there ends; beyond what has come, where that is not known yet."""
        head = self._rest[at : at + _HEAD_BYTES]
        if len(head) < _HEAD_BYTES:
            return len(self._rest) + 1
        return at + 1 + int.from_bytes(head[1:], "big")


def _hang_up(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
