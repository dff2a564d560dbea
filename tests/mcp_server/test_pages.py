"""The pages for agents: generated ones are up to date, and what is to be copied into a client works."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mulligan.cli.words.dispatch import call_for
from mulligan.mcp_server.reference import PAGE, page
from mulligan.mcp_server.tool_table import BY_NAME, TOOLS

FOLDER = PAGE.parent
CLIENTS = ("README.md", "claude-code.md", "cursor.md", "vs-code.md", "others.md")
_FENCE = re.compile(r"^```(json|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_of_tools_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew with: make generated"


def test_the_first_page_names_every_tool() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")

    assert [tool.name for tool in TOOLS if f"`{tool.name}`" not in text] == []


def configurations() -> Iterator[tuple[str, Any]]:
    for file in (FOLDER / name for name in CLIENTS):
        for kind, text in _FENCE.findall(file.read_text(encoding="utf-8")):
            yield file.name, json.loads(text) if kind == "json" else tomllib.loads(text)


def commands(value: Any) -> Iterator[list[str]]:
    """The arguments of each command of ours in a configuration."""
    if isinstance(value, dict):
        if Path(str(value.get("command", ""))).name == "mulligan":
            yield value["args"]
        for inner in value.values():
            yield from commands(inner)


@pytest.mark.parametrize("name", CLIENTS)
def test_what_a_page_configures_is_a_command_that_there_is(name: str) -> None:
    found = [value for file, value in configurations() if file == name]

    for words in (words for value in found for words in commands(value)):
        assert words[0] == "mcp"
        call_for(words)
    assert found


def test_the_permissions_of_a_page_name_tools() -> None:
    allowed = [
        one
        for _, value in configurations()
        for one in value.get("permissions", {}).get("allow", ())
        if "mulligan" in one
    ]

    assert allowed
    assert {one.removeprefix("mcp__mulligan__") for one in allowed} <= set(BY_NAME)
