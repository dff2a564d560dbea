"""Prodigy's variables as expressions: `${a.b}`, `${a[0]}`, `${v:-default}`, `$VAR`, `$1`; and what steps capture.

A variable is known if the context binds it or a prefix of it: if `item` is bound, `${item.path}` is a field of it.
An unknown variable stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from mulligan.formats.expressions import is_field, quoted, step_path
from mulligan.formats.prodigy.context import Context, Slot
from mulligan.formats.translation import literal, scalar, scalars
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Node, Scalar
from mulligan.language.text.suggestions import did_you_mean

_FIELD = r"\.[A-Za-z_][\w-]*|\.\d+|\[\d+\]"
_PATH = rf"[A-Za-z_][\w-]*(?:{_FIELD})*"
GIT_FIELDS = tuple(
    "files_added files_modified files_deleted files_changed commits commit_count insertions deletions".split()
)
GIT_COUNTS = frozenset(f"{root}.{field}" for root in ("step", "workflow") for field in GIT_FIELDS[5:])
# A variable about changes in Git, with a modifier or without.
_GIT_PATH = rf"(?:step|workflow)\.(?:{'|'.join(GIT_FIELDS)})\b"
GIT_REFERENCE = re.compile(r"\$\{(?P<root>step|workflow)\.(?P<field>\w+)(?::(?!-)(?P<modifier>[^{}]*))?\}")
REFERENCE = re.compile(
    rf"\$(?:\{{(?P<path>{_PATH}|\d+|{_GIT_PATH}:(?!-)[^{{}}]*)(?:(?::-|\|default:)(?P<default>[^{{}}]*))?\}}"
    r"|(?P<bare>[A-Za-z_]\w*|\d))",
    re.A,
)
_FIELDS = re.compile(_FIELD, re.A)
_ARGUMENT = re.compile(r"(?:ARG_)?([1-9]\d?)")
# Prodigy evaluates these while it fills in a text.
_COMPUTED = re.compile(r"\$\{(file|cmd|json|date):[^}]*\}")
_MODIFIED = re.compile(r"\$\{[A-Za-z_][\w.-]*\|(?!default:)\w[^}]*\}", re.A)
_GIT_CONTEXT = re.compile(rf"\$\{{{_GIT_PATH}[^}}]*\}}")

_CONDITION = re.compile(r"\([^?]*(?: in \['true', 'yes', '1', 'on'\]| == 'completed'| != null)\)")

ARGUMENTS = "inputs.args"
# Variables that are known in every text.
_GLOBAL_VARIABLES = {"ARG": ARGUMENTS, "workflow.name": "run.workflow", "workflow.id": "run.id"}


class Variable(NamedTuple):
    """A variable as an expression. `exists_when` is the condition under which it exists; "" for always."""

    expression: str
    exists_when: str = ""

    @property
    def or_null(self) -> str:
        """The expression, or null if the variable does not exist."""
        return f"({self.exists_when} ? {self.expression} : null)" if self.exists_when else self.expression


def find_variable(path: str, context: Context) -> Variable | None:
    """The expression of a variable; None if it is not bound."""
    if path in context.variables:
        return Variable(context.variables[path])
    if path in _GLOBAL_VARIABLES:
        return Variable(_GLOBAL_VARIABLES[path])
    if argument := _ARGUMENT.fullmatch(path):
        number, words = int(argument[1]), f"{context.arguments}.split(' ')"
        return Variable(f"(size({words}) >= {number} ? {words}[{number - 1}] : '')")
    for field in reversed([*_FIELDS.finditer(path)]):
        beginning = context.variables.get(path[: field.start()])
        if beginning is not None:
            return _field_of(beginning, path[field.start() :])
    return None


def _field_of(expression: str, fields: str) -> Variable:
    """The fields of an expression: `a.0` becomes `a[0]`, and a name with a hyphen goes into brackets."""
    is_path = re.fullmatch(r"[\w.\[\]\"-]+", expression) is not None
    whole = expression if is_path else f"({expression})"
    conditions: list[str] = []
    for field in _FIELDS.findall(fields):
        name = field.removeprefix(".").strip("[]")
        # A text, or the null of a step that was skipped, has no fields.
        conditions.append(f"type({whole}) == {'list' if name.isdigit() else 'map'}")
        if name.isdigit():
            conditions.append(f"size({whole}) > {name}")
            whole = f"{whole}[{name}]"
        elif is_field(name):
            whole = f"{whole}.{name}"
            conditions.append(f"has({whole})")
        else:
            conditions.append(f'"{name}" in {whole}')
            whole = f'{whole}["{name}"]'
    return Variable(whole, " && ".join(conditions))


def translate_text(node: Scalar, context: Context) -> str:
    """Translate a text that is not a shell script. Warn of unknown variables."""
    refuse_unavailable(node, context)
    warn_of_unknown(node, context)
    return fill_in(node.text, context)


def text_at(form: Fields, key: str, context: Context) -> Scalar:
    """The translated text at a key, as a node at its place."""
    node = form.at(key)
    assert isinstance(node, Scalar)
    return scalar(translate_text(node, context), node)


def warn_of_unknown(
    node: Scalar,
    context: Context,
    own: frozenset[str] = frozenset(),
    *,
    is_script: bool = False,
) -> None:
    """Warn of unknown variables: of all with a dot, and of a plain name that looks like a known one.

    A plain name may be an environment variable. In a script it may be one of its `own`, and one with a dot is refused.
    """
    for match in REFERENCE.finditer(node.text):
        path = match["path"] or ""
        if not path or path in own or path.isdigit() or match["default"] is not None:
            continue
        if find_variable(path, context) or find_env_variable(path, context):
            continue
        hint = unknown_hint(path, context)
        if (hint and not path.isupper()) if "." not in path else not is_script:
            message = f"'{match.group()}' is not a known variable here and is left as written"
            context.source.warn_in("unknown_name", message, node, match.start(), len(match.group()), hint=hint)


def unknown_hint(path: str, context: Context) -> str:
    """A hint about an unknown variable."""
    if path in ("shell.output", "claude.output", "last.output"):
        return "no previous step sets it"
    roots = {variable.partition(".")[0] for variable in context.variables}
    return did_you_mean(path, context.variables) or did_you_mean(path.partition(".")[0], roots)


def fill_in(template: str, context: Context) -> str:
    """Replace known variables by expressions, and leave everything else as written."""
    return replace_references(template, literal, lambda match: _outside_shell(match, context))


def leading_value(template: str, context: Context) -> str:
    """The expression of the variable that a text begins with; "" if it begins otherwise."""
    match = REFERENCE.match(template)
    filled = _outside_shell(match, context) if match else ""
    return filled[2:-1] if filled.startswith("${") else ""


def replace_references(template: str, between: Callable[[str], str], each: Callable[[re.Match[str]], str]) -> str:
    """Replace each reference with `each`, and the text between references with `between`."""
    pieces, position = [], 0
    for match in REFERENCE.finditer(template):
        pieces += [between(template[position : match.start()]), each(match)]
        position = match.end()
    return "".join([*pieces, between(template[position:])])


def _outside_shell(match: re.Match[str], context: Context) -> str:
    path, default = match["path"] or match["bare"], match["default"]
    found = find_variable(path, context) or find_env_variable(path, context)
    if found is None:
        return literal(match.group() if default is None else default)
    if is_constant(found.expression):
        return found.expression
    return f"${{{found.expression if default is None else with_default(found, default)}}}"


def is_constant(expression: str) -> bool:
    """Whether the expression is inserted as it is: in a shell, `${2}` would be an argument."""
    return expression.isdigit() or expression in ("true", "false")


def find_env_variable(path: str, context: Context) -> Variable | None:
    """An environment variable: one that the workflow sets, or any with the prefix `env.`."""
    name = path.removeprefix("env.")
    if name in context.env:
        return Variable(context.env[name])
    return Variable(path, f"has({path})") if path.startswith("env.") else None


def is_condition(expression: str) -> bool:
    """Whether a captured variable is always true or false."""
    return _CONDITION.fullmatch(expression) is not None


def with_default(found: Variable, default: str) -> str:
    """The expression, or a default if it has no value."""
    expression, otherwise = found.expression, quoted(default)
    if is_condition(expression):
        return expression
    if found.exists_when:
        return f"{found.exists_when} && {expression} != null && {expression} != '' ? {expression} : {otherwise}"
    return f"{expression} == null || {expression} == '' ? {otherwise} : {expression}"


def refuse_unavailable(node: Scalar, context: Context) -> None:
    """Refuse variables that Prodigy computes while it fills in a text, and those that are not available.

    An unknown filter is a warning: Prodigy leaves it as written.
    """
    for found in _MODIFIED.finditer(node.text):
        message = f"'{found.group()}' has a filter that Prodigy does not know (only 'default'), and is left as written"
        hint = "compute it in a shell step with 'capture: NAME' and write ${NAME}"
        context.source.warn_in("prodigy", message, node, found.start(), len(found.group()), hint=hint)
    for pattern, is_kept, why, hint in _UNAVAILABLE:
        for found in pattern.finditer(node.text):
            if not is_kept(found, context):
                message = f"'{found.group()}' {why}"
                raise context.source.refuse_in("prodigy", message, node, found.start(), len(found.group()), hint=hint)


_UNAVAILABLE: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Context], bool], str, str], ...] = (
    (
        _COMPUTED,
        lambda found, context: False,
        "is computed by Prodigy while it fills in the text, which is not supported",
        "print the value in a shell step with 'capture: NAME' and write ${NAME}",
    ),
    (
        _GIT_CONTEXT,
        lambda found, context: found.group()[2:-1] in context.variables,
        "is only available in the action and the 'when' of a step, not in a handler",
        "run 'git diff --name-only HEAD~1' in a shell step with 'capture: NAME' and write ${NAME}",
    ),
)


def mentions(node: Node | None, words: re.Pattern[str]) -> bool:
    """Whether any text in `node` contains `words`."""
    return any(words.search(each.text) for each in scalars(node))


# -- captures --------------------------------------------------------------------------------------------------------


# Merge stderr into stdout; swap the two.
_MERGE_STREAMS = "exec 2>&1\n"
_SWAP_STREAMS = "exec 3>&1 1>&2 2>&3 3>&-\n"
_FORMATS = {"json": "json", "number": "json", "lines": "lines"}


def redirection(form: Fields) -> str:
    """Shell code before the script that makes the requested stream its output."""
    streams = form.get("capture_streams")
    if isinstance(streams, Fields):
        has_output, has_errors = streams.get("stdout", True), streams.get("stderr", False)
        streams = "both" if has_output and has_errors else "stderr" if has_errors else "stdout"
    return {"both": _MERGE_STREAMS, "stderr": _SWAP_STREAMS}.get(streams or "", "")


def capture_key(form: Fields, kind: str) -> dict[str, Any]:
    """The key `capture`: how the output is parsed. The answer of an agent is always an object."""
    found = _FORMATS.get(form.get("capture_format", "string"))
    return {"capture": found} if found and kind != "claude" else {}


def must_answer_json(form: Fields | None) -> bool:
    """Whether the agent must answer with JSON."""
    return form is not None and form.get("capture_format") in ("json", "number")


def agent_answer(output: str, field: str = "content") -> str:
    """The answer of an agent. If a handler recovered the step, the output is that of the handler."""
    return f"(type({output}) == map && has({output}.{field}) ? {output}.{field} : {output})"


def context_after(
    form: Fields | None, kind: str, slot: Slot, context: Context, *, is_certain: bool, streams: str = ""
) -> Context:
    """The context after a step: its output is in Prodigy's variables.

    `is_certain`: later commands run only if the step's own command succeeded. `streams` is the output of the command
    that reads what the step printed, also if it failed; see `keep_streams`.
    """
    if not slot.output:
        return context
    value = _captured_value(form, kind, slot.output, is_certain=is_certain)
    if streams and not is_certain and not is_condition(value):
        value = f"({slot.output} != null ? {value} : {streams}.stdout)"
    variables = {"last.output": value, "CAPTURED_OUTPUT": value}
    if kind in ("shell", "claude"):
        variables[f"{kind}.output"] = value
    for name in captured_names(form):
        variables |= {name: value, f"{name}.stdout": value}
        variables |= _outcome_variables(name, slot, is_certain=is_certain)
        if streams:
            variables |= {f"{name}.{field}": f"{streams}.{field}" for field in ("stdout", "stderr", "duration")}
            if not slot.name:
                variables[f"{name}.exit_code"] = f"({slot.output} != null ? 0 : {streams}.exit_code)"
        elif form is not None and redirection(form):
            variables[f"{name}.stderr"] = value
    return context.with_variables(variables)


def keep_streams(script: str, key: str) -> str:
    """A script that also writes what it prints to files, for `read_streams`. Its logs and exit code are the same."""
    return f"""\
