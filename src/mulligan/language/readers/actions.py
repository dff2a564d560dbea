"""Reads actions. A program is kept separate from the values that it uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from mulligan.core.model.actions import ENGINE_ACTIONS, EVENT, PROGRAM, TRAITS, WAITS
from mulligan.core.model.clusters.on_dask import CLIENT
from mulligan.core.model.run_data import name_problem
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Action, Template
from mulligan.language.checks.likely_mistakes import warn_unbound_items
from mulligan.language.keys.action_keys import ACTION_SCHEMAS, ACTIONS, AGENT, APPROVE, HTTP, OF_EVENT, SQL, WAIT
from mulligan.language.keys.plugins import Plugin, find
from mulligan.language.keys.value_schemas import DURATION, Deferred, Fields, Record
from mulligan.language.keys.workflow_keys import GROUP
from mulligan.language.python.python_code import check_code, check_source
from mulligan.language.readers.inputs import check_child_inputs
from mulligan.language.scope import (
    Scope,
    check_expression,
    check_names,
    check_placeholder,
    hint_for_name,
    placeholders_in,
)
from mulligan.language.shell.shell import ROOTS, ShellRefused, UnknownName, reads_variables, rewrite
from mulligan.language.text.nodes import Mapping, Node, Scalar, describe
from mulligan.language.text.suggestions import quote_list
from mulligan.language.value_templates import PLACEHOLDER, read_value, refuse_placeholders
from mulligan.plugins import PluginError

Bindings = dict[str, Template]
# The keys of `agent` that make it a conversation.
CONVERSATION_KEYS = ("tools", "max_turns", "max_tool_calls", "on_tool_failure", "session")
GROUP_KEY = "group"
# Why a program is refused, and what to do.
ONLY_STEP = "is a program, and a program is the only step of its workflow"
IN_FILE = "put it into a file of its own, and call that with 'workflow: FILE'"

HTTP_SCHEMES = ("http://", "https://")
SQL_SCHEMES = ("sqlite://", "postgresql://", "postgres://", "duckdb://")

_PLACEHOLDER_TEXT = lazy_regex(r"\$\{\s*([A-Za-z_]\w*)[^}\n]*\}?")
# Keys of `http` that take no placeholders.
_HTTP_STATIC = ("method", "expect", "follow_redirects", "connect_timeout", "read_timeout", "max_body", "verify")
# Closed quotes and comments of a query, in which parameters are not bound, and what opens one.
_SQL_CLOSED = lazy_regex(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*\n|/\*.*?\*/|(\$(?:[A-Za-z_]\w*)?\$).*?\1", re.DOTALL)
_SQL_OPEN = lazy_regex(r"'|\"|--|/\*|\$(?:[A-Za-z_]\w*)?\$")


def read_action(fields: Fields, label: str, scope: Scope, *, may_be_program: bool = False) -> Action | None:
    """The action of a step or command. Exactly one is required; None if it was already refused."""
    kinds = [kind for kind in (*ACTIONS, GROUP_KEY) if kind in fields.node.entries]
    kinds += fields.added
    if not kinds and fields.has_unknown_keys:
        return None  # most likely a misspelled action, which is already noted
    if not kinds:
        others = ("commands", "use") if label == "'on_failure'" else ()
        hint = f"add one of {quote_list((*others, *ACTIONS))}"
        raise scope.source.refuse("no_action", f"{label} has no action", fields.node, hint=hint)
    if len(kinds) > 1:
        kinds.sort(key=lambda kind: (fields.key(kind).line, fields.key(kind).column))
        message = f"{label} has {len(kinds)} actions: {' and '.join(map(repr, kinds))}"
        hint = f"make each a separate {'step' if label.startswith('step ') else 'command'}"
        raise scope.source.refuse("several_actions", message, fields.key(kinds[1]), hint=hint)
    kind = kinds[0]
    _refuse_misplaced_keys(fields, kind, scope)
    if kind not in fields.values:
        return None
    action = _READERS.get(kind, _plugin)(fields.at(kind), fields, scope.in_attempt)
    if action.kind == PROGRAM and not may_be_program:
        raise scope.source.refuse("program", f"{label} {ONLY_STEP}", fields.key(kind), hint=IN_FILE)
    if action.kind in ENGINE_ACTIONS:
        _refuse_secrets(action, fields.key(kind), scope)
    return action


def read_plain_action(kind: str, text: Scalar, node: Mapping, scope: Scope) -> Action:
    """The action of a step that says nothing but its action, of a kind that workers run, in the scope of an attempt."""
    reader = _TEXT_READERS.get(kind)
    return _READERS[kind](text, Fields(node, {kind: text}), scope) if reader is None else reader(text, scope)


def _refuse_secrets(action: Action, node: Node, scope: Scope) -> None:
    """Refuse secrets in engine actions: their parameters are recorded."""
    for bound in action.bindings.values():
        if secret := next((name for name in bound.reads if name.startswith("secrets.")), None):
            message = f"'{secret}' can only be read by workers, and '{action.kind}' is run by the engine"
            raise scope.source.refuse("secret", message, node)


def _refuse_misplaced_keys(fields: Fields, kind: str, scope: Scope) -> None:
    """Refuse `args` and `on` without python, and `stdin` without shell."""
    for key, owner in (("args", "python"), ("on", "python"), ("stdin", "shell")):
        if key in fields.values and kind != owner:
            message = f"'{key}' is for '{owner}', and this is '{kind}'"
            scope.note(scope.source.refuse("stray_key", message, fields.key(key)))


def shell_action(node: Node, scope: Scope, interpreter: str | None = None) -> Action:
    """Shell text in which each of our placeholders is an environment variable."""
    if not isinstance(node, Scalar) or not node.is_text or not node.text.strip():
        raise scope.source.refuse("type", f"a shell command is expected, and this is {describe(node)}", node)
    params: dict[str, Any] = {"text": node.text}
    if named := interpreter or scope.draft.shell_interpreter:
        params["interpreter"] = named
    if scope.is_shell_strict:
        params["strict"] = True
    bindings: Bindings = {}
    if "${" in node.text and reads_variables(named):
        params["text"], bindings = _rewrite_shell(node, scope)
    elif "${" in node.text:
        _refuse_values_outside_shell(node, str(named), scope)
    return Action("shell", params, bindings)


def _refuse_values_outside_shell(node: Scalar, program: str, scope: Scope) -> None:
    """Refuse placeholders in a program that is not a shell: there `${NAME}` is not a variable."""
    ours = ROOTS | scope.in_shell.known_names
    if found := next((found for found in _PLACEHOLDER_TEXT.finditer(node.text) if found[1] in ours), None):
        message = f"'{program}' is not a shell that reads variables as '${{NAME}}', so its text cannot contain values"
        hint = "pass it under 'env:'"
        raise scope.source.refuse_in("shell", message, node, found.start(), len(found[0]), hint=hint)


def _rewrite_shell(node: Scalar, scope: Scope) -> tuple[str, Bindings]:
    try:
        rewritten = rewrite(node.text, scope.bare_names, ROOTS | {"matrix"} if scope.matrix else ROOTS)
    except ShellRefused as refused:
        hint = refused.hint
        if isinstance(refused, UnknownName):
            hint = hint_for_name(refused.name, refused.source, scope.in_shell)
        message, offset, length = refused.message, refused.offset, refused.length
        raise scope.source.refuse_in("shell", message, node, offset, length, hint=hint) from None
    offsets = {found.source: found.offset + 2 for found in reversed(rewritten.placeholders)}
    bindings: Bindings = {}
    for name, source in rewritten.bindings.items():
        if (checked := rewritten.checked.get(source)) is not None:
            expression = check_names(checked, node, offsets[source], scope)
        else:
            expression = check_expression(source, node, offsets[source], scope)
        bindings[name] = Template((expression,))
    if node.text.count("${") > len(rewritten.placeholders):
        # Some are left to the shell.
        warn_unbound_items(node, scope)
    return rewritten.text, bindings


def _shell(node: Node, fields: Fields, scope: Scope) -> Action:
    form = ACTION_SCHEMAS["shell"].read(node, "'shell'", scope.source) if isinstance(node, Mapping) else None
    if form is None:
        action = shell_action(node, scope)
    elif "text" in form:
        action = shell_action(form.at("text"), scope.for_fields(form), form.get("shell"))
    else:
        return Action("shell", {"text": ""})  # the missing text is already noted
    if "stdin" in fields:
        action.params["stdin"] = read_value(fields.at("stdin"), scope, action.bindings)
    return action


def _python(node: Node, fields: Fields, scope: Scope) -> Action:
    form = ACTION_SCHEMAS["python"].read(node, "'python'", scope.source)
    bindings: Bindings = {}
    args_node = fields.at("args") if "args" in fields.values else None
    if args_node is not None and not isinstance(args_node, Mapping):
        raise scope.source.refuse("type", f"'args' is {describe(args_node)}, a mapping is expected", args_node)
    params: dict[str, Any] = {"args": read_value(args_node, scope, bindings)} if args_node else {}
    keys = form if isinstance(form, Fields) else Fields(fields.node, {"code": form})
    has_client = fields["on"].get("dask", False) if "on" in fields.values else False
    if has_client:
        params["on"] = {"dask": True}
        if args_node is not None and CLIENT in args_node.entries:
            message = f"'{CLIENT}' is the client of Dask, and 'args' sets it, too"
            hint = "give the argument another name"
            scope.note(scope.source.refuse("python", message, args_node.key(CLIENT), hint=hint))
    if isinstance(node, Mapping):
        _refuse_two_programs(node, scope)
    interpreter = keys.get("python") or scope.draft.python_interpreter
    if "call" in keys.values:
        params["call"] = keys["call"]
        params.update({"import_from": keys["import_from"]} if "import_from" in keys else {})
        if "source" in keys:
            if interpreter is None:  # in another one it may be valid
                check_source(keys.at("source"), scope)
            params["source"] = keys["source"]
            params.update({"file": keys["file"]} if "file" in keys else {})
    elif "code" in keys.values:
        given = (CLIENT,) if has_client else ()
        check_code(keys["code"], args_node, fields.key("python"), scope, is_ours=interpreter is None, given=given)
        params["code"] = keys["code"].text
    if keys.get("program"):
        return Action(PROGRAM, {**params, **keys.pick("calls")}, bindings)
    if interpreter:
        params["interpreter"] = interpreter
    if requirements := keys.get("requirements", scope.draft.requirements):
        params["requirements"] = list(requirements)
    return Action("python", params, bindings)


def _refuse_two_programs(node: Mapping, scope: Scope) -> None:
    """Refuse both or none of `code` and `call`, and a source that nothing calls."""
    if "code" in node.entries and "call" in node.entries:
        message = "'python' has 'code' and 'call', but runs only one of them"
        scope.note(scope.source.refuse("stray_key", message, node.key("call"), hint="keep one of them"))
    elif "code" not in node.entries and "call" not in node.entries:
        message = "'python' has neither 'code' nor 'call'"
        hint = "add 'code: …' or 'call: package.module:function'"
        scope.note(scope.source.refuse("missing_key", message, node, hint=hint))
    for key, needed in (("source", "call"), ("file", "source"), ("import_from", "call"), ("calls", "program")):
        if key in node.entries and needed not in node.entries:
            message = f"'python' has '{key}' without '{needed}'"
            scope.note(scope.source.refuse("stray_key", message, node.key(key), hint=f"add '{needed}: …'"))


def _record_action(kind: str, record: Record, static: tuple[str, ...], node: Node, scope: Scope) -> Action:
    """An action that is a record. `static` keys take no placeholders, all others may."""
    form = record.read(node, f"'{kind}'", scope.source)
    bindings: Bindings = {}
    params = {key: list(form[key]) if isinstance(form[key], tuple) else form[key] for key in static if key in form}
    for key in form.values:
        if key not in static:
            params[key] = _read_param(form, key, record, scope, bindings)
    return Action(kind, params, bindings)


def _read_param(form: Fields, key: str, record: Record, scope: Scope, bindings: Bindings) -> Any:
    """The value of a key that may contain placeholders, after a check of its schema."""
    node = form.at(key)
    schema = record.keys[key].schema
    if isinstance(schema, Deferred):
        schema.of().read(node, f"'{key}'", scope.source)
    return read_value(node, scope, bindings)


def _http(node: Node, fields: Fields, scope: Scope) -> Action:
    action = _record_action("http", HTTP, _HTTP_STATIC, node, scope)
    bodies = [key for key in ("json", "form", "body") if key in action.params]
    if len(bodies) > 1 and isinstance(node, Mapping):
        message = f"'http' has {quote_list(bodies, 'and')}, and a request has one body"
        scope.note(scope.source.refuse("stray_key", message, node.key(bodies[-1]), hint="keep one of them"))
    action.params.setdefault("method", "GET")
    if isinstance(node, Mapping):
        note_bad_address(action.params, "url", node, HTTP_SCHEMES, scope)
    return action


def note_bad_address(params: dict[str, Any], key: str, node: Mapping, schemes: tuple[str, ...], scope: Scope) -> None:
    """Note a literal address with a wrong scheme, so that it does not fail only when the step runs."""
    address, written = params.get(key), node.get(key)
    if written is not None and isinstance(address, str) and not address.strip().lower().startswith(schemes):
        message = f"'{key}' must begin with {quote_list(schemes)}"
        scope.note(scope.source.refuse("address", message, written))


def _agent(node: Node, fields: Fields, scope: Scope) -> Action:
    if isinstance(node, Mapping):
        static = ("upstream", "answer", "skip_permissions", *CONVERSATION_KEYS)
        action = _record_action("agent", AGENT, static, node, scope)
        if isinstance(answer := action.params.get("answer"), Fields):
            action.params["answer"] = dict(answer.values)
        for key in CONVERSATION_KEYS:
            # What it may call is not part of the action: see `agent_tools`.
            action.params.pop(key, None)
    else:
        action = _text_action("agent", "prompt", node, scope)
    if scope.draft.agent_provider:
        action.params.setdefault("provider", scope.draft.agent_provider)
    return action


def _approve(node: Node, fields: Fields, scope: Scope) -> Action:
    if isinstance(node, Mapping):
        action = _record_action("approve", APPROVE, ("timeout", "default"), node, scope)
    else:
        action = _text_action("approve", "message", node, scope)
    if "timeout" in fields:
        # The timeout of the step is the time to wait for an answer.
        action.params.setdefault("timeout", fields["timeout"])
    return action


def _text_action(kind: str, key: str, node: Node, scope: Scope) -> Action:
    form = ACTION_SCHEMAS[kind].read(node, f"'{kind}'", scope.source)
    bindings: Bindings = {}
    return Action(kind, {key: read_value(form, scope, bindings)}, bindings)


def _sql(node: Node, fields: Fields, scope: Scope) -> Action:
    form: Fields = SQL.read(node, "'sql'", scope.source)
    bindings: Bindings = {}
    params = {"connection": _read_param(form, "connection", SQL, scope, bindings)} if "connection" in form else {}
    params |= form.pick("read_only", "rows")
    if isinstance(node, Mapping):
        note_bad_address(params, "connection", node, SQL_SCHEMES, scope)
    own = _read_param(form, "params", SQL, scope, bindings) if "params" in form else {}
    query = form.at("query") if "query" in form else None
    if query is not None and not isinstance(query, Scalar):
        raise scope.source.refuse("type", f"'query' is {describe(query)}, a query is expected", query)
    if query is not None:
        params["query"], bound = _bind_query(query, scope, bindings)
        if bound and not isinstance(own, dict):
            message = "'params' is a list, and values in '${…}' are bound by name"
            raise scope.source.refuse("sql", message, form.at("params"), hint="make 'params' a mapping")
        own = {**own, **bound} if bound else own
    connection = params.get("connection")
    paths = (
        {"connection": connection[PLACEHOLDER]} if isinstance(connection, dict) and PLACEHOLDER in connection else {}
    )
    return Action("sql", {**params, "params": own} if own else params, bindings, paths)


def _bind_query(node: Scalar, scope: Scope, bindings: Bindings) -> tuple[str, dict[str, Any]]:
    """The query with a named parameter for each placeholder."""
    text, since = "", ""
    bound: dict[str, Any] = {}
    for part in placeholders_in(node, scope):
        if isinstance(part, str):
            text, since = text + part, part
            continue
        # No quote was open at the last placeholder, so the text since then is enough.
        if _SQL_OPEN.search(_SQL_CLOSED.sub(" ", since)):
            message = "values are bound as parameters, and nothing is bound inside quotes or a comment"
            hint = "remove the quotes around it"
            raise scope.source.refuse_in("sql", message, node, part.offset, part.length, hint=hint)
        since = ""
        name, binding = f"mulligan_{len(bound)}", f"b{len(bindings)}"
        bindings[binding] = Template((check_placeholder(part, node, scope),))
        bound[name] = {PLACEHOLDER: binding}
        text += f":{name}"
    return text, bound


def _workflow(node: Node, fields: Fields, scope: Scope) -> Action:
    form = ACTION_SCHEMAS["workflow"].read(node, "'workflow'", scope.source)
    bindings: Bindings = {}
    if isinstance(form, str):
        file, file_node, inputs_node = form, node, None
    else:
        if "file" not in form:
            return Action("workflow", {})
        file, file_node = form["file"], form.at("file")
        inputs_node = form.at("inputs") if "inputs" in form else None
    if inputs_node is not None and not isinstance(inputs_node, Mapping):
        raise scope.source.refuse("type", f"'inputs' is {describe(inputs_node)}, a mapping is expected", inputs_node)
    inputs = read_value(inputs_node, scope, bindings) if inputs_node else {}
    if scope.draft.includes is None:
        raise scope.source.refuse("include", "a workflow from text cannot name files", file_node)
    child = scope.draft.children.get(file) or scope.draft.includes.child(file, file_node, scope.source)
    scope.draft.children[file] = child
    check_child_inputs(child, file, file_node, inputs_node, scope)
    return Action("workflow", {"file": file, "inputs": inputs} if inputs else {"file": file}, bindings)


def _group(node: Node, fields: Fields, scope: Scope) -> Action:
    """A group as a child run of its own workflow, with the inputs that are read inside."""
    form = GROUP.read(node, "'group'", scope.source)
    reader = scope.draft.read_group
    if "steps" not in form or not isinstance(node, Mapping) or reader is None:
        return Action("workflow", {})
    given = form.at("inputs") if "inputs" in form else Mapping(node.line, node.column)
    if not isinstance(given, Mapping):
        raise scope.source.refuse("type", f"'inputs' is {describe(given)}, a mapping is expected", given)
    for name, (key, _) in given.entries.items():
        if name in scope.draft.inputs:
            message = f"'{name}' is already an input of the file, and the group can read it"
            raise scope.source.refuse("duplicate_input", message, key, hint="give it another name")
    name = scope.reader or "group"
    child = reader(node, name, tuple(given.entries))
    handed = Mapping(node.line, node.column)
    for declared in child.inputs:
        text = Scalar(f"${{inputs.{declared}}}", f"${{inputs.{declared}}}", '"', node.line, node.column, node.column)
        handed.entries[declared] = given.entries.get(declared) or (text, text)
    bindings: Bindings = {}
    inputs = read_value(handed, scope, bindings)
    file = f"group:{name}"
    scope.draft.children[file] = child
    return Action("workflow", {"file": file, "inputs": inputs, "group": True}, bindings)


def _wait(node: Node, fields: Fields, scope: Scope) -> Action:
    form = ACTION_SCHEMAS["wait"].read(node, "'wait'", scope.source)
    bindings: Bindings = {}
    if isinstance(form, Fields):
        if "event" in form:
            if "until" in form:
                message = "'wait' has 'until' and 'event'"
                hint = "keep one of them; 'timeout' limits the wait for an event"
                scope.note(scope.source.refuse("stray_key", message, form.node.key("until"), hint=hint))
            return _event_wait(form, fields, scope)
        for key in OF_EVENT:
            if key in form:
                message = f"'wait' has '{key}' without 'event'"
                scope.note(scope.source.refuse("stray_key", message, form.node.key(key), hint="add 'event: …'"))
        if "until" not in form:
            return Action("wait", {})
        until = _read_param(form, "until", WAIT, scope, bindings)
        if isinstance(until, str):
            _refuse_bad_time(until, form.at("until"), scope)
        return Action("wait", {"until": until}, bindings)
    value = read_value(node, scope, bindings)
    if isinstance(value, dict):
        return Action("wait", {"seconds": value}, bindings)
    return Action("wait", {"seconds": DURATION.read(node, "'wait'", scope.source)})


def _event_wait(form: Fields, fields: Fields, scope: Scope) -> Action:
    bindings: Bindings = {}
    params: dict[str, Any] = {"event": _read_param(form, "event", WAIT, scope, bindings)}
    if isinstance(params["event"], str) and (problem := name_problem(params["event"])):
        raise scope.source.refuse(
            "name", f"'{params['event']}' is not the name of an event: {problem}", form.at("event")
        )
    if "default" in form:
        params["default"] = _read_param(form, "default", WAIT, scope, bindings)
        if "timeout" not in form and "timeout" not in fields:
            message = "'wait' has 'default' without 'timeout'"
            scope.note(scope.source.refuse("stray_key", message, form.node.key("default"), hint="add 'timeout: …'"))
    params |= form.pick("timeout", "schema")
    if "timeout" in fields:
        # The timeout of the step is the time to wait for the event.
        params.setdefault("timeout", fields["timeout"])
    return Action(EVENT, params, bindings)


def _refuse_bad_time(text: str, node: Node, scope: Scope) -> None:
    try:
        problem = "" if datetime.fromisoformat(text).tzinfo is not None else "has no time zone"
    except ValueError:
        problem = "is not a time"
    if problem:
        raise scope.source.refuse("type", f"'{text}' {problem}", node, hint="write it as 2030-01-31T09:00:00Z")


def _plugin(node: Node, fields: Fields, scope: Scope) -> Action:
    """An action of a plugin. The workflow records its function, so that workers need not search for it."""
    (kind,) = fields.added
    plugin = _find_plugin(kind, fields.key(kind), scope)
    form = plugin.schema.read(node, f"'{kind}'", scope.source)
    bindings: Bindings = {}
    if isinstance(form, Fields):
        for key in plugin.definition.program_keys:
            if key in form:
                refuse_placeholders(form.at(key), f"'{key}' of '{kind}'", scope)
        args = {key: _read_param(form, key, plugin.record, scope, bindings) for key in form.values}
    else:
        args = {str(plugin.definition.text_key): read_value(node, scope, bindings)}
    params: dict[str, Any] = {"call": plugin.definition.call_for(args), "package": plugin.package, "args": args}
    if plugin.definition.waits_with(args):
        params[WAITS] = True
    if plugin.definition.traits:
        params[TRAITS] = plugin.definition.traits
    return Action(kind, params, bindings)


def _find_plugin(kind: str, key: Scalar, scope: Scope) -> Plugin:
    try:
        plugin = find(kind)
    except PluginError as problem:
        raise scope.source.refuse("plugin", str(problem), key) from None
    assert plugin is not None, f"the plugin of '{kind}' was removed while the file was read"
    return plugin


_READERS: dict[str, Callable[[Node, Fields, Scope], Action]] = {
    "shell": _shell,
    "python": _python,
    "http": _http,
    "sql": _sql,
    "agent": _agent,
    "workflow": _workflow,
    GROUP_KEY: _group,
    "wait": _wait,
    "approve": _approve,
}
# Those that need no more than the text, where it is all that is said.
_TEXT_READERS: dict[str, Callable[[Node, Scope], Action]] = {"shell": shell_action}
