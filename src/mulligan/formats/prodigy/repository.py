"""Steps and checks about Git: required and automatic commits, changes that later steps read, worktrees.

Outside a Git repository none of them does anything. The commit that HEAD was at before a step is remembered in a file
in the Git folder of the worktree. Its name contains the step's position in the file, since steps can be nested.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from mulligan.formats.expressions import quoted
from mulligan.formats.prodigy.context import Context, Slot, added_step, call_at
from mulligan.formats.prodigy.variables import text_at
from mulligan.formats.translation import literal, made
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Node

# -- commits ---------------------------------------------------------------------------------------------------------


_SKIP_OUTSIDE_GIT = "git rev-parse --git-dir > /dev/null 2>&1 || exit 0"


def commit_required_at(form: Fields) -> Node | None:
    """The node that requires a commit of the step; None if there is none."""
    for fields in (form, form.get("metadata")):
        if isinstance(fields, Fields) and fields.get("commit_required"):
            return fields.at("commit_required")
    return None


def remember_head(at: Node) -> dict[str, Any]:
    """The command before a step that remembers HEAD."""
    command = f'{{ git rev-parse -q --verify HEAD || true; }} > "$(git rev-parse --git-dir)/{head_file(at)}"'
    return {"shell": made(f"{_SKIP_OUTSIDE_GIT}\n{command}", at)}


def remember_head_of_item(at: Node, slot: Slot) -> dict[str, Any]:
    """The same for a command of an item."""
    return {"python": made({"call": call_at(slot, "remember_head")}, at), "args": {"name": head_file(at)}, **_NO_RETRY}


def require_commit(at: Node, title: str) -> dict[str, Any]:
    """The check after a step that it made a commit."""
    return _git_check(
        f'[ "$(git rev-parse -q --verify HEAD)" != "$(cat "$(git rev-parse --git-dir)/{head_file(at)}")" ]',
        f"{title} made no commit",
        at,
    )


def with_required_commit(commands: list[dict[str, Any]], at: Node) -> list[dict[str, Any]]:
    """The commands of a handler, with a check that they made a commit."""
    return [remember_head(at), *commands, require_commit(at, "the handler")]


def auto_commit(at: Node, title: str, config: Fields | None, context: Context) -> dict[str, Any]:
    """The command that commits what a step changed, if anything."""
    given = config.values if config is not None else {}
    add = " ".join(["git add -A", *_commit_paths(given)])
    signed = ["-S"] if given.get("sign") else []
    author = [f"--author={_shell_quote(given['author'])}"] if "author" in given else []
    commit = " ".join(["git commit -q", *signed, *author, '-m "$PRODIGY_MESSAGE"'])
    script = f"{_SKIP_OUTSIDE_GIT}\n{add}\ngit diff --cached --quiet || {commit}"
    message = literal(f"Changes of {title}")
    if config is not None and "message_template" in config:
        message = text_at(config, "message_template", context.with_variables({"step.name": quoted(title)})).text
    return {"shell": made(script, at), "env": {"PRODIGY_MESSAGE": made(message, at)}}


def check_commit_message(config: Fields) -> dict[str, Any]:
    """The check that the message of the last commit matches the pattern."""
    at, pattern = config.at("message_pattern"), config["message_pattern"]
    return _git_check(
        f"git log -1 --format=%B | grep -Eq -e {_shell_quote(pattern)}",
        f"the message of the last commit does not match '{pattern}'",
        at,
    )


def _git_check(condition: str, otherwise: str, at: Node) -> dict[str, Any]:
    return {"shell": made(f"{_SKIP_OUTSIDE_GIT}\n{condition} || {{ echo {_shell_quote(otherwise)} >&2; exit 1; }}", at)}


def _shell_quote(words: str) -> str:
    """Quote a text as one shell word without expressions."""
    return literal(shlex.quote(words))


def _commit_paths(config: dict[str, Any]) -> Iterator[str]:
    """The paths to commit: all or the included ones, without the excluded ones."""
    included, excluded = config.get("include_files", ()), config.get("exclude_files", ())
    if included or excluded:
        yield "--"
    yield from map(_shell_quote, included or (":/",) * bool(excluded))
    yield from (_shell_quote(f":!{path}") for path in excluded)


def head_file(at: Node) -> str:
    """The file in the Git folder that remembers HEAD before a step."""
    return f"prodigy-head-{at.line + 1}-{at.column + 1}"


# -- outputs ---------------------------------------------------------------------------------------------------------


def find_output_files(form: Fields, title: str, at: Node, context: Context) -> tuple[list[dict[str, Any]], Context]:
    """The command that finds the `outputs` of a step, and the context in which they are variables."""
    outputs: dict[str, Fields] = form.get("outputs", {})
    patterns = {name: output["file_pattern"] for name, output in outputs.items() if "file_pattern" in output}
    slot = context.slots.take(f"{title}_outputs") if patterns else None
    if slot is None or not slot.output:
        return [], context
    args = {"remembered": head_file(at), "patterns": {name: literal(pattern) for name, pattern in patterns.items()}}
    known = {f"{title}.{name}": f"{slot.output}.{name}" for name in patterns}
    return [added_step(slot, "find_outputs", args)], context.with_variables(known)


# -- worktrees -------------------------------------------------------------------------------------------------------


_CALLS = "mulligan.formats.prodigy.runtime"
# A retry would not help: Git would refuse again.
_NO_RETRY = {"retry": 0}
_OPEN_REMARK = "in a Git repository the run works in its own worktree and branch; elsewhere in place"
_OPEN_ITEM_REMARK = "each item also works in its own worktree, based on the branch of the run"
_CLOSE_REMARK = "the worktree is removed if the steps before merged its branch, and kept otherwise"
_END_REMARK = "a failed run keeps its worktree and reports where it is"
_MERGE_REMARK = "uncommitted changes are committed, then the branch is merged; a conflict is a failure"


class Worktree(NamedTuple):
    """The command that opens a worktree, the context of the commands in it, and the expression of its output."""

    command: dict[str, Any]
    context: Context
    work: str


def open_run_worktree(context: Context, at: Node) -> Worktree:
    """The step that opens the run's worktree."""
    slot = context.slots.take("worktree")
    variables = {
        "merge.worktree": f"{slot.output}.session",
        "merge.source_branch": f"{slot.output}.branch",
        "merge.target_branch": f"{slot.output}.target",
        "merge.session_id": f"{slot.output}.session",
    }
    inside = msgspec.structs.replace(context.with_variables(variables), cwd=f"${{any_path({slot.output}.folder)}}")
    call = _call("open_run", {"run": "${run.id}"}, at, context, _OPEN_REMARK)
    return Worktree({"step": slot.name, **call}, inside, slot.output)


