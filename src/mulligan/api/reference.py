"""docs/operate/api.md, made from the table of routes: `python -m mulligan.api.reference`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from mulligan.api.http.decoding import ANY_QUERY, ARRAYS, is_sequence, structs_in
from mulligan.api.http.routing import JSON, PREFIX, Route
from mulligan.api.routes import ROUTES

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
- A body has 4 MiB at most. 429 and 503 have `Retry-After`. [What a request may cost](server.md#what-a-request-may-cost)
  says when a server refuses to go on.

A run is started once, however often it is asked for, if every request has the same `Idempotency-Key`:

```sh
curl -X POST $MULLIGAN_SERVER/api/v1/runs -H "Authorization: Bearer $TOKEN" -H "Idempotency-Key: monday" \\
  -H "Content-Type: application/json" -d '{{"workflow": "nightly", "inputs": {{"who": "you"}}}}'
```
"""

_WORDS: dict[type, str] = {
    inspect.StrType: "a text",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
    inspect.DateTimeType: "a time",
    inspect.StructType: "an object",
    inspect.DictType: "an object",
}
_EXAMPLES: dict[type, Any] = {
    inspect.StrType: "…",
    inspect.IntType: 1,
    inspect.FloatType: 1.0,
    inspect.BoolType: True,
}


def page(routes: Iterable[Route] = ROUTES) -> str:
    """The text of the page."""
    groups: dict[str, list[Route]] = {}
    for route in routes:
        groups.setdefault(_group(route), []).append(route)
    return "\n".join(
        [_HEAD.format(prefix=PREFIX), *(line for name, some in groups.items() for line in _section(name, some))]
    )


def _group(route: Route) -> str:
    return "The server" if route.group == "server" else route.group.capitalize()


def _section(name: str, routes: list[Route]) -> Iterator[str]:
    yield f"## {name}\n"
    yield "| request | scope | what it does |"
    yield "|---|---|---|"
    for route in routes:
        yield f"| `{_name(route)}` | {route.scope} | {_about(route)} |"
    yield ""
    for route in routes:
        yield from _nested(route)


def _name(route: Route) -> str:
    return f"{route.method} {route.path.replace(':int}', '}')}"


def _nested(route: Route) -> Iterator[str]:
    """The objects inside the body of a route: what each of their fields takes, and the shortest body that has one."""
    if route.body is None or route.body is bytes:
        return
    body = inspect.type_info(route.body)
    if not isinstance(body, inspect.StructType):
        return
    for field in body.fields:
        for struct in structs_in(field.type):
            of = "each of " if is_sequence(_field_type(body, field)) else ""
            about = (struct.cls.__doc__ or "").strip().partition("\n")[0]
            yield f"In `{_name(route)}`, {of}`{field.encode_name}` is an object. {about}\n"
            yield "| field | value |"
            yield "|---|---|"
            for one in struct.fields:
                yield f"| `{one.encode_name}`{' (needed)' if one.required else ''} | {_value(one.type)} |"
            example = json.dumps(_shortest(body, field.encode_name), ensure_ascii=False)
            yield f"\n```json\n{example}\n```\n"


def _field_type(struct: inspect.StructType, field: inspect.Field) -> Any:
    return next(one.type for one in msgspec.structs.fields(struct.cls) if one.encode_name == field.encode_name)


def _value(type_: inspect.Type) -> str:
    """What a field takes, in words."""
    if isinstance(type_, inspect.UnionType):
        kinds = [one for one in type_.types if not isinstance(one, inspect.NoneType)]
        # A whole number is a number, too.
        has_float = any(isinstance(one, inspect.FloatType) for one in kinds)
        return _join(_value(one) for one in kinds if not (has_float and isinstance(one, inspect.IntType)))
    if isinstance(type_, inspect.LiteralType):
        return _join(f"`{one}`" for one in sorted(map(str, type_.values)))
    if isinstance(type_, ARRAYS):
        return f"a list, each {_value(type_.item_type)}"
    return next((words for kind, words in _WORDS.items() if isinstance(type_, kind)), "any value")


def _join(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last


def _shortest(struct: inspect.StructType, *wanted: str) -> dict[str, Any]:
    """An object with the fields that it needs, and those that are wanted."""
    chosen = [one for one in struct.fields if one.required or one.encode_name in wanted]
    # What none of its fields needs would be an empty object.
    chosen = chosen or list(struct.fields[:1])
    return {one.encode_name: _example(one.type) for one in chosen}


def _example(type_: inspect.Type) -> Any:
    if isinstance(type_, inspect.UnionType):
        return _example(next(one for one in type_.types if not isinstance(one, inspect.NoneType)))
    if isinstance(type_, inspect.LiteralType):
        return max(type_.values, key=str)
    if isinstance(type_, ARRAYS):
        return [_example(type_.item_type)]
    if isinstance(type_, inspect.StructType):
        return _shortest(type_)
    return next((value for kind, value in _EXAMPLES.items() if isinstance(type_, kind)), {})


def _about(route: Route) -> str:
    parts = [route.summary]
    if route.query not in (None, ANY_QUERY):
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
