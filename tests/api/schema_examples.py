"""Sends requests that schemathesis makes from /openapi.json, and collects what is wrong with the answers.

As a program: `python -W ignore -m tests.api.schema_examples [EXAMPLES [postgres]]`, with so many requests for each
operation (default: 200), on SQLite or on a PostgreSQL of its own.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.python import asgi

from mulligan.api.app import make_app
from mulligan.service.home import Home
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service
from mulligan.testing.postgres import own_server

HOST = "testserver"
CONFIG = {"server": {"requests_per_second": 1_000_000, "requests_at_once": 1_000_000, "hosts": [HOST]}}
# These answer until the client leaves.
ENDLESS = {"/api/v1/stream", "/api/v1/store/changes/read", "/api/v1/store/changes/worker"}
# A body of the right form may still name what is not there: 422 says so. And `test_authorisation` asks without tokens.
LEFT_OUT = {"positive_data_acceptance", "ignored_auth"}
# Those that send no requests of their own.
QUICK = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")


def problems(homes: Sequence[Home], examples: int, *, is_quick: bool = False) -> list[str]:
    """What is wrong with the answers of servers over these homes; at most one text for each operation.

    Each request is sent to each of them: making it takes longer than answering it.
    """
    load_all_checks()
    names = QUICK if is_quick else [name for name in CHECKS.get_all_names() if name not in LEFT_OUT]
    checks = [CHECKS.get_one(name) for name in names]
    found: list[str] = []
    with ExitStack() as stack:
        servers = [stack.enter_context(_Server(home)) for home in homes]
        schema = schemathesis.openapi.from_asgi("/openapi.json", servers[0].app, headers=servers[0].headers("admin"))
        for result in schema.get_all_operations():
            operation = result.ok()
            if operation.path not in ENDLESS:
                found += _wrong(operation, servers, checks, examples)
    return found


class _Server:
    """The application over a home, in this process."""

    def __init__(self, home: Home) -> None:
        with Service(home, "a tester") as service:
            self._secrets = {
                name: service.tokens.create(TokenForm(name, (name,), all_projects=True)).secret
                for name in ("admin", "worker")
            }
        self.app = make_app(home, msgspec.convert(CONFIG, ServerConfig))
        self.client = asgi.get_client(self.app)

    def __enter__(self) -> _Server:
        self.client.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.client.__exit__(*error)
        self.app.state.api.close()

    def headers(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._secrets[who]}", "Mulligan-Protocol": "1"}


def _wrong(operation: Any, servers: Sequence[_Server], checks: list[Any], examples: int) -> list[str]:
    said: list[str] = []
    is_work = "/store/worker/" in operation.path or operation.path.endswith("/store/artifacts")

    @seed(1)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        for server in servers:
            answer = case.call(session=server.client, headers=server.headers("worker" if is_work else "admin"))
            try:
                case.validate_response(answer, checks=checks)
            except (Exception, BaseExceptionGroup) as error:
                said.append(f"{operation.method.upper()} {operation.path}: {error}")

    ask()
    return said[:1]


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        store_url = opened.enter_context(own_server()).url if sys.argv[2:] == ["postgres"] else ""
        wrong = problems([Home(Path(folder) / "home", store_url)], int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    print("\n\n".join(wrong) or "no answer was wrong")
    sys.exit(bool(wrong))
