"""docs/operate/api.md, made from the table of routes: `python -m mulligan.api.reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from mulligan.api.decoding import is_sequence
from mulligan.api.routes import ROUTES
from mulligan.api.routing import JSON, PREFIX, Route

PAGE = Path(__file__).parents[3] / "docs/operate/api.md"
_HEAD = """\
# The HTTP interface

This page is made from the table of routes (`make generated`); every server describes itself as OpenAPI 3.1 in
`/openapi.json`. [server.md](server.md) says how to start a server, and how to get a token.

- Paths are below `{prefix}`, unless they begin with `/`. A request has the header `Authorization: Bearer TOKEN`; the
  column *scope* says which scope the token needs.
- Bodies and answers are JSON, the same that `--json` prints. A parameter or a field that there is not is refused by
  its name.
- An error is `application/problem+json` (RFC 9457) with `code`, `detail`, `hint`, `data` and, for a refused file,
  `problems`. The codes are those of the command line.
- A list answers with `next`: give it as the parameter that continues the list; `null` if nothing follows.
- An answer with an `ETag` is 304 if `If-None-Match` has it. `dry_run` changes nothing and answers what would happen.
- A body has 4 MiB at most. 429 and 503 have `Retry-After`.

A run is started once, however often it is asked for, if every request has the same `Idempotency-Key`:

```sh
curl -X POST $MULLIGAN_SERVER/api/v1/runs -H "Authorization: Bearer $TOKEN" -H "Idempotency-Key: monday" \\
  -H "Content-Type: application/json" -d '{{"workflow": "nightly", "inputs": {{"who": "you"}}}}'
```
"""


def page(routes: Iterable[Route] = ROUTES) -> str:
    """The text of the page."""
    groups: dict[str, list[Route]] = {}
    for route in routes:
        groups.setdefault(_group(route), []).append(route)
    return "\n".join(
        [_HEAD.format(prefix=PREFIX), *(line for name, some in groups.items() for line in _section(name, some))]
    )


def _group(route: Route) -> str:
    if route.path.startswith("/"):
        return "The server"
    return route.path.partition("/")[0].partition(":")[0].partition("{")[0].capitalize()


def _section(name: str, routes: list[Route]) -> Iterator[str]:
    yield f"## {name}\n"
    yield "| request | scope | what it does |"
    yield "|---|---|---|"
    for route in routes:
        yield f"| `{route.method} {route.path.replace(':int}', '}')}` | {route.scope} | {_about(route)} |"
    yield ""


def _about(route: Route) -> str:
    parts = [route.summary]
    if route.query is not None:
        parts.append(f"Parameters: {_fields(route.query)}.")
    if route.body is bytes:
        parts.append("Body: bytes.")
    elif route.body is not None:
        parts.append(f"Body: {_fields(route.body)}.")
    if route.media != JSON:
        parts.append(f"Answers with `{route.media.partition(';')[0]}`.")
    return " ".join(parts).replace("|", "\\|")


def _fields(type_: Any) -> str:
    try:
        fields = msgspec.structs.fields(type_)
    except TypeError:
        return "JSON"
    if not fields:
        return "none"
    shown = [
        f"`{one.encode_name}`{' (needed)' if one.required else ''}{'…' if is_sequence(one.type) else ''}"
        for one in fields
    ]
    return ", ".join(shown)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
