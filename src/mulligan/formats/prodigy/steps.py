"""Prodigy's steps as commands, one after the other; each passes what it captured to the next."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any

import msgspec

from mulligan.formats.expressions import quoted
from mulligan.formats.prodigy import actions
from mulligan.formats.prodigy.actions import EVALUATED_REMARK, SCRIPT_VARIABLE, shell_action
from mulligan.formats.prodigy.checks import translate_checks
from mulligan.formats.prodigy.conditions import translate_condition
from mulligan.formats.prodigy.context import Context, Slot, StepSlots, TranslatedSteps, added_step
from mulligan.formats.prodigy.failures import (
    Handler,
    exit_code_keys,
    translate_commands,
    translate_handler,
    translate_retry,
)
from mulligan.formats.prodigy.forms import (
    as_mapping,
    join_steps,
    prompt_title,
    read_record,
    require_keys,
    script_title,
    with_slash,
)
from mulligan.formats.prodigy.git_variables import (
    after_tracking,
    look_up_changes,
    reads_changes,
    track_for_next,
)
from mulligan.formats.prodigy.keys import FOREACH, KINDS, STEP, TEST, WRITE_FILE, format_seconds
from mulligan.formats.prodigy.repository import (
    commit_required_at,
    find_output_files,
    head_file,
    remember_head,
    remember_head_of_item,
)
from mulligan.formats.prodigy.variables import (
    capture_key,
    captured_names,
    context_after,
    keep_streams,
    leading_value,
    mentions,
    must_answer_json,
    redirection,
    translate_text,
)
from mulligan.formats.translation import literal_value, made, scalar, sequence
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source, describe, plain
from mulligan.language.text.suggestions import quote_list

# -- foreach ---------------------------------------------------------------------------------------------------------


PARALLEL_DEFAULT = 10


def _loop_parts(form: Fields, source: Source) -> tuple[Fields, Node]:
    """The keys of a loop, which may be beside `foreach` or inside it, and its list."""
    own, listed = form, form.at("foreach")
    if isinstance(listed, Mapping):
        own = read_record(FOREACH, listed, "'foreach'", source)
        found = [key for key in ("foreach", "input", "items") if key in own]
        if len(found) != 1:
            both = f"has both '{found[0]}' and '{found[1]}', but only one is allowed" if found else "has no list"
            raise source.refuse("prodigy", f"'foreach' {both}", own.node, hint="add 'items: […]'")
        listed = own.at(found[0])
    if "do" not in own:
        raise source.refuse("missing_key", "'foreach' has no 'do'", own.node, hint="add 'do: […]'")
    return own, listed


UNROLLED_MAX = 100
_UNROLLED_KEYS = frozenset("foreach do parallel max_items continue_on_error id name description".split())


def unroll_foreach(form: Fields, context: Context) -> TranslatedSteps:
    """Translate a `foreach` in an item or a handler: there its steps are repeated, one after the other.

    So the list must be in the file, and the steps have all keys that the loop would have.
    """
    source = context.source
    own, listed = _loop_parts(form, source)
    if not isinstance(listed, Sequence):
        message = "in an item or a handler, 'foreach' needs a list of values, not a command"
        raise source.refuse("prodigy", message, listed, hint="loop in the shell, or move it to a separate step")
    stray = next((key for key in form.values if key not in _UNROLLED_KEYS), None)
    if stray is not None:
        message = f"in an item or a handler, 'foreach' cannot have '{stray}'"
        raise source.refuse("prodigy", message, form.key(stray), hint="move it to the steps in 'do'")
    items = listed.items[: own.get("max_items")]
    if len(items) > UNROLLED_MAX:
        message = f"in an item or a handler, 'foreach' can have at most {UNROLLED_MAX} values"
        raise source.refuse("prodigy", message, listed, hint="loop in the shell, or move it to a separate step")
    do = own.at("do")
    found: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        value = plain(item)
        fields = {f"item.{name}": each for name, each in value.items()} if isinstance(value, dict) else {}
        known = {name: _known_value(each) for name, each in {"item": value, **fields}.items()}
        inside = context.with_variables({**known, "index": str(index), "total": str(len(items))})
        if context.is_nested:
            commands = translate_commands(do, inside)
        else:
            commands = translate_steps(_as_list(do), inside).commands
        allowed = {"continue_on_error": True} if own.get("continue_on_error") else {}
        found += [{**command, **allowed} for command in commands]
    return TranslatedSteps(found, context)


def _as_list(steps: Node) -> Sequence:
    return steps if isinstance(steps, Sequence) else sequence([steps], steps)


def _known_value(value: Any) -> str:
    """A value as an expression. It reads a name of ours: in a script, a literal alone is left to the shell."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"(run.id == null ? '' : {quoted(text)})"


