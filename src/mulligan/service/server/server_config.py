"""The configuration of a server: `server.toml` in the home, or the file that `--config` names."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import LanguageError
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports.server_records import Scope
from mulligan.service.home_names import CONFIG_VARIABLE
from mulligan.service.home_names import SERVER_CONFIG as FILE
from mulligan.service.server.notices.targets import SecretSource, Target
from mulligan.service.server.toml_positions import config_error, position, refuse_syntax

PORT = 8642
_WHERE = re.compile(r"(?P<what>.*) - at `(?:key in `)?\$(?P<where>[^`]*)`", re.DOTALL)
_FIELD = re.compile(r"(Object contains unknown|Object missing required) field `(?P<name>[^`]*)`")

Count = Annotated[int, msgspec.Meta(ge=1)]


class TrustedProxy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A proxy that has logged people in, and says who they are in a header."""

    # Addresses or networks, such as "10.0.0.0/8": from anywhere else the header is ignored.
    addresses: tuple[str, ...]
    user_header: str = "X-Forwarded-User"
    # What everybody may do who comes through it.
    scopes: tuple[Scope, ...] = ("read",)
    # None: all projects.
    project: str | None = ""


class ServerSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[server]`: where it listens, and whom it answers."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = PORT
    tls_cert: str = ""
    tls_key: str = ""
    # Names under which people know the server, besides localhost, its own name and addresses.
    hosts: tuple[str, ...] = ()
    # The address in links that it writes, where a proxy stands before it.
    public_url: str = ""
    # Listen beyond this machine without TLS.
    insecure: bool = False
    # Run a worker beside it.
    worker: bool = True
    # How many requests a token may send in a second, for a while and at once.
    requests_per_second: Count = 1_000
    requests_at_once: Count = 2_000
    # How many signed deliveries a webhook takes in a second, for a while and at once.
    webhook_requests_per_second: Count = 20
    webhook_requests_at_once: Count = 100
    # How long a browser that logs in stays logged in: a year at most.
    session_hours: Annotated[int, msgspec.Meta(ge=1, le=8_760)] = 12
    trusted_proxy: TrustedProxy | None = None


class OtelSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[otel]`: where traces are sent, and whether logs are."""

    # Without it, `$OTEL_EXPORTER_OTLP_ENDPOINT` counts.
    endpoint: Annotated[str, msgspec.Meta(pattern="^(https?://.+)?$")] = ""
    # Whether what steps write with `logging` is sent, too.
    logs: bool = False


class RetentionSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[retention]`: for how many days a server keeps what nobody needs to go on."""

    # Rows of the audit.
    audit_days: Count = 365
    # Tokens and sessions, after they have expired or were revoked.
    token_days: Count = 30


class ButtonsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[buttons]`: how links of notices are signed, and for how long they count."""

    # With two, the first signs and either counts, so that it can be changed.
    key: SecretSource | tuple[SecretSource, ...] = ()
    hours: Annotated[int, msgspec.Meta(ge=1, le=720)] = 24

    @property
    def keys(self) -> tuple[SecretSource, ...]:
        return self.key if isinstance(self.key, tuple) else (self.key,)


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of the file."""

    server: ServerSection = ServerSection()
    # To whom notices go, by name.
    targets: dict[str, Target] = {}
    # With what deliveries to webhooks are signed, by name. With two, either counts, so that a sender may change it.
    webhook_secrets: dict[str, SecretSource | tuple[SecretSource, ...]] = {}
    buttons: ButtonsSection = ButtonsSection()
    otel: OtelSection = OtelSection()
    retention: RetentionSection = RetentionSection()
    # Where artifacts are, if not in the store: s3://BUCKET/PREFIX.
    artifacts: str = ""


def find_config(home: Path, file: str | None = None) -> ServerConfig:
    """The configuration of a server. Without `file` and without `server.toml` in the home, what is usual.

    `$MULLIGAN_CONFIG` names the file for the processes that a server starts.
    """
    file = file or os.environ.get(CONFIG_VARIABLE) or None
    path = Path(file) if file else home / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if file is None:
            return ServerConfig()
        raise config_error(str(path), "the file does not exist") from None
    except UnicodeDecodeError:
        raise config_error(str(path), "the file is not UTF-8") from None
    except OSError as error:
        raise config_error(str(path), f"the file cannot be read: {error_reason(error)}") from None
    return parse_config(text, str(path))


def parse_config(text: str, file: str = FILE) -> ServerConfig:
    """`LanguageError`, with the line, for what is not TOML, and for keys and values that a server does not know."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refuse_syntax(error, text, file) from None
    except RecursionError:
        raise config_error(file, "the values are nested too deeply") from None
    targets = tree.get("targets")
    within: tuple[str, ...] = ()
    try:
        # One by one, since an error in a table of tables does not say in which one it is.
        for name, table in targets.items() if isinstance(targets, dict) else ():
            within = ("targets", name)
            msgspec.convert(table, Target)
        within = ()
        return msgspec.convert(tree, ServerConfig)
    except msgspec.ValidationError as error:
        raise _invalid(error, text, file, within) from None


def _invalid(error: msgspec.ValidationError, text: str, file: str, within: Sequence[str] = ()) -> LanguageError:
    """The refusal of what stands at, or below, the table `within`."""
    match = _WHERE.fullmatch(str(error))
    what, where = (match["what"], match["where"]) if match else (str(error), "")
    path = [*within]
    path += [part for part in re.split(r"[.\[]", where.replace("]", "")) if part and not part.isdecimal()]
    hint = ""
    if (field := _FIELD.match(what)) is not None:
        known = _keys_at(path)
        if "unknown" in what:
            path, what = [*path, field["name"]], f"unknown key '{field['name']}'"
            hint = did_you_mean(path[-1], known) or (f"it may be one of: {', '.join(sorted(known))}" if known else "")
        else:
            what = f"key '{field['name']}' is missing"
    else:
        what = f"'{'.'.join(path)}': {what[:1].lower()}{what[1:].replace('`', chr(39))}"
    line, column = position(text, path)
    return config_error(file, what, text, line, column, hint=hint, length=len(path[-1]) if path and line else 1)


def _keys_at(path: list[str]) -> set[str]:
    types: dict[tuple[str, ...], type[msgspec.Struct]] = {
        (): ServerConfig,
        ("server",): ServerSection,
        ("retention",): RetentionSection,
        ("buttons",): ButtonsSection,
        ("server", "trusted_proxy"): TrustedProxy,
    }
    found = Target if path[:1] == ["targets"] and len(path) == 2 else types.get(tuple(path))
    return set(found.__struct_fields__) if found is not None else set()
