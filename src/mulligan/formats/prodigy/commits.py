"""Commits that a step must make, or that are made for it. Outside a Git repository nothing is asked.

What HEAD was before the step is kept in the repository's own folder, which every worktree has for itself, under a name
made of the step's place in the file: steps nest.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from mulligan.formats.expressions import quoted
from mulligan.formats.prodigy.places import Place
from mulligan.formats.prodigy.variables import text
from mulligan.formats.translation import Translation, literal, made
from mulligan.language.nodes import Node, Scalar
from mulligan.language.shapes import Fields

_INSIDE = "git rev-parse --git-dir > /dev/null 2>&1 || exit 0"


def required(form: Fields) -> Node | None:
    """Where a step says that it must make a commit; None where it need not."""
    for said in (form, form.get("metadata")):
        if isinstance(said, Fields) and said.get("commit_required"):
            return said.at("commit_required")
    return None


def remembering(at: Node) -> dict[str, Any]:
    """The command before a step: it remembers what HEAD is."""
    script = f'{_INSIDE}\n{{ git rev-parse -q --verify HEAD || true; }} > "$(git rev-parse --git-dir)/{head_file(at)}"'
    return {"shell": made(script, at)}


def requirement(at: Node, title: str) -> dict[str, Any]:
    """The check after it: a commit has been made."""
    return _check(
        f'[ "$(git rev-parse -q --verify HEAD)" != "$(cat "$(git rev-parse --git-dir)/{head_file(at)}")" ]',
        f"no commit was made by {title}",
        at,
    )


def committing(commands: list[dict[str, Any]], at: Node) -> list[dict[str, Any]]:
    """The commands of a handler that must make a commit."""
    return [remembering(at), *commands, requirement(at, "the handler")]


def automatic(at: Node, title: str, config: Fields | None, place: Place, translation: Translation) -> dict[str, Any]:
    """What the step has changed, committed; nothing where nothing has changed."""
    add = " ".join(["git add -A", *_paths(config)])
    commit = " ".join(["git commit -q", *_options(config), '-m "$PRODIGY_MESSAGE"'])
    script = f"{_INSIDE}\n{add}\ngit diff --cached --quiet || {commit}"
    message = _message(title, config, place, translation)
    return {"shell": made(script, at), "env": {"PRODIGY_MESSAGE": made(message, at)}}


def named(config: Fields) -> dict[str, Any]:
    """The check that the message of the last commit is as it should be."""
    at, pattern = config.at("message_pattern"), config["message_pattern"]
    return _check(
        f"git log -1 --format=%B | grep -Eq -e {_quoted(pattern)}",
        f"the message of the last commit does not match '{pattern}'",
        at,
    )


def warn_of_squash(config: Fields | None, translation: Translation) -> None:
    if config is not None and config.get("squash"):
        message = "'squash' is not honoured: the commits of a step stay as they were made"
        translation.warn("prodigy", message, config.at("squash"))


def _check(condition: str, otherwise: str, at: Node) -> dict[str, Any]:
    return {"shell": made(f"{_INSIDE}\n{condition} || {{ echo {_quoted(otherwise)} >&2; exit 1; }}", at)}


def _quoted(words: str) -> str:
    """One word of shell text, in which nothing is filled in."""
    return literal(shlex.quote(words))


def _message(title: str, config: Fields | None, place: Place, translation: Translation) -> str:
    if config is None or "message_template" not in config:
        return literal(f"Changes of {title}")
    node = config.at("message_template")
    assert isinstance(node, Scalar)
    return text(node, place.knowing({"step.name": quoted(title)}), translation)


def _options(config: Fields | None) -> Iterator[str]:
    if config is not None and config.get("sign"):
        yield "-S"
    if config is not None and "author" in config:
        yield f"--author={_quoted(config['author'])}"


def _paths(config: Fields | None) -> Iterator[str]:
    """What is committed: all, or what is included, and never what is excluded."""
    included = config.get("include_files", ()) if config is not None else ()
    excluded = config.get("exclude_files", ()) if config is not None else ()
    if included or excluded:
        yield "--"
    yield from map(_quoted, included or (":/",) * bool(excluded))
    yield from (_quoted(f":!{path}") for path in excluded)


def head_file(at: Node) -> str:
    """The file in the repository's own folder that remembers what HEAD was before a step."""
    return f"prodigy-head-{at.line + 1}-{at.column + 1}"