_kept="$MULLIGAN_OUTPUT_DIR/{key}${{MULLIGAN_ITEM:+-$MULLIGAN_ITEM}}"
rm -f "$_kept".* && mkfifo "$_kept.pipe" && : > "$_kept.start" || exit 1
tee "$_kept.err" < "$_kept.pipe" >&2 &
{{
(
{script}
) 2> "$_kept.pipe"
echo $? > "$_kept.code"
}} | tee "$_kept.out"
wait
rm -f "$_kept.pipe"
exit "$(cat "$_kept.code")\""""


def captured_names(form: Fields | None) -> list[str]:
    """The variables that hold the output of a step."""
    if form is None:
        return []
    named = [form.get("capture"), form.get("capture_output")]
    return [name for name in named if isinstance(name, str)]


def _captured_value(form: Fields | None, kind: str, output: str, *, is_certain: bool) -> str:
    wanted = "string" if form is None else form.get("capture_format", "string")
    answer = output
    if kind == "claude":
        field = "json" if must_answer_json(form) else "content"
        answer = f"{output}.{field}" if is_certain else agent_answer(output, field)
    if wanted == "boolean":
        is_there = "" if is_certain else f"{output} != null && "
        return f"({is_there}{answer}.trim().lowerAscii() in ['true', 'yes', '1', 'on'])"
    if wanted == "lines" and kind == "claude":
        return f"{answer}.split('\\n')"
    return answer


def _outcome_variables(name: str, slot: Slot, *, is_certain: bool) -> dict[str, str]:
    """Whether the step succeeded, and its exit code. Of an item's command we only know whether it had an output."""
    if is_certain:
        return {f"{name}.success": "true", f"{name}.exit_code": "0"}
    holds, otherwise = f"{slot.output} != null", "1"
    if slot.name:
        step = step_path(slot.name)
        holds, otherwise = f"{step}.status == 'completed'", f"{step}.failure != null ? {step}.failure.exit_code : null"
    return {f"{name}.success": f"({holds})", f"{name}.exit_code": f"({holds} ? 0 : {otherwise})"}
