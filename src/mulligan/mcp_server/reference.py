"""docs/agents/reference.md, made from the table of tools: `python -m mulligan.mcp_server.reference`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mulligan.mcp_server.prompts import PROMPTS
from mulligan.mcp_server.resources import TEMPLATES
from mulligan.mcp_server.tool import Tool
from mulligan.mcp_server.tool_table import TOOLS

PAGE = Path(__file__).parents[3] / "docs/agents/reference.md"
_HEAD = """\
# Tools for agents

This page is made from the table of tools (`make generated`). [README.md](README.md) says how to add them to a client.

- *Scope* says what the caller needs: a local agent has what `mulligan mcp` was started with, a token has its scopes.
- An answer is the JSON that `--json` prints and the [HTTP interface](../operate/api.md) sends, as structured content
  and as text.
- An error is an answer with `error`: `code`, `message`, `hint`, `data`, and `problems` for a refused workflow. An
  argument that a tool does not have is refused by its name.
"""
_SCOPES = {
    "read": "Reading",
    "decide": "Deciding",
    "propose": "Proposing",
    "send": "Sending",
    "run": "Running",
    "write": "Writing",
}


def page() -> str:
    """The text of the page."""
    lines = [_HEAD]
    for scope, title in _SCOPES.items():
        tools = [tool for tool in TOOLS if tool.scope == scope]
        if tools:
            lines.append(f"## {title}\n")
            lines += [line for tool in tools for line in _tool(tool)]
    return "\n".join([*lines, *_prompts(), *_resources()])


def _tool(tool: Tool) -> Iterator[str]:
    yield f"### {tool.name}\n"
    also = f" Also as {', '.join(f'`{name}`' for name in tool.also)}." if tool.also else ""
    yield f"{tool.describe}{also} Scope: `{tool.scope}`.\n"
    if tool.schema["properties"]:
        yield "| argument | | what it is |"
        yield "|---|---|---|"
        needed = tool.schema.get("required", ())
        for name, one in tool.schema["properties"].items():
            yield f"| `{name}` | {_kind(one, is_needed=name in needed)} | {one.get('description', '')} |".replace(
                "||", "| |"
            )
        yield ""


def _kind(schema: dict[str, Any], *, is_needed: bool) -> str:
    options = schema.get("enum") or schema.get("items", {}).get("enum")
    kind = "one of " + ", ".join(f"`{one}`" for one in options) if options else schema.get("type", "any")
    if isinstance(kind, list):
        kind = " or ".join(kind)
    if schema.get("type") == "array" and options:
        kind = kind.replace("one of", "some of")
    default = schema.get("default")
    if is_needed:
        return f"{kind}, needed"
    is_plain = default in (None, "", [], {}) or default == ()
    return kind if is_plain else f"{kind}, default `{msgspec.json.encode(default).decode()}`"


def _prompts() -> Iterator[str]:
    yield "## Prompts\n"
    yield "| prompt | arguments | what it asks for |"
    yield "|---|---|---|"
    for one in PROMPTS:
        given = ", ".join(f"`{a.name}`{' (needed)' if a.is_required else ''}" for a in one.arguments)
        yield f"| `{one.name}` | {given} | {one.describe} |"
    yield ""


def _resources() -> Iterator[str]:
    yield "## Resources\n"
    yield "| address | media type | what it is |"
    yield "|---|---|---|"
    for one in TEMPLATES:
        yield f"| `{one.address}` | `{one.media}` | {one.describe} |"
    yield ""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
