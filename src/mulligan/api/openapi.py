"""The OpenAPI 3.1 document, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

from mulligan import __version__
from mulligan.api.http.problems import PROBLEM, ProblemDetails
from mulligan.api.http.routing import JSON, Answer, Call, Route

# Every route may answer with these; 500 is a bug.
USUAL_PROBLEMS = (400, 401, 403, 404, 405, 406, 421, 422, 429, 503)
WITH_A_BODY = (408, 413, 415)
_PARAMETER = re.compile(r"\{(\w+)(:int)?\}")
_REASONS = {
    400: "The request cannot be read.",
    401: "A valid token is needed.",
    403: "The token may not do this.",
    404: "There is no such thing.",
    405: "This address does not answer this method.",
    406: "This address does not give this type.",
    408: "The time is up.",
    409: "Not possible now.",
    410: "It is gone.",
    412: "Somebody has changed it meanwhile.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    416: "There is nothing in this range.",
    421: "The server is not known under this name.",
    422: "A parameter or the body is not valid.",
    429: "Too many requests.",
    503: "The store does not answer now.",
}

ROUTE: dict[str, Any] = {
    "method": "GET",
    "path": "/openapi.json",
    "scope": "public",
    "summary": "This interface as an OpenAPI 3.1 document.",
    "answer": dict[str, Any],
}


async def answer(routes: tuple[Route, ...], call: Call) -> Answer:
    return Answer(encoded(routes))


@cache
def encoded(routes: tuple[Route, ...]) -> bytes:
    """The document of these routes as JSON."""
    return msgspec.json.encode(document(routes))


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The document of these routes."""
    routes = tuple(routes)
    types = [*_types(routes), ProblemDetails]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = {_key(one): schema for one, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = paths.setdefault(_PARAMETER.sub(r"{\1}", route.full_path), {})
        path[route.method.lower()] = _operation(route, by_type, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mulligan",
            "version": __version__,
            "summary": "Durable workflows in which failure is a first-class path.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def operation_id(route: Route) -> str:
    """A name for programs that are made from the document: `post_runs_run_id_cancel`."""
    words = re.findall(r"\w+", route.full_path.removeprefix("/api/v1").replace(":int}", "}"))
    return "_".join([route.method.lower(), *(words or ["page"])])


def _types(routes: tuple[Route, ...]) -> Iterator[Any]:
    seen = set()
    for route in routes:
        for one in (route.query, route.body, route.answer):
            if one is not None and one is not bytes and _key(one) not in seen:
                seen.add(_key(one))
                yield one


def _key(one: Any) -> str:
    return f"{getattr(one, '__module__', '')}.{one!r}"


def _operation(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation_id(route),
        "tags": [route.group],
        "summary": route.summary,
        "x-scope": route.scope,
        "security": [] if route.scope == "public" else [{"token": []}],
    }
    parameters = [
        *_path_parameters(route),
        *_query_parameters(route, schemas, components),
        *(
            {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
            for name, text in route.request_headers
        ),
    ]
    if parameters:
        found["parameters"] = parameters
    if route.body is bytes:
        found["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    elif route.body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[_key(route.body)]}}}
    content = {"schema": schemas[_key(route.answer)]} if route.answer is not None else {}
    good: dict[str, Any] = {"description": route.summary}
    if route.status != 204 and not (route.answer is None and route.media == JSON):
        good["content"] = {route.media: content}
    status = 204 if route.answer is None and route.media == JSON else route.status
    found["responses"] = {str(one): good for one in (status, *route.other_statuses)}
    if route.method == "GET" and route.media == JSON:
        found["responses"]["304"] = {"description": "The caller has this version already."}
    problem: dict[str, Any] = {PROBLEM: {"schema": schemas[_key(ProblemDetails)]}}
    if route.media.startswith("text/html"):
        # A browser is shown a page.
        problem[route.media] = {}
    statuses = {*USUAL_PROBLEMS, *route.problems, *(WITH_A_BODY if route.body is not None else ())}
    if "{run_id" in route.path or "run" in getattr(route.query, "__struct_fields__", ()):
        # The run is damaged: run.damaged.
        statuses.add(409)
    for status in sorted(statuses):
        found["responses"][str(status)] = {"description": _REASONS.get(status, "A problem."), "content": problem}
    return found


def _path_parameters(route: Route) -> Iterator[dict[str, Any]]:
    for name, number in _PARAMETER.findall(route.path):
        schema = (
            {"type": "integer", "minimum": 0, "maximum": 10**18 - 1} if number else {"type": "string", "minLength": 1}
        )
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if route.query is None:
        return
    schema = schemas[_key(route.query)]
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    for name, one in schema.get("properties", {}).items():
        parameter = {"name": name, "in": "query", "required": name in required, "schema": one}
        if "description" in one:
            parameter["description"] = one["description"]
        yield parameter
