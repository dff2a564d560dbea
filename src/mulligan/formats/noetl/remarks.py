"""What a playbook says that changes nothing in a run: `convert` keeps it as comments at the head of the file."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mulligan.formats.noetl.credentials import variable
from mulligan.formats.translation import Translation
from mulligan.language.nodes import plain
from mulligan.language.shapes import Fields

# What the file of ours says, too.
_SAID_OTHERWISE = ("name", "description")


def remark_on(playbook: Fields, translation: Translation) -> None:
    """Have `convert` say what is in the playbook for people and for NoETL alone."""
    for text in (*_of_metadata(playbook), *_of_executor(playbook), *_of_keychain(playbook)):
        translation.remark(playbook.node, text)


def _of_metadata(playbook: Fields) -> Iterator[str]:
    metadata = playbook.get("metadata")
    if metadata is not None:
        for key, value in metadata.node.items():
            if key.text not in _SAID_OTHERWISE:
                yield f"{key.text}: {msgspec.json.encode(plain(value)).decode()}"


def _of_executor(playbook: Fields) -> Iterator[str]:
    executor = playbook.get("executor")
    features = executor["requires"].get("features") if executor is not None and "requires" in executor else None
    if features:
        yield f"it requires of NoETL: {', '.join(features)}"


def _of_keychain(playbook: Fields) -> Iterator[str]:
    for entry in playbook.get("keychain", ()):
        if "name" not in entry:
            continue
        name, kind = str(entry["name"]), entry.get("kind", "credential")
        yield f"NoETL looks the credential '{name}' up as {kind}; here the variable {variable(name)} holds it"
