"""Revisions in headers: `ETag`, `If-Match`, `If-None-Match`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mulligan.api.http.routing import Answer, Call
from mulligan.errors import RequestRefused


def entity_tag(revision: int) -> dict[str, str]:
    """The header that says at which revision a thing is."""
    return {"ETag": f'"{revision}"'}


def with_revision(found: Any) -> Answer:
    """A thing that has a revision, with the header."""
    return Answer(found, headers=entity_tag(found.revision))


def has_version(headers: Mapping[str, str], etag: str) -> bool:
    """Whether the caller has this version already."""
    known = headers.get("if-none-match", "")
    return known.strip() == "*" or etag in [one.strip().removeprefix("W/") for one in known.split(",")]


def unchanged(call: Call, version: int | str) -> Answer | None:
    """The answer to a caller who has this version already, so that nothing has to be read."""
    etag = f'"{version}"'
    return Answer(headers={"ETag": etag}) if has_version(call.headers, etag) else None


def expected_revision(headers: Mapping[str, str], *, without: int | None) -> int | None:
    """The revision that the caller expects: that of `If-Match`; None for `*`; `without` if the header is missing."""
    given = headers.get("if-match")
    if given is None:
        return without
    text = given.strip()
    if text == "*":
        return None
    digits = text.removeprefix("W/").strip('"')
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 15:
        raise RequestRefused(f"If-Match '{given[:50]}' is not a revision", hint='send the ETag of the answer: "3"')
    return int(digits)