def _map_source(listed: Node, slot: Slot, context: Context) -> tuple[list[dict[str, Any]], Any, str, dict[str, Any]]:
    """The step that lists the items, if any; `over` of the map; the number of items; further keys of the map."""
    if isinstance(listed, Sequence):
        # Literal values: nothing is filled in.
        items = literal_value(plain(listed))
        return [], made(items, listed), str(len(items)), {}
    if not isinstance(listed, Scalar) or not isinstance(listed.value, str):
        message = f"'foreach' is {describe(listed)}, a command or a list is expected"
        raise context.source.refuse("type", message, listed)
    assert isinstance(context.slots, StepSlots)
    lister = context.slots.take(f"{slot.name}_list")
    step = {"step": lister.name, **shell_action(listed, context), "capture": "lines", "cwd": context.cwd}
    over = made(f"${{{lister.output}}}", listed)
    return [step], over, f"size({lister.output}.filter(line, line.trim() != ''))", {"filter": "item.trim() != ''"}


# -- steps -----------------------------------------------------------------------------------------------------------


# A handler reads the output of its command by one of these.
_READS_OUTPUT = r"\$\{(?:shell|test|last)\.output|\$\{?CAPTURED_OUTPUT\b"
_REMOVED = {
    "analyze": "Prodigy has removed 'analyze': give the analysis to the agent as a prompt",
    "goal_seek": "Prodigy has removed 'goal_seek': use 'validate' with 'threshold' and 'on_incomplete'",
    "handler": "'handler' is code inside Prodigy: run it as a command",
}


def translate_steps(steps: Sequence, context: Context) -> TranslatedSteps:
    """Translate a list of steps. An `on_failure:` or `validate:` alone belongs to the previous step."""
    found: list[dict[str, Any]] = []
    whole = join_steps(steps, context.source)
    for step, following in zip_longest(whole, whole[1:]):
        with context.source.noting:
            translated = translate_step(step, track_for_next(context, following))
            found += translated.commands
            context = translated.context
    return TranslatedSteps(found, context)


def translate_step(step: Node, context: Context) -> TranslatedSteps:
    """Translate one step, in any of its forms, to commands (most often one)."""
    if isinstance(step, Scalar) and isinstance(step.value, str) and step.value.strip():
        if not context.tracks_changes:
            return _translate_text_step(step, context)
        step = as_mapping(step)
    form: Fields = STEP.read(step, "a step", context.source)
    for key, why in _REMOVED.items():
        if key in form:
            message, _, hint = why.partition(": ")
            raise context.source.refuse("prodigy", message, form.key(key), hint=hint)
    kind = _step_kind(form, context.source)
    require_keys(form, kind, source=context.source)
    if kind == "foreach" and not context.is_in_steps:
        return unroll_foreach(form, context)
    return _StepTranslation(form, kind, context).translated()


def _translate_text_step(step: Scalar, context: Context) -> TranslatedSteps:
    """Translate a text step: a Claude command; in a handler a shell command, unless it begins with a slash."""
    if context.is_nested:
        return TranslatedSteps([_with_folder(actions.command_action(step, context), context)], context)
    slot = context.slots.take(prompt_title(step.text))
    keys = {"step": slot.name or None, **actions.agent_action(scalar(with_slash(step.text), step), context)}
    return TranslatedSteps([_with_folder(keys, context)], context_after(None, "claude", slot, context, is_certain=True))


