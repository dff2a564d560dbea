"""Credentials: each that a playbook names is a secret from the environment variable `NOETL_NAME`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mulligan.formats.noetl.texts import has_templates, input_name, texts, workload_name
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source

_KEYCHAIN = re.compile(r"\bkeychain\.([A-Za-z_]\w*)|\bkeychain\[['\"]([^'\"]+)['\"]\]")
# Keys of a mapping under `auth` that name one credential; without these it maps names to credentials.
_NAMING = ("credential", "key", "name", "secret")


class Credentials:
    """The credentials that a playbook names."""

    def __init__(self, workload: dict[str, Any], source: Source) -> None:
        self.workload = workload
        self._source = source
        self.secrets: dict[str, str] = {}

    def used_by(self, *nodes: Node | None) -> dict[str, str]:
        """The credentials named in these values, by name, for the `auth` of an action."""
        names = dict.fromkeys(name for node in nodes if node is not None for name in self._named(node))
        return {name: self._secret(name, variable(name)) for name in names}

    def fetched_by(self, tool: Mapping) -> dict[str, str]:
        """The same for a `secrets` tool. With `provider: env` it is the variable of exactly that name."""
        node = tool.get("secret_name") or tool.get("name")
        if not isinstance(node, Scalar):
            raise self._source.refuse("missing_key", "the tool 'secrets' has no 'secret_name'", tool)
        name, provider = self._resolved(node), tool.get("provider")
        is_env = provider is None or (isinstance(provider, Scalar) and provider.value == "env")
        if not is_env and isinstance(provider, Scalar):
            message = f"the secret '{name}' is read from the variable {variable(name)}, and not from '{provider.text}'"
            self._source.warn("noetl", message, provider)
        return {name: self._secret(name, name if is_env else variable(name))}

    def _secret(self, name: str, env: str) -> str:
        secret = input_name(name)
        self.secrets.setdefault(secret, env)
        return f"${{secrets.{secret}}}"

    def _named(self, node: Node) -> Iterator[str]:
        for text in texts(node):
            yield from (found[1] or found[2] for found in _KEYCHAIN.finditer(text))
        yield from self._of_tools(node)

    def _of_tools(self, node: Node) -> Iterator[str]:
        """The credentials under `auth` or `credentials`, at any depth: tools may be in lists, and nested."""
        if isinstance(node, Sequence):
            for item in node.items:
                yield from self._of_tools(item)
        elif isinstance(node, Mapping):
            for key, value in node.items():
                if key.text in ("auth", "credentials"):
                    yield from self._under_auth(value)
                else:
                    yield from self._of_tools(value)

    def _under_auth(self, node: Node) -> Iterator[str]:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            yield self._resolved(node)
        elif isinstance(node, Mapping):
            named = [value for key in _NAMING if (value := node.get(key)) is not None]
            for value in named or [value for _, value in node.items()]:
                yield from self._under_auth(value)

    def _resolved(self, node: Scalar) -> str:
        """The name; where the workload holds it, the default there."""
        if not has_templates(node):
            return node.text
        key = workload_name(node.text)
        value = self.workload.get(key) if key else None
        if isinstance(value, str) and value.strip() and "{{" not in value:
            return value
        message = f"the name of the credential '{node.text}' must be known when the file is read"
        hint = "write the name, or a key of 'workload' that holds it: \"{{ workload.NAME }}\""
        raise self._source.refuse("noetl", message, node, hint=hint)


def variable(name: str) -> str:
    """The environment variable that holds a credential."""
    return f"NOETL_{input_name(name).upper().lstrip('_')}"


def secret_commands(keychain: tuple[Fields, ...]) -> dict[str, Node]:
    """The commands that print credentials, by the names of our secrets."""
    return {input_name(str(entry["name"])): entry.at("command") for entry in keychain if "command" in entry}


def refuse_plain_credentials(keychain: tuple[Fields, ...], source: Source) -> None:
    """Refuse keychain entries with values in plain text: they would be in the log of every run."""
    for entry in keychain:
        if entry.get("kind") == "static" and "name" in entry:
            name = str(entry["name"])
            message = f"the keychain entry '{name}' holds its values in plain text"
            hint = f"put them into the variable {variable(name)} as JSON, and remove 'kind: static'"
            source.note(source.refuse("noetl", message, entry.key("kind"), hint=hint))
