"""A home with something of each kind in it, and a server over it in this process, without a port."""

from __future__ import annotations

import asyncio
import atexit
import logging
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from mulligan.api.app import Api
from mulligan.dashboard.pages import PAGES
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service
from proof.asgi import ask_asgi

NAME, STEP = "nightly", "fetch"
WORKFLOW = (
    f"name: {NAME}\ninputs: {{who: {{type: string, default: you}}}}\nsteps:\n"
    f"  - step: {STEP}\n    shell: 'exit 3'\n    triage: true\n"
    f"  - step: each\n    needs: [{STEP}]\n    map: {{over: [1, 2]}}\n    do: [{{shell: 'echo ${{item}}'}}]\n"
)
# What a store keeps of many inputs makes the next ones slow, and other than they would be alone.
REQUESTS_MAX = 500
_CONFIG = {"server": {"requests_per_second": 1_000_000, "requests_at_once": 1_000_000}}


@dataclass(frozen=True)
class Reply:
    """An answer, and what the server wrote into its log for it."""

    status: int
    media: str
    body: bytes
    trouble: str


@dataclass
class _Log(logging.Handler):
    """Keeps why a request failed: its answer does not say so."""

    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(f"{type(error).__name__}: {error}" if error else record.getMessage())

    # A dataclass has no hash, and `logging` asks for one.
    __hash__ = logging.Handler.__hash__


class ServedHome:
    """Answers requests over a copy of the home, which is replaced by a new one after some of them."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._log = _Log()
        logger = logging.getLogger("mulligan.server")
        logger.addHandler(self._log)
        logger.propagate = False
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-served-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._secrets = _fill(self._folder / "first")
        self._api: Api | None = None
        self._asked = 0
        self._copies = 0

    def ask(self, who: str, method: str, target: str, body: bytes, headers: dict[str, str]) -> Reply:
        """Send one request with the token of `who`; leave an answer in pieces after the first ones."""
        path, _, query = target.partition("?")
        sent = {"host": "localhost", "authorization": f"Bearer {self._secrets[who]}", **headers}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode("latin-1", "replace"),
            "query_string": query.encode("latin-1", "replace"),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
            "client": ("127.0.0.1", 50_000),
            "scheme": "http",
        }
        self._log.lines.clear()
        answer = self._runner.run(ask_asgi(self._server(), scope, body, pieces_max=1))
        return Reply(answer.status, answer.headers.get("content-type", ""), answer.body, "; ".join(self._log.lines))

    def home(self) -> Home:
        """The home that the next request is about."""
        self._server()
        return Home(self._folder / str(self._copies))

    def _server(self) -> Api:
        self._asked += 1
        if self._api is None or self._asked > REQUESTS_MAX:
            if self._api is not None:
                self._api.close()
                shutil.rmtree(self._folder / str(self._copies), ignore_errors=True)
            self._asked, self._copies = 1, self._copies + 1
            shutil.copytree(self._folder / "first", self._folder / str(self._copies))
            config = msgspec.convert(_CONFIG, ServerConfig)
            self._api = Api(Home(self._folder / str(self._copies)), config, pages=PAGES)
        return self._api


def _fill(folder: Path) -> dict[str, str]:
    """Make the home; the secrets of its tokens."""
    folder.mkdir(parents=True)
    file = folder.parent / "nightly.yaml"
    file.write_text(WORKFLOW, encoding="utf-8")
    with Service(Home(folder), "a fuzzer") as service:
        service.changes.create(prepare(service.workflows.load_workflow(file), {}, folder.parent))
        found = {
            name: service.tokens.create(TokenForm(name, (name,), all_projects=True)).secret
            for name in ("admin", "worker")
        }
    api = Api(Home(folder), ServerConfig())
    try:
        with asyncio.Runner() as runner:
            runner.run(_publish(api, found["admin"]))
    finally:
        api.close()
    return found


async def _publish(api: Api, secret: str) -> None:
    schedule = {"workflow": NAME, "cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    for path, body in ((f"workflows/{NAME}", {"text": WORKFLOW}), (f"schedules/{NAME}", schedule)):
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {secret}".encode())]
        headers.append((b"content-type", b"application/json"))
        scope = {"type": "http", "method": "PUT", "path": f"/api/v1/{path}", "query_string": b"", "headers": headers}
        answer = await ask_asgi(api, scope, msgspec.json.encode(body))
        assert answer.status in (200, 201), (path, answer)


@cache
def served() -> ServedHome:
    """The one of this process."""
    return ServedHome()
