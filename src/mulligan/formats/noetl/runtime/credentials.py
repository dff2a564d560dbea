"""Credentials by name, in the forms that tools need. They are never shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from mulligan import StepError

_TOKENS = ("token", "access_token", "bearer_token", "api_token", "id_token")
_USERS = ("username", "user", "login")


class Credentials:
    """The credentials in `auth` of the action: JSON objects, addresses of databases, or tokens, by name."""

    def __init__(self, auth: dict[str, Any]) -> None:
        self._auth = auth

    def by_name(self) -> dict[str, Any]:
        """All of them, as `keychain` in templates."""
        return {name: self.of(name) for name in self._auth}

    @property
    def texts(self) -> Iterator[str]:
        """Every text in them."""
        return _texts([self._auth, self.by_name()])

    def of(self, name: str) -> Any:
        """The fields of a credential, or its text. INPUT_INVALID where the step has none of that name."""
        if name not in self._auth:
            raise invalid_input(f"there is no credential '{name}' for this step")
        value = self._auth[name]
        fields = _object(value)
        if fields is None:
            return value
        # As NoETL stores it: with its name and type around the fields.
        inner = fields.get("data")
        return {"type": fields.get("type"), **inner} if isinstance(inner, dict) else fields


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _object(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def find_credential(auth: Any, credentials: Credentials) -> Any:
    """The credential for `auth` of a tool, which is a name, or a mapping that has one among other fields."""
    if isinstance(auth, str):
        return credentials.of(auth)
    if not isinstance(auth, dict):
        raise invalid_input("'auth' must be the name of a credential, or a mapping")
    inner = next((auth[key] for key in ("credential", "key", "name", "secret") if isinstance(auth.get(key), str)), None)
    if inner is None:
        return auth
    found = credentials.of(inner)
    fields = found if isinstance(found, dict) else {"token": found}
    return {**fields, **{key: auth[key] for key in ("type", "header") if key in auth}}


def authorization(found: Any) -> dict[str, str]:
    """The header for a request. A plain text is a token."""
    if isinstance(found, str):
        return {"authorization": f"Bearer {found}"}
    fields = dict(found)
    if isinstance(header := fields.get("header"), str) and (value := _first(fields, "value", "api_key", *_TOKENS)):
        return {header.lower(): value}
    if token := _first(fields, *_TOKENS):
        return {"authorization": f"Bearer {token}"}
    if api_key := fields.get("api_key"):
        return {"x-api-key": str(api_key)}
    raise invalid_input("the credential has neither a token nor a user")


def basic_auth(found: Any) -> dict[str, str] | None:
    """The user and the password, if the credential has a user and no token."""
    if not isinstance(found, dict) or _first(found, *_TOKENS):
        return None
    user = _first(found, *_USERS)
    return {"user": user, "password": str(found.get("password") or "")} if user else None


def database_address(found: Any) -> str:
    """The address of a PostgreSQL server, made of its fields if it is not given."""
    if isinstance(found, str):
        return found
    if address := _first(found, "dsn", "connection_string", "url", "uri"):
        return address
    host = _first(found, "db_host", "host", "hostname") or "localhost"
    port = _first(found, "db_port", "port") or "5432"
    name = _first(found, "db_name", "dbname", "database", "db")
    user, password = _first(found, "db_user", "user", "username"), _first(found, "db_password", "password")
    secret = f":{quote(password, safe='')}" if password else ""
    who = f"{quote(user, safe='')}{secret}@" if user else ""
    return f"postgresql://{who}{quote(host, safe='')}:{port}/{quote(name, safe='')}"


def _first(fields: dict[str, Any], *names: str) -> str:
    return next((str(fields[name]) for name in names if fields.get(name) not in (None, "")), "")


def invalid_input(message: str) -> StepError:
    return StepError("INPUT_INVALID", message, retryable=False)
