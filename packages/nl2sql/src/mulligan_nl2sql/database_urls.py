"""The URL of a database: which one it is, where it is, what it is called, and what of it must not be shown."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, MutableMapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

import msgspec

from mulligan_nl2sql.failures import Code, QueryFailed, Stage

KNOWN = "sqlite:///file.db, duckdb:///file.duckdb and postgresql://user@host/name"
# The dialect that is a server; the others are files.
SERVER = "postgres"
_KINDS = {"sqlite": "sqlite", "duckdb": "duckdb", "postgresql": "postgres", "postgres": "postgres"}
_NAME = re.compile(r"\W+")
_NAME_CHARS_MAX = 60
_GIVEN_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{_NAME_CHARS_MAX - 1}}}")
# With the name of the database in upper case.
PASSWORD_VARIABLE = "NL2SQL_PASSWORD_"
# Passwords of URLs on their way to the steps, as JSON. One variable for all of them: agents get it empty.
GIVEN_PASSWORDS = "NL2SQL_PASSWORDS"
_PASSWORDS = frozenset({"password", "sslpassword"})
_SECRETS = _PASSWORDS | {"sslkey", "passfile"}
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Za-z:.%_-]+\]|[^\[\]:]*)(?P<port>:.*)?", re.DOTALL)
_PORT_MAX = 65535


class Database(msgspec.Struct, frozen=True):
    """`dialect` is `sqlite`, `duckdb` or `postgres`; `location` is a file, or the whole URL of a server."""

    dialect: str
    location: str
    # What a policy file and messages call it.
    name: str
    secrets: tuple[str, ...] = ()

    def redact(self, text: str) -> str:
        """Return the text without passwords."""
        for secret in self.secrets:
            text = text.replace(secret, "•••")
        return text


def parse_url(url: str, *, name: str = "", must_exist: bool = True) -> Database:
    """Parse the URL of a database. A file must exist, unless it may appear later: it is never created."""
    scheme, separator, rest = url.strip().partition("://")
    dialect = _KINDS.get(scheme.lower())
    if not separator or dialect is None:
        shown = f"'{scheme}://…'" if separator and re.fullmatch(r"[a-zA-Z][\w+.-]*", scheme) else "the URL"
        raise _invalid(f"{shown} is no known database; known are {KNOWN}")
    if dialect == SERVER:
        # The library of PostgreSQL knows its scheme in lower case alone.
        return _server(f"{scheme.lower()}://{rest}", name)
    path = _file(scheme, rest)
    if must_exist and not os.path.isfile(path):
        raise _invalid(f"'{path}' is not a file" if os.path.exists(path) else f"there is no file '{path}'")
    return Database(dialect, path, name or _NAME.sub("_", os.path.splitext(os.path.basename(path))[0]))


def split_name(text: str) -> tuple[str, str]:
    """The name and the URL in `NAME=URL`. The name is empty in `URL`: then the file or the URL says it."""
    name, equals, url = text.strip().partition("=")
    if not equals or "://" in name:
        return "", text
    if not _GIVEN_NAME.fullmatch(name):
        # It may be the beginning of a URL with a password.
        shown = name if re.fullmatch(rf"[\w .-]{{1,{_NAME_CHARS_MAX}}}", name) else "…"
        raise _invalid(f"'{shown}' is no name for a database: use letters, digits and '_', as in 'shop=sqlite:///a.db'")
    return name, url


def url_to_keep(database: Database) -> tuple[str, str]:
    """The URL of the database without its password, and the password: what is kept with a run must have no secret."""
    if database.dialect != SERVER:
        return f"{database.dialect}:///{quote(database.location)}", ""
    parts = urlsplit(database.location)
    if any(key.lower() in _PASSWORDS for key, _ in parse_qsl(parts.query)):
        variable = password_variable(database.name)
        raise _invalid(f"the URL has a password behind its '?': write user:password@host, or set {variable}")
    login, at, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}")), unquote(password)


def url_with_password(url: str, environ: Mapping[str, str], name: str = "") -> str:
    """The URL of a server with the password that the environment has for its name, unless it has one already."""
    scheme = url.partition("://")[0].lower()
    if _KINDS.get(scheme) != SERVER:
        return url
    database = _server(url, name).name
    password = _given_passwords(environ).get(database) or environ.get(password_variable(database), "")
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not password or not at or ":" in login:
        return url
    return urlunsplit(parts._replace(netloc=f"{login}:{quote(password, safe='')}@{host}"))


def give_passwords(passwords: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
    """Put passwords by the names of their databases where the steps find them, beside those that are there."""
    if passwords:
        environ[GIVEN_PASSWORDS] = json.dumps({**_given_passwords(environ), **passwords})


def _given_passwords(environ: Mapping[str, str]) -> dict[str, str]:
    try:
        found = json.loads(environ.get(GIVEN_PASSWORDS) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def password_variable(database: str) -> str:
    """The environment variable with the password of a database: NL2SQL_PASSWORD_SHOP for `shop`."""
    return PASSWORD_VARIABLE + database.upper()


def _file(scheme: str, rest: str) -> str:
    """Three slashes and a relative path, or four slashes and an absolute one."""
    if not rest.startswith("/"):
        raise _invalid(f"a {scheme} database has no host: write '{scheme}:///' and the path of its file")
    path = unquote(rest[1:])
    if not path or path == ":memory:":
        raise _invalid(f"'{scheme}:///' needs the path of a file: a database in memory has nothing to read")
    if "\0" in path or "?" in path:
        raise _invalid("the path of a database may have no '?' and no NUL byte")
    return os.path.abspath(path)


def _problem_of_server(rest: str) -> str:
    """What is wrong with the URL of a server behind its `://`, without any part of it; "" if nothing is.

    A character of a password that is not escaped ends the password for us and not for the library of PostgreSQL, or
    the other way round: the rest of the password would be taken for a host, a port, a database or a parameter.
    """
    if re.search(r"[\s\x00-\x1f\x7f]", rest):
        return "it contains a space or a control character: percent-encode a space as '%20'"
    if _BAD_PERCENT.search(rest):
        return "a '%' is not followed by two hexadecimal digits: percent-encode the character '%' as '%25'"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "#" in rest or "@" in rest[len(authority) :] or authority.count("@") > 1:
        return "percent-encode the characters of its password: '/' as '%2F', '?' as '%3F', '#' as '%23', '@' as '%40'"
    for host in authority.rpartition("@")[2].split(","):
        found = _HOST_AND_PORT.fullmatch(host)
        port = (found["port"] or "")[1:] if found else "none"
        if port and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) <= _PORT_MAX):
            return (
                f"what follows the ':' of the host is no port, a number from 1 to {_PORT_MAX}; "
                "in a password, percent-encode '/' as '%2F' and '?' as '%3F'"
            )
    return ""


def _server(url: str, name: str) -> Database:
    if problem := _problem_of_server(url.strip().partition("://")[2]):
        raise _invalid(f"the URL of the PostgreSQL server is not valid: {problem}")
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
    except ValueError:
        raise _invalid("the URL of the PostgreSQL server cannot be read: is its password percent-encoded?") from None
    _, at, host = parts.netloc.rpartition("@")
    _, colon, password = parts.netloc[: len(parts.netloc) - len(host) - len(at)].partition(":")
    hidden = [password] if colon and password else []
    hidden += [value for key, value in query if key.lower() in _SECRETS]
    secrets = {text for secret in hidden for text in (secret, unquote(secret)) if text}
    called = name or _NAME.sub("_", unquote(parts.path.strip("/"))) or "postgres"
    return Database(SERVER, url, called, tuple(sorted(secrets, key=len, reverse=True)))


def _invalid(message: str) -> QueryFailed:
    return QueryFailed(Code.URL_INVALID, message, stage=Stage.SCHEMA)
