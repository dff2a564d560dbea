"""What a step does: a prompt for the agent, a script for the shell, a file to write."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.paths import beginning
from mulligan.core.model.workflow import Template
from mulligan.formats.prodigy.places import Place
from mulligan.formats.prodigy.shell_text import script
from mulligan.formats.prodigy.variables import text
from mulligan.formats.translation import Translation, made
from mulligan.language.expressions import Placeholder, check, find_placeholders
from mulligan.language.nodes import Node, Scalar, describe
from mulligan.language.shapes import Fields

WRITE = "mulligan.formats.prodigy.files:write"


def is_prompt(node: Scalar) -> bool:
    """A command that begins with a slash is one of Claude's."""
    return node.text.lstrip().startswith("/")


def agent(
    node: Scalar, place: Place, translation: Translation, words: str = "", *, has_to_answer_json: bool = False
) -> dict[str, Any]:
    """A prompt for the agent; `words` are put behind it."""
    prompt = kept(text(node, place, translation) + words, node)
    answer = "json" if has_to_answer_json else None
    return {"agent": made({"provider": "claude", "prompt": prompt, "answer": answer}, node)}


def kept(words: str, node: Scalar) -> Node:
    """A text of ours; the file's own where it is the same, so that a refusal points into it."""
    return node if words == node.value else made(words, node)


def shell(node: Scalar, place: Place, translation: Translation) -> dict[str, Any]:
    """A script for the shell, with what must be in its environment."""
    found = script(node, place, translation)
    action: dict[str, Any] = {"shell": kept(found.text, node)}
    if found.env:
        action["env"] = {name: made(value, node) for name, value in found.env.items()}
    return action


def either(node: Scalar, place: Place, translation: Translation) -> dict[str, Any]:
    """A command that does not say whose it is."""
    return agent(node, place, translation) if is_prompt(node) else shell(node, place, translation)


def write_file(form: Fields, place: Place, translation: Translation) -> dict[str, Any]:
    """A file that is written whole or not at all."""
    path, content = form["path"], form["content"]
    assert isinstance(path, Scalar) and isinstance(content, Scalar)
    if ".." in path.text.split("/"):
        raise translation.source.refuse("prodigy", f"'path' is {describe(path)}, which leads out with '..'", path)
    args: dict[str, Any] = {
        "path": made(text(path, place, translation), path),
        "content": made(text(content, place, translation), content),
    }
    args |= before_value(args["path"])
    args |= {key: form[key] for key in ("format", "create_dirs") if key in form}
    if "mode" in form:
        args["mode"] = made(_mode(form, translation), form.at("mode"))
    return {"python": {"call": WRITE}, "args": args}


def before_value(path: Node) -> dict[str, Node]:
    """The argument that says what stands before the first value of the run in a path, where there is one."""
    assert isinstance(path, Scalar)
    for part in find_placeholders(path.text):
        if isinstance(part, Placeholder) and beginning(Template((check(part.source),))) is not None:
            return {"below": made(path.text[: part.offset], path)}
    return {}


def _mode(form: Fields, translation: Translation) -> str:
    node = form.at("mode")
    assert isinstance(node, Scalar)
    digits = node.text.removeprefix("0o")
    if not digits or not set(digits) <= set("01234567") or len(digits) > 4:
        message = f"'mode' is {describe(node)}, permissions such as 0644 are expected"
        raise translation.source.refuse("type", message, node)
    return digits
