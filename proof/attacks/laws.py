"""What an answer to an attacker must be, whatever was asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mulligan.api.routes import ROUTES
from proof.attacks.attacked_server import ANSWER_SECONDS, BUGS, CANARY, Reply
from proof.attacks.callers import BLUE, CALLERS
from proof.attacks.requests import Request

_BUGS = re.compile("|".join(map(re.escape, BUGS)).encode())
# What a refusal by the protocol of agents has in it: its status is that of the message, not of the call.
_REFUSED_TOOL = re.compile(rb'"isError":\s*true|"error":\s*\{')
_DOCUMENTED = ("application/problem+json", "text/html")
_CHANGES = frozenset(route.name for route in ROUTES if route.changes)
_STORE_CHANGES = ("store put", "store create", "store remove", "store reset", "store refuse", "store count")


def broken(request: Request, reply: Reply) -> Iterator[str]:
    """The laws that an answer breaks, each with what is wrong."""
    caller = CALLERS[request.who]
    if reply.status == 0:
        yield f"every_request_is_answered: {reply.body[:200]!r} after {reply.seconds:.1f}s"
        return
    if reply.seconds > ANSWER_SECONDS:
        yield f"every_request_is_answered: only after {reply.seconds:.1f}s"
    # 503 is documented, as a problem or a page that says so: the store is away, or there is too much to do.
    if reply.status >= 500 and not (reply.status == 503 and reply.media.startswith(_DOCUMENTED)):
        yield f"no_request_is_a_bug: {reply.status} {reply.body[:1000]!r}"
    elif found := _BUGS.search(reply.body):
        yield f"no_request_is_a_bug: '{found[0].decode()}' in {reply.body[:1000]!r}"
    if caller.project != BLUE and CANARY.encode() in reply.body:
        at = reply.body.index(CANARY.encode())
        yield f"others_are_not_read: {reply.status} {reply.body[max(0, at - 300) : at + 100]!r}"
    if not caller.may(request.scope) and _is_done(request, reply):
        yield f"a_scope_is_needed: '{request.who}' lacks '{request.scope}' and got {reply.status} {reply.body[:300]!r}"
    if caller.how == "cross_site" and _is_change(request) and _is_done(request, reply):
        yield f"other_sites_change_nothing: {reply.status} {reply.body[:300]!r}"


def _is_done(request: Request, reply: Reply) -> bool:
    if reply.status >= 400 or reply.status == 304:
        return False
    return not (request.call.startswith("mcp ") and _REFUSED_TOOL.search(reply.body))


def _is_change(request: Request) -> bool:
    return request.call in _CHANGES or request.call.startswith(_STORE_CHANGES)