def _with_folder(keys: dict[str, Any], context: Context) -> dict[str, Any]:
    """The keys of a command with its working folder. A handler's command has the folder of its step."""
    if "cwd" not in keys and not context.is_nested:
        keys["cwd"] = context.cwd
    return {key: value for key, value in keys.items() if value is not None}


def _step_kind(form: Fields, source: Source) -> str:
    kinds = [kind for kind in KINDS if kind in form.node.entries]
    if len(kinds) > 1:
        message = f"a step has one action, but this one has {quote_list(kinds, 'and')}"
        raise source.refuse("prodigy", message, form.key(kinds[1]), hint="split it into two steps")
    if kinds:
        return kinds[0]
    if isinstance(form.get("name"), Scalar) and form["name"].text.strip():
        return "name"
    if form.has_unknown_keys:
        raise Refusal(source.problems[-1])  # an unknown key was meant as the action, which is noted
    message, hint = "the step has no action", f"add one of {quote_list(KINDS[:5])}"
    raise source.refuse("prodigy", message, form.node, hint=hint)


_IGNORED = (
    ("analysis", "'analysis' is ignored: Prodigy has removed it"),
    ("clear_env", "'clear_env' is ignored: a step has the environment of the worker"),
    ("options", "'options' is ignored: write the options into the arguments"),
)


# With one of these keys, later steps may run although the step's own command did not succeed.
_UNCERTAIN_KEYS = frozenset(
    "when on_failure on_exit_code continue_on_error allow_failure fail_workflow metadata retry test".split()
)