def end_run(run: Worktree, at: Node, *, is_merged: bool) -> dict[str, Any]:
    """The step that merges the branch of the run; after merge steps of the file, the one that removes the worktree."""
    word, remark = ("close", _CLOSE_REMARK) if is_merged else ("merge", _MERGE_REMARK)
    call = _call(f"{word}_run", {"run": f"${{{run.work}}}"}, at, run.context, remark)
    return {"step": run.context.slots.take(word).name, **call}


def report_worktree(run: Worktree, at: Node) -> dict[str, Any]:
    """The `end` of the workflow: it reports where the work of a failed run is."""
    args = {"run": f"${{{run.work}}}", "failures": "${run.failures}", "stopping": "${run.stopping}"}
    return _call("report_worktree", args, at, run.context, _END_REMARK)


def open_item_worktree(run: Worktree, context: Context, at: Node) -> Worktree:
    """The first command of an item: it opens its worktree."""
    work = context.slots.take("worktree").output
    args = {"run": f"${{{run.work}}}", "index": "${index}"}
    command = _call("added:open_item", args, at, context, _OPEN_ITEM_REMARK)
    inside = msgspec.structs.replace(context, cwd=f"${{any_path({work}.folder)}}")
    return Worktree({**command, **_NO_RETRY}, inside, work)


def merge_item(run: Worktree, item: Worktree, at: Node, *, item_id: str = "") -> dict[str, Any]:
    """The last command of an item: it merges, and passes on the output of the command before it.

    With `item_id`, an expression, its output is an entry of Prodigy's `map.results`.
    """
    entry = {"result": "${outputs}", "item_id": f"${{{item_id}}}"} if item_id else {"result": "${output}"}
    args = {"run": f"${{{run.work}}}", "item": f"${{{item.work}}}", **entry}
    return {**_call("added:merge_item", args, at, run.context, ""), **_NO_RETRY}


def _call(function: str, args: dict[str, str], at: Node, context: Context, about: str) -> dict[str, Any]:
    python = made({"call": f"{_CALLS}.{function}" if ":" in function else f"{_CALLS}:{function}"}, at)
    if about:
        context.translation.remark(python, about)
    return {"python": python, "args": args}
