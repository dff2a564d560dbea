"""Links of notices: a page that asks, and what decides. The signature of the link is the permission."""

from __future__ import annotations

from urllib.parse import parse_qs

from mulligan.api.areas.tokens import HTML
from mulligan.api.http.routing import Answer, Call, Query, Routes
from mulligan.service.rendering.page.markup import element
from mulligan.service.server.notices.buttons import LINK_CHARS_MAX, PATH, ShownQuestion

ROUTES = Routes()
BODY_BYTES_MAX = 16 * 1024
REASON_CHARS_MAX = 1_000
_LABELS = {"approve": "Approve", "refuse": "Refuse", "retry": "Retry", "fail": "Let it fail"}
_DONE = {"approve": "Approved", "refuse": "Refused", "retry": "It is tried again", "fail": "It has failed"}
# The address has the link in it: it goes to nobody else, and stays in no cache.
_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-robots-tag": "noindex",
}


class DecideQuery(Query, frozen=True):
    """The link of a button."""

    link: str


@ROUTES.add("GET", PATH, "public", media=HTML, is_page=True)
def ask(call: Call, query: DecideQuery) -> Answer:
    """A page that asks before a button of a notice decides. To open it changes nothing."""
    found = call.service.buttons.show(query.link)
    form = element(
        "form",
        element("input", type="hidden", name="link", value=query.link),
        element(
            "p", element("label", "Reason (optional) ", element("input", name="reason", maxlength=REASON_CHARS_MAX))
        ),
        element("p", element("button", _LABELS[found.link.answer], type="submit")),
        method="post",
        action=PATH,
    )
    return _page(_title(found), element("p", found.text), form, element("p", f"It is recorded as '{found.by}'."))


@ROUTES.add("POST", PATH, "public", media=HTML, is_page=True, body_bytes_max=BODY_BYTES_MAX)
async def decide(call: Call, body: bytes) -> Answer:
    """Decide what a button of a notice says."""
    # What is no form has no link, and is refused as such.
    fields = parse_qs(body.decode(errors="replace"))
    link, reason = fields.get("link", [""])[0], fields.get("reason", [""])[0]
    reason = reason[:REASON_CHARS_MAX]
    found = await call.change(
        lambda service: service.buttons.decide(link[: LINK_CHARS_MAX + 1], reason, call.source, call.decisions)
    )
    return _page(_title(found), element("p", f"{_DONE[found.link.answer]}. It is recorded as '{found.by}'."))


def _title(found: ShownQuestion) -> str:
    return f"Run {found.link.run_id} of {found.workflow}: '{found.link.step}'"


def _page(title: str, *content: object) -> Answer:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
    )
    page = element("html", head, element("body", element("main", element("h1", title), *content)), lang="en")
    return Answer(b"<!doctype html>" + page.encode(), headers=_HEADERS, media=HTML)
