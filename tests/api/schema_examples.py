"""Sends requests that schemathesis makes from /openapi.json, and collects what is wrong with the answers.

As a program: `python -m tests.api.schema_examples [EXAMPLES]`, with so many requests for each operation (default: 200).
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import CHECKS, load_all_checks

from mulligan.api.app import make_app
from mulligan.service import Home, ServerConfig, Service, TokenForm

HOST = "testserver"
CONFIG = {"server": {"requests_per_second": 1_000_000, "requests_at_once": 1_000_000, "hosts": [HOST]}}
# These answer until the client leaves.
ENDLESS = {"/api/v1/stream", "/api/v1/store/changes/read", "/api/v1/store/changes/worker"}
# A body of the right form may still name what is not there: 422 says so. And `test_authorisation` asks without tokens.
LEFT_OUT = {"positive_data_acceptance", "ignored_auth"}
# Those that send no requests of their own.
QUICK = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")


def problems(home: Home, examples: int, *, is_quick: bool = False) -> list[str]:
    """What is wrong with the answers of a server over this home; at most one text for each operation."""
    load_all_checks()
    names = QUICK if is_quick else [name for name in CHECKS.get_all_names() if name not in LEFT_OUT]
    checks = [CHECKS.get_one(name) for name in names]
    with Service(home, "a tester") as service:
        secrets = {
            name: service.tokens.create(TokenForm(name, (name,), all_projects=True)).secret
            for name in ("admin", "worker")
        }
    app = make_app(home, msgspec.convert(CONFIG, ServerConfig))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=_headers(secrets["admin"]))
    found = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path not in ENDLESS:
            is_work = "/store/worker/" in operation.path or operation.path.endswith("/store/artifacts")
            found += _wrong(operation, _headers(secrets["worker" if is_work else "admin"]), checks, examples)
    app.state.api.close()
    return found


def _headers(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}", "Mulligan-Protocol": "1"}


def _wrong(operation: Any, headers: dict[str, str], checks: list[Any], examples: int) -> list[str]:
    said: list[str] = []

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
        answer = case.call(headers=headers)
        try:
            case.validate_response(answer, checks=checks)
        except (Exception, BaseExceptionGroup) as error:
            said.append(f"{operation.method.upper()} {operation.path}: {error}")

    ask()
    return said[:1]


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        wrong = problems(Home(Path(folder) / "home"), int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    print("\n\n".join(wrong) or "no answer was wrong")
    sys.exit(bool(wrong))
