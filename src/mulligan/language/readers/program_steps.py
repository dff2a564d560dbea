"""What a step must not say if its action is a program, which is the only step of its workflow."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.actions import traits_of
from mulligan.core.model.workflow import Action
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.readers.actions import IN_FILE, ONLY_STEP
from mulligan.language.scope import Scope
from mulligan.language.text.nodes import Mapping, Scalar, Source

_AT_STEPS = "set it on the steps that it calls"
# What the process of a program cannot do, of the keys of `python` and of those of its step: why, and what to do.
_NOT_OF_FUNCTION = {
    "code": ("its steps are found in its module", "write 'call: module:function'"),
    "requirements": ("its process has the packages of the worker", _AT_STEPS),
    "python": ("its process has the interpreter of the worker", _AT_STEPS),
}
_NOT_OF_STEP = {
    "budget": ("it has no agents", "set it at the top of the file: child runs spend from that"),
    "breaker": ("a breaker guards a service, and its steps ask that", _AT_STEPS),
    "capture": ("its output is what it returns", "remove it"),
    "cache": ("its steps are cached one by one", _AT_STEPS),
    "next": ("it gets the same results of its calls in each visit", "write a loop in the program"),
    "on": ("its process gets no client of Dask", _AT_STEPS),
    "writes": ("its steps write files", _AT_STEPS),
}


def check_program(values: dict[str, Any], fields: Fields, label: str, scope: Scope) -> None:
    """Note what the process of a program would not do, or must not get."""
    action: Action | None = values.get("action")
    if action is None or not traits_of(action).is_program:
        return
    # The steps that it calls are known when it runs: any of them may use what is declared for them.
    scope.draft.used |= {(section, "*") for section in ("secrets", "files", "retry_policies", "handlers")}
    python = fields.at("python")
    for node, keys in ((python, _NOT_OF_FUNCTION), (fields.node, _NOT_OF_STEP)):
        for key, (why, hint) in keys.items():
            if isinstance(node, Mapping) and key in node.entries:
                message = f"{label} is a program and has '{key}', but {why}"
                scope.note(scope.source.refuse("program", message, node.key(key), hint=hint))
    _refuse_secrets(values, action, fields, scope)
    for key, default in (("requirements", scope.draft.requirements), ("python", scope.draft.python_interpreter)):
        # Those of '@program', which pins its source, are for the steps that it calls.
        if default and "source" not in action.params:
            message = f"{label} is a program, and 'defaults' has '{key}', which neither it nor its steps would get"
            hint = "write @program(defaults={…}), or set it on its steps"
            scope.note(scope.source.refuse("program", message, fields.key("python"), hint=hint))


def _refuse_secrets(values: dict[str, Any], action: Action, fields: Fields, scope: Scope) -> None:
    """Refuse secrets that a program would get: what it knows is recorded, and it calls steps with it."""
    env, cwd = values.get("env", {}), values.get("cwd")
    for key, found in (("args", action.bindings), ("env", env), ("cwd", {"": cwd} if cwd is not None else {})):
        secret = next((read for one in found.values() for read in one.reads if read.startswith("secrets.")), "")
        if secret:
            message = f"'{key}' of a program contains '{secret}', and secrets belong to steps"
            at = fields.key(key if key in fields.values else "python")
            hint = "give the secret to the step that needs it"
            scope.note(scope.source.refuse("secret", message, at, hint=hint))


def refuse_program_beside(name: str, node: Mapping, workspace: Scalar | None, source: Source) -> None:
    """Refuse a program in a workflow with further steps, or with a `workspace`, which adds some."""
    if workspace is not None:
        message = f"'workspace' adds steps, and step '{name}' is a program, which is the only step of its workflow"
        source.note(source.refuse("program", message, workspace, hint="remove it"))
    else:
        message = f"step '{name}' {ONLY_STEP}"
        source.note(source.refuse("program", message, node.key("python"), hint=IN_FILE))