class _StepTranslation:
    """The translation of one step."""

    def __init__(self, form: Fields, kind: str, context: Context) -> None:
        self.form = form
        self.kind = {"test": "shell", "command": "claude", "name": "claude"}.get(kind, kind)
        self.written_as = kind
        self.context = context
        titles = [node.text.strip() for key in ("id", "name") if isinstance(node := form.node.get(key), Scalar)]
        self.own_title = next(filter(None, titles), "")
        self.title = self.own_title or self._derived_title()
        self._refuse_unread()
        # What a step or a check before and after it remembers HEAD by.
        self.at = commit_required_at(form) or form.node
        self.before: list[dict[str, Any]] = []
        self._remember()
        self.seen = self._looked()
        self.slot: Slot = context.slots.take(self.title)
        self.handled = self._handled()
        self.keeps_streams = self._are_streams_read()
        self.action = self._action()

    @property
    def metadata(self) -> dict[str, Any]:
        found = self.form.get("metadata")
        return found.values if isinstance(found, Fields) else {}

    def _derived_title(self) -> str:
        """A title from the first words of the action, for a step without a name."""
        node = self.form.node.get(self.written_as)
        if not isinstance(node, Scalar) or self.kind not in ("claude", "shell"):
            return self.kind
        return prompt_title(node.text) if self.kind == "claude" else script_title(node.text)

    def _remember(self) -> None:
        is_asked = (self.context.tracks_changes or "outputs" in self.form) and not self.context.is_nested
        if self.at is self.form.node and not is_asked:
            return
        slot = self.context.slots.take(f"{self.title}_before")
        is_shell = slot.name or self.context.is_nested
        remember = remember_head(self.at) if is_shell else remember_head_of_item(self.at, slot)
        self.before.append(_with_folder({"step": slot.name or None, **remember}, self.context))

    def _looked(self) -> Context:
        """The context of the action and of `when`. Changes that they read are looked up by a command before it."""
        asked = [node for node in map(self.form.node.get, (self.written_as, "when")) if node is not None]
        own = {**self.metadata.get("env", {}), **self.form.get("env", {})}
        computed = {name: text for name, text in self.context.env_commands.items() if name not in own}
        context = msgspec.structs.replace(self.context, env_commands=computed)
        if not asked or self.context.is_nested:
            return context
        looks, seen = look_up_changes(asked, self.title, context)
        self.before += [_with_folder(look, self.context) for look in looks]
        return seen

    def _refuse_unread(self) -> None:
        """Refuse a capture that no other command can read."""
        named = [key for key in ("capture", "capture_output") if isinstance(self.form.get(key), str)]
        if named and self.context.is_nested:
            message = "no other command can read what a command of a handler prints"
            hint = "write 'capture: {NAME: output}' beside the handler's 'commands' to keep the output of the last one"
            raise self.context.source.refuse("prodigy", message, self.form.key(named[0]), hint=hint)

    def translated(self) -> TranslatedSteps:
        handled = self.handled
        keys: dict[str, Any] = {
            "step": self.slot.name or None,
            "description": self._description(),
            "when": self._when(),
            **self.action,
            **capture_key(self.form, self.kind),
            **self._limits(),
            "validate": translate_checks(self.form, self.kind, self.title, self.context),
            "on_success": self._on_success(),
            "on_failure": handled.on_failure,
        }
        if handled.continue_on_error or self._may_fail():
            keys["continue_on_error"] = True
        keys |= exit_code_keys(self.form, keys, self.context)
        around = {"when": keys["when"]} if keys["when"] else {}
        streams = self._streams()
        context = context_after(
            self.form,
            self.kind,
            self.slot,
            self.context,
            # Whether later steps run only if the step's own command succeeded.
            is_certain=_UNCERTAIN_KEYS.isdisjoint(self.form.node.entries),
            streams=streams[1].output if streams else "",
        )
        context = after_tracking(context, head_file(self.at))
        if output := self.slot.output:
            # Null if the handler did not run.
            captured = {name: f"(type({output}) == map ? {output}.{name} : null)" for name in handled.captured}
            context = context.with_variables(captured)
        files, context = find_output_files(self.form, self.title, self.at, context)
        before = self.before if reads_changes(self.form.node.get("when")) else [{**b, **around} for b in self.before]
        read = [streams[0]] if streams else []
        behind = [_with_folder({**each, **around}, self.context) for each in (*read, *files)]
        return TranslatedSteps([*before, self._remarked(_with_folder(keys, self.context)), *behind], context)

    def _description(self) -> str | None:
        node = self.form.node.get("description")
        if isinstance(node, Scalar) and node.text.strip():
            return node.text if self.slot.name else None
        is_said = not self.slot.name or self.own_title in (self.slot.name, "")
        return None if is_said else self.own_title

    def _when(self) -> Any:
        if "when" not in self.form:
            return None
        node = self.form.at("when")
        if self.context.is_nested:
            if self.kind == "shell":
                return None  # tested by the script
            message = "in a handler, only a shell command can have 'when'"
            hint = "write a handler for each case, or test the condition in a shell command before it"
            raise self.context.source.refuse("prodigy", message, self.form.key("when"), hint=hint)
        return made(translate_condition(node, self.seen), node)

    # -- the action

    def _action(self) -> dict[str, Any]:
        if self.kind == "foreach":
            return self._loop()
        if self.kind == "write_file":
            form = read_record(WRITE_FILE, self.form.at("write_file"), "'write_file'", self.context.source)
            return actions.write_action(form, self.seen)
        return self._shell() if self.kind == "shell" else self._claude()

    def _claude(self) -> dict[str, Any]:
        node = self.form.node.entries[self.written_as][1]
        assert isinstance(node, Scalar)
        if self.written_as != "claude":
            node = scalar(with_slash(node.text), node)
        asked = must_answer_json(self.form)
        return actions.agent_action(node, self.seen, self._arguments(), has_to_answer_json=asked)

    def _arguments(self) -> str:
        words = [translate_text(each, self.seen) for each in self.form.get("args", ())]
        return "".join(f" {word}" for word in words)

    def _shell(self) -> dict[str, Any]:
        node = self.form.at(self.written_as)
        if isinstance(node, Mapping):
            node = read_record(TEST, node, "'test'", self.context.source)["command"]
        assert isinstance(node, Scalar)
        action = actions.shell_action(node, self.seen)
        found = action["shell"]
        assert isinstance(found, Scalar)
        script = redirection(self.form) + found.text
        if self._is_output_read():
            # Print the output to stderr as well if it fails, so that its handler can read it.
            script = (
                f"_said=$(\n{script}\n)\n_code=$?\nprintf '%s\\n' \"$_said\"\n"
                "[ $_code -eq 0 ] || printf '%s\\n' \"$_said\" >&2\nexit $_code"
            )
        if self.keeps_streams:
            script = keep_streams(script, self._streams_key())
        if self.context.is_nested and "when" in self.form:
            condition = translate_condition(self.form.at("when"), self.context)
            script = f'[ "$PRODIGY_WHEN" = true ] || exit 0\n{script}'
            env = {**action.get("env", {}), "PRODIGY_WHEN": made(f"${{{condition}}}", node)}
            action = {**action, "env": env}
        return {**action, "shell": found if script == found.text else made(script, node)}

    def _is_output_read(self) -> bool:
        """Whether a handler of its failure reads its output."""
        own = "|".join(map(re.escape, captured_names(self.form)))
        pattern = re.compile(rf"{_READS_OUTPUT}|\$\{{?(?:{own})\b" if own else _READS_OUTPUT)
        return mentions(self._failing(), pattern) or mentions(self.form.node.get("on_exit_code"), pattern)

    def _are_streams_read(self) -> bool:
        """Whether a later command reads stderr, the duration, or what the command printed although it failed."""
        names = "|".join(map(re.escape, captured_names(self.form)))
        if not names or self.kind != "shell" or self.context.is_nested:
            return False
        may_fail = self._may_fail() or self.handled.continue_on_error
        fields = rf"\$\{{(?:{names})\.(?:stderr|duration)\b"
        known = "success|exit_code" if self.slot.name else "success"
        pattern = rf"{fields}|\$\{{?(?:{names})\b(?!\.(?:{known})\b)" if may_fail else fields
        return re.search(pattern, self.context.source.text) is not None

    def _streams_key(self) -> str:
        return f"prodigy-printed-{self.form.node.line + 1}-{self.form.node.column + 1}"

    def _streams(self) -> tuple[dict[str, Any], Slot] | None:
        """The command after the step that reads what it printed; and its slot."""
        if not self.keeps_streams:
            return None
        slot = self.context.slots.take(f"{self.title}_printed")
        args = {"key": self._streams_key(), "item": None if slot.name else "${index}"}
        return added_step(slot, "read_streams", args), slot

    def _loop(self) -> dict[str, Any]:
        """A map. Its keys may be beside `foreach` or inside it."""
        own, listed = _loop_parts(self.form, self.context.source)
        before, over, total, extra = _map_source(listed, self.slot, self.context)
        self.before += before
        parallel, most = own.get("parallel", False), own.get("max_items")
        if isinstance(parallel, bool):
            parallel = PARALLEL_DEFAULT if parallel else 1
        keys = {
            "over": over,
            "max_parallel": parallel,
            "max_items": most,
            "on_item_failure": "collect" if own.get("continue_on_error") else "stop",
            **extra,
        }
        if most is not None:
            total = str(min(int(total), most)) if total.isdigit() else f"({total} < {most} ? {total} : {most})"
        inner = self.context.of_item({"item": "item", "index": "index", "total": total})
        return {"map": keys, "do": translate_steps(_as_list(own.at("do")), inner).commands}

    # -- limits and environment

    def _limits(self) -> dict[str, Any]:
        limits: dict[str, Any] = {"env": self._env(), "cwd": self._folder()}
        timeout = self.form.get("timeout", self.metadata.get("timeout"))
        if timeout is not None:
            limits["timeout"] = made(format_seconds(timeout), self.form.node.get("timeout") or self.form.node)
        if "retry" in self.form:
            limits["retry"] = made(translate_retry(self.form["retry"], self.context.source), self.form.at("retry"))
        elif self.metadata.get("retries"):
            limits["retry"] = self.metadata["retries"]
        return {key: value for key, value in limits.items() if value is not None}

    def _env(self) -> dict[str, Any] | None:
        nodes: dict[str, Node] = {**self.metadata.get("env", {}), **self.form.get("env", {})}
        env = {name: self._text(node) for name, node in nodes.items()}
        return {**env, **self.action.get("env", {})} or None

    def _text(self, node: Node) -> Node:
        assert isinstance(node, Scalar)
        return made(translate_text(node, self.context), node) if node.value is not None else node

    def _folder(self) -> Node | None:
        if "working_dir" not in self.form:
            return None
        node = self.form["working_dir"]
        folder = translate_text(node, self.context)
        if self.context.cwd is None or folder.startswith(("/", "~")):
            return made(folder, node)
        value = leading_value(node.text, self.context)
        if not value:
            return made(f"{self.context.cwd}/{folder}", node)
        # An absolute value stays as it is. Any other is below the worktree, never in the checkout.
        root = self.context.cwd.removeprefix("${any_path(").removesuffix(")}")
        is_absolute = f"string({value}).startsWith('/')"
        return made(f"${{any_path({is_absolute} ? '' : {root} + '/')}}{folder}", node)

    # -- what follows

    def _failing(self) -> Node | None:
        """The `on_failure` of the step, or of its `test`."""
        node = self.form.node.get("on_failure")
        inner = self.form.node.get("test")
        return inner.get("on_failure") if node is None and isinstance(inner, Mapping) else node

    def _handled(self) -> Handler:
        node = self._failing()
        own = Handler() if node is None else translate_handler(node, self.context, captured_names(self.form))
        # The `on_failure` of `retry` applies when no attempt is left.
        fallback = self.form["retry"].get("on_failure") if "retry" in self.form else None
        if own.on_failure:
            return own
        if fallback == "continue":
            return Handler(continue_on_error=True)
        if not isinstance(fallback, Fields) or "fallback" not in fallback or "command" not in fallback["fallback"]:
            return own
        commands = self.context.nested().commands_of(fallback["fallback"]["command"])
        return Handler({"strategy": "fallback", "commands": commands}, own.continue_on_error)

    def _may_fail(self) -> bool:
        is_map = self.kind == "foreach"
        is_allowed = self.form.get("allow_failure") or self.form.get("fail_workflow") is False
        return bool(
            is_allowed or self.metadata.get("continue_on_error") or (self.form.get("continue_on_error") and not is_map)
        )

    def _on_success(self) -> list[dict[str, Any]] | None:
        node = self.form.node.get("on_success")
        if node is None:
            return None
        inner = self.context.nested(names=self.context.names | {"output"}, is_regular=False)
        given = "output.content" if self.kind == "claude" else "output"
        variables = {"last.output": given, f"{self.kind}.output": given}
        return translate_commands(node, inner.with_variables(variables))

    def _remarked(self, keys: dict[str, Any]) -> dict[str, Any]:
        """The keys, after warnings about what is ignored and a remark if values become code."""
        above = next((value for value in self.action.values() if isinstance(value, Scalar | Mapping)), None)
        for key, why in _IGNORED:
            if self.form.get(key, self.metadata.get(key)) not in (None, False):
                at = self.form.key(key) if key in self.form else self.form.key("metadata")
                self.context.translation.warn("prodigy", why, at, above=above)
        config = self.form.get("commit_config")
        if config is not None and config.get("squash"):
            message = "'squash' is ignored: the commits of a step are kept as they are"
            self.context.source.warn("prodigy", message, config.at("squash"))
        env = keys.get("env")
        if isinstance(env, dict) and SCRIPT_VARIABLE in env:
            self.context.translation.remark(keys["shell"], EVALUATED_REMARK)
        return keys
