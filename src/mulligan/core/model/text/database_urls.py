"""The URL of a PostgreSQL database, and what of it may be shown: never its password, however the URL is written.

The errors of libpq repeat pieces of a URL that it cannot read. If a character of the password is not escaped, libpq
takes a piece of the password for the host, the port or the database, and prints it. So a URL is checked here first,
with messages that contain no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
# Replaces the message of a server or library about a URL that `is_unclear`.
NOT_SHOWN = (
    "the error is not shown, since it may contain a part of the password: write '@' as '%40' and '&' as '%26', "
    "and put the parameter 'password' last"
)
_SECRET_PARAMETERS = ("password", "sslpassword")
# A scheme that may be shown: anything else could be a password.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,19}")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HOST = re.compile(r"(?:\[[0-9A-Za-z:.%_-]+\]|[^\[\]:@#\"'<>{}|\\^` ]*)")
_PORT_MAX = 65535

_IN_PASSWORD = "in a user name or a password write it as '{}'"


def scheme_to_show(text: str) -> str:
    """The text before '://' if it may be shown; otherwise ""."""
    scheme, separator, _ = text.strip().partition("://")
    return scheme if separator and _SCHEME.fullmatch(scheme) else ""


def url_problem(url: str) -> str:
    """What is wrong with a `postgresql://` URL and what to write instead, without any part of it; "" if it is valid."""
    rest = url.partition("://")[2]
    if not _is_utf8(rest):
        return "it is not valid UTF-8"
    if _CONTROL.search(rest):
        return "it contains a line break or another control character: write a line break as '%0A'"
    if _BAD_PERCENT.search(rest):
        return "a '%' is not followed by two hexadecimal digits: write '%25' for the character '%'"
    if "%00" in rest:
        return "it contains '%00', which is not allowed"
    _, tail = _user_and_tail(rest)
    authority, path, query = _split(tail)
    if problem := _problem_of_hosts(authority):
        return problem
    if "@" in path:
        return f"a '/' or an '@' is not escaped: {_IN_PASSWORD.format('%2F')} or '%40'"
    return _problem_of_query(query)


def is_unclear(url: str) -> bool:
    """Whether pieces of a password may stand where PostgreSQL sees a host, a database or a parameter.

    With `postgresql://a:b/c?user=d@e` it may be that the password is 'b/c?user=d', or that there is none; with
    `postgresql://a/b?password=c&sslmode=d` it may be 'c&sslmode=d'.
    """
    user, tail = _user_and_tail(url.partition("://")[2])
    *before_last, _ = (option.partition("=")[0].lower() for option in _split(tail)[2].split("&"))
    return (not user and "@" in tail) or not set(_SECRET_PARAMETERS).isdisjoint(before_last)


def secret_parts(url: str) -> tuple[str, ...]:
    """The password as written and decoded; the longest first, so that no piece of it remains."""
    rest = url.partition("://")[2]
    before, at, _ = rest.rpartition("@")
    _, colon, password = before.partition(":")
    found = {password} if at and colon else set()
    options = rest.rpartition("?")[2] if "?" in rest else ""
    for option in options.split("&"):
        name, _, value = option.partition("=")
        if name.lower() in _SECRET_PARAMETERS:
            found.add(value)
    # If an '@' is not escaped, a piece of the password is taken for the host.
    found |= {piece for secret in found for piece in secret.split("@")}
    found |= {_percent_decode(secret).decode(errors="replace") for secret in found}
    return tuple(sorted(filter(None, found), key=len, reverse=True))


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with these replaced by `HIDDEN`."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
        _percent_decode(text).decode()
    except UnicodeError:
        return False
    return True


def _percent_decode(text: str) -> bytes:
    """The text with percent escapes decoded."""
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode(errors="surrogatepass"))


# -- as libpq reads it -----------------------------------------------------------------------------------------------


def _user_and_tail(rest: str) -> tuple[str, str]:
    """The user with the password, up to the first '@' unless a '/' comes before it, and what follows."""
    before, at, tail = rest.partition("@")
    return (before, tail) if at and "/" not in before else ("", rest)


def _split(tail: str) -> tuple[str, str, str]:
    """Hosts, path and query."""
    before, _, query = tail.partition("?")
    authority, _, path = before.partition("/")
    return authority, path, query


def _problem_of_hosts(authority: str) -> str:
    if "@" in authority:
        return f"an '@' is not escaped: {_IN_PASSWORD.format('%40')}"
    for one in authority.split(","):
        host = _HOST.match(one)
        left = one[host.end() :] if host else one
        if not left or (re.fullmatch(r":\d{0,5}", left) and int(left[1:] or 0) <= _PORT_MAX):
            continue
        if "[" in one or "]" in one:
            return (
                "there is a '[' or ']' in the host: write an IPv6 address like '[::1]'; "
                + _IN_PASSWORD.format("%5B")
                + " or '%5D'"
            )
        if left.startswith(":"):
            return (
                f"what follows the ':' of the host is not a port, a number up to {_PORT_MAX}; "
                "write '@' and the host after a password, and a '/' in it as '%2F'"
            )
        return "the host contains a character that is not allowed there; in a password write it as '%' and its code"
    return ""


def _problem_of_query(query: str) -> str:
    for option in query.split("&") if query else ():
        if option.count("=") != 1:
            return (
                "what follows the '?' is not a list of parameters like 'sslmode=require&connect_timeout=5': "
                "in a value write '&' as '%26' and '=' as '%3D'"
            )
    return ""
