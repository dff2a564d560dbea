"""Steps of Prodigy's into commands of ours: one after the other, each telling the next what it gave."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from mulligan.formats.prodigy import actions
from mulligan.formats.prodigy.captures import after, answers_json, captured_format, captured_names, redirection
from mulligan.formats.prodigy.checks import checks
from mulligan.formats.prodigy.commits import remembering, required, warn_of_squash
from mulligan.formats.prodigy.durations import spelled
from mulligan.formats.prodigy.exits import exits
from mulligan.formats.prodigy.forms import require, sound
from mulligan.formats.prodigy.handlers import Handled, command_list, handler
from mulligan.formats.prodigy.joining import as_mapping, joined, slashed
from mulligan.formats.prodigy.keys import KINDS, STEP, TEST, WRITE_FILE
from mulligan.formats.prodigy.loops import loop
from mulligan.formats.prodigy.places import Place, Spot, Unread
from mulligan.formats.prodigy.retries import retry
from mulligan.formats.prodigy.shell_text import PUT_TOGETHER, SCRIPT_VARIABLE
from mulligan.formats.prodigy.titles import of_prompt, of_script
from mulligan.formats.prodigy.variables import mentions, text
from mulligan.formats.prodigy.watching import found_files, looking, watched, watching
from mulligan.formats.prodigy.whens import condition
from mulligan.formats.translation import Translation, made
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence
from mulligan.language.shapes import Fields
from mulligan.language.suggestions import quote_list

# A handler that reads what its command printed.
_READS_OUTPUT = r"\$\{(?:shell|test|last)\.output"
_REMOVED = {
    "analyze": "Prodigy has removed 'analyze': give the analysis to the agent as a prompt",
    "goal_seek": "Prodigy has removed 'goal_seek': use 'validate' with 'threshold' and 'on_incomplete'",
    "handler": "'handler' is code inside Prodigy: run it as a command",
}


class Translated(NamedTuple):
    """What a step of Prodigy's becomes: commands of ours in their order, and what is known after them.

    In a list of steps each command begins with its `step`; in an item they are the entries of `do`.
    """

    commands: list[dict[str, Any]]
    place: Place


def commands(steps: Sequence, place: Place, translation: Translation) -> Translated:
    """A list of Prodigy's steps. An `on_failure:` or `validate:` that stands alone belongs to the step before it."""
    found: list[dict[str, Any]] = []
    whole = joined(steps, translation)
    for step, following in zip_longest(whole, whole[1:]):
        with translation.source.noting:
            translated = command(step, watching(place, following), translation)
            found += translated.commands
            place = translated.place
    return Translated(found, place)


def command(step: Node, place: Place, translation: Translation) -> Translated:
    """One step of Prodigy's, in any of its forms, as commands of ours (most often one)."""
    if isinstance(step, Scalar) and isinstance(step.value, str) and step.value.strip():
        if not place.is_watched:
            return _worded(step, place, translation)
        step = as_mapping(step)
    form: Fields = STEP.read(step, "a step", translation.source)
    _refuse_removed(form, translation)
    kind = _kind(form, translation)
    require(form, kind, translation=translation)
    return _Draft(form, kind, place, translation).translated()


def _worded(step: Scalar, place: Place, translation: Translation) -> Translated:
    """A step that is a text: a Claude command; in a handler a shell command, unless it begins with a slash."""
    if isinstance(place.row, Unread):
        return Translated([_settled(actions.either(step, place, translation), place)], place)
    prompt = made(slashed(step.text), step)
    assert isinstance(prompt, Scalar)
    spot = place.row.take(of_prompt(step.text))
    keys = {"step": spot.name or None, **actions.agent(prompt, place, translation)}
    return Translated([_settled(keys, place)], after(None, "claude", spot, place, is_certain=True))


def _settled(keys: dict[str, Any], place: Place) -> dict[str, Any]:
    """The keys of a command with the folder that holds where it stands. A handler's command has its step's."""
    if "cwd" not in keys and not isinstance(place.row, Unread):
        keys["cwd"] = place.cwd
    return {key: value for key, value in keys.items() if value is not None}


def _refuse_removed(form: Fields, translation: Translation) -> None:
    for key, why in _REMOVED.items():
        if key in form:
            message, _, hint = why.partition(": ")
            raise translation.source.refuse("prodigy", message, form.key(key), hint=hint)


def _kind(form: Fields, translation: Translation) -> str:
    kinds = [kind for kind in KINDS if kind in form.node.entries]
    if len(kinds) > 1:
        message = f"a step does one thing, and this one has {quote_list(kinds, 'and')}"
        raise translation.source.refuse("prodigy", message, form.key(kinds[1]), hint="make two steps of it")
    if kinds:
        return kinds[0]
    if isinstance(form.get("name"), Scalar) and form["name"].text.strip():
        return "name"
    message, hint = "the step does nothing", f"add one of {quote_list(KINDS[:5])}"
    raise translation.source.refuse("prodigy", message, form.node, hint=hint)


_UNHEARD = (
    ("analysis", "'analysis' is not honoured: Prodigy has removed it"),
    ("clear_env", "'clear_env' is not honoured: a step has the environment of the worker"),
    ("options", "'options' is not honoured: write them into the arguments"),
)


# With these a step may be behind the run without having done its work.
_DOUBTFUL = frozenset(
    "when on_failure on_exit_code continue_on_error allow_failure fail_workflow metadata retry test".split()
)


class _Draft:
    """One step on its way: what it says, where it stands, and what it is called there."""

    def __init__(self, form: Fields, kind: str, place: Place, translation: Translation) -> None:
        self.form = form
        self.kind = {"test": "shell", "command": "claude", "name": "claude"}.get(kind, kind)
        self.written_as = kind
        self.place = place
        self.translation = translation
        self.own_title = self._own_title()
        self.title = self.own_title or self._told_title()
        self._refuse_unread()
        self.before: list[dict[str, Any]] = []
        self._remember()
        self.seen = self._looked()
        self.spot: Spot = place.row.take(self.title)
        self.action = self._action()

    @property
    def metadata(self) -> dict[str, Any]:
        found = self.form.get("metadata")
        return found.values if isinstance(found, Fields) else {}

    def _own_title(self) -> str:
        for key in ("id", "name"):
            node = self.form.node.get(key)
            if isinstance(node, Scalar) and node.text.strip():
                return node.text.strip()
        return ""

    def _told_title(self) -> str:
        """What it is called where nobody has given it a name: by the first words of what it does."""
        node = self.form.node.get(self.written_as)
        if not isinstance(node, Scalar) or self.kind not in ("claude", "shell"):
            return self.kind
        return of_prompt(node.text) if self.kind == "claude" else of_script(node.text)

    def _remember(self) -> None:
        is_asked = (self.place.is_watched or "outputs" in self.form) and not self._is_nested()
        at = required(self.form) or (self.form.node if is_asked else None)
        if at is None:
            return
        spot = self.place.row.take(f"{self.title}_before")
        self.before.append(_settled({"step": spot.name or None, **remembering(at)}, self.place))

    def _is_nested(self) -> bool:
        return isinstance(self.place.row, Unread)

    def _looked(self) -> Place:
        """The place of its action, which may ask what has changed: that is looked up before it."""
        asked = self.form.node.get(self.written_as)
        if asked is None or self._is_nested():
            return self.place
        looks, seen = looking(asked, self.title, self.place)
        self.before += [_settled(look, self.place) for look in looks]
        return seen

    def _refuse_unread(self) -> None:
        """Refuse to capture what no other command can read."""
        named = [key for key in ("capture", "capture_output") if isinstance(self.form.get(key), str)]
        if named and isinstance(self.place.row, Unread):
            message = "what a command of a handler prints is read by no other command"
            hint = "'capture: {NAME: output}' beside the handler's 'commands' keeps what the last one prints"
            raise self.translation.source.refuse("prodigy", message, self.form.key(named[0]), hint=hint)

    def translated(self) -> Translated:
        handled = self._handled()
        keys: dict[str, Any] = {
            "step": self.spot.name or None,
            "description": self._description(),
            "when": self._when(),
            **self.action,
            **captured_format(self.form, self.kind),
            **self._limits(),
            "validate": checks(self.form, self.kind, self.title, self.place, self.translation, _nested),
            "on_success": self._on_success(),
            "on_failure": handled.on_failure,
        }
        if handled.continue_on_error or self._may_fail():
            keys["continue_on_error"] = True
        keys |= exits(self.form, keys, self.place, self.translation, command)
        around = {"when": keys["when"]} if keys["when"] else {}
        place = after(self.form, self.kind, self.spot, self.place, is_certain=self._is_certain())
        place = watched(place, required(self.form) or self.form.node)
        place = place.knowing({name: _of_handler(name, self.spot) for name in handled.captured if self.spot.output})
        files, place = found_files(self.form, self.title, required(self.form) or self.form.node, place)
        before = [{**each, **around} for each in self.before]
        behind = [_settled({**each, **around}, self.place) for each in files]
        return Translated([*before, self._remarked(_settled(keys, self.place)), *behind], place)

    def _is_certain(self) -> bool:
        """Whether what comes after it runs only if its own command has done its work."""
        return not any(key in self.form.node.entries for key in _DOUBTFUL)

    def _description(self) -> str | None:
        said = self.form.node.get("description")
        if isinstance(said, Scalar) and said.text.strip():
            return said.text if self.spot.name else None
        is_said = not self.spot.name or self.own_title in (self.spot.name, "")
        return None if is_said else self.own_title

    def _when(self) -> Any:
        if "when" not in self.form:
            return None
        node = self.form.at("when")
        if isinstance(self.place.row, Unread):
            message = "a command of a handler has no 'when'"
            raise self.translation.source.refuse("prodigy", message, self.form.key("when"), hint="ask in the command")
        return made(condition(node, self.place, self.translation), node)

    # What it does

    def _action(self) -> dict[str, Any]:
        if self.kind == "foreach":
            return self._loop()
        if self.kind == "write_file":
            form = sound(WRITE_FILE, self.form.at("write_file"), "'write_file'", self.translation)
            return actions.write_file(form, self.seen, self.translation)
        return self._shell() if self.kind == "shell" else self._claude()

    def _claude(self) -> dict[str, Any]:
        node = self.form.node.entries[self.written_as][1]
        assert isinstance(node, Scalar)
        if self.written_as != "claude":
            command = made(slashed(node.text), node)
            assert isinstance(command, Scalar)
            node = command
        asked = answers_json(self.form)
        return actions.agent(node, self.seen, self.translation, self._arguments(), has_to_answer_json=asked)

    def _arguments(self) -> str:
        words = [text(each, self.seen, self.translation) for each in self.form.get("args", ())]
        return "".join(f" {word}" for word in words)

    def _shell(self) -> dict[str, Any]:
        node = self.form.at(self.written_as)
        if isinstance(node, Mapping):
            node = sound(TEST, node, "'test'", self.translation)["command"]
        assert isinstance(node, Scalar)
        action = actions.shell(node, self.seen, self.translation)
        found = action["shell"]
        assert isinstance(found, Scalar)
        script = redirection(self.form) + found.text
        if self._is_output_read():
            script = _telling(script)
        return {**action, "shell": found if script == found.text else made(script, node)}

    def _is_output_read(self) -> bool:
        """Whether what deals with its failure reads what it printed."""
        own = "|".join(map(re.escape, captured_names(self.form)))
        pattern = re.compile(rf"{_READS_OUTPUT}|\$\{{?(?:{own})\b" if own else _READS_OUTPUT)
        nodes = (self._failing(), self.form.node.get("on_exit_code"))
        return any(node is not None and mentions(node, pattern) for node in nodes)

    def _loop(self) -> dict[str, Any]:
        found = loop(self.form, self.spot, self.place, self.translation)
        self.before += found.before
        do = found.do if isinstance(found.do, Sequence) else made([found.do], found.do)
        assert isinstance(do, Sequence)
        return {"map": found.keys, "do": commands(do, found.place, self.translation).commands}

    # Under which conditions

    def _limits(self) -> dict[str, Any]:
        said: dict[str, Any] = {"env": self._env(), "cwd": self._folder()}
        timeout = self.form.get("timeout", self.metadata.get("timeout"))
        if timeout is not None:
            said["timeout"] = made(spelled(timeout), self.form.node.get("timeout") or self.form.node)
        if "retry" in self.form:
            said["retry"] = made(retry(self.form["retry"], self.translation), self.form.at("retry"))
        elif self.metadata.get("retries"):
            said["retry"] = self.metadata["retries"]
        return {key: value for key, value in said.items() if value is not None}

    def _env(self) -> dict[str, Any] | None:
        said: dict[str, Node] = {**self.metadata.get("env", {}), **self.form.get("env", {})}
        env = {name: self._text(node) for name, node in said.items()}
        return {**env, **self.action.get("env", {})} or None

    def _text(self, node: Node) -> Node:
        assert isinstance(node, Scalar)
        return made(text(node, self.place, self.translation), node) if node.value is not None else node

    def _folder(self) -> Node | None:
        if "working_dir" not in self.form:
            return None
        node = self.form["working_dir"]
        folder = text(node, self.place, self.translation)
        is_below = self.place.cwd is not None and not folder.startswith(("/", "~", "$"))
        return made(f"{self.place.cwd}/{folder}" if is_below else folder, node)

    # What follows

    def _failing(self) -> Node | None:
        """The `on_failure` of the step, wherever it stands."""
        node = self.form.node.get("on_failure")
        inner = self.form.node.get("test")
        return inner.get("on_failure") if node is None and isinstance(inner, Mapping) else node

    def _handled(self) -> Handled:
        node = self._failing()
        names = captured_names(self.form)
        own = Handled() if node is None else handler(node, self.place, self.translation, _nested, names)
        return own if own.on_failure else self._fallback(own)

    def _fallback(self, own: Handled) -> Handled:
        """What `retry` says about the time when no attempt is left."""
        said = self.form["retry"].get("on_failure") if "retry" in self.form else None
        if said == "continue":
            return Handled(continue_on_error=True)
        if not isinstance(said, Fields) or "fallback" not in said or "command" not in said["fallback"]:
            return own
        inner = msgspec.structs.replace(self.place, row=Unread())
        commands = _nested(said["fallback"]["command"], inner, self.translation)
        return Handled({"strategy": "fallback", "commands": commands}, own.continue_on_error)

    def _may_fail(self) -> bool:
        is_map = self.kind == "foreach"
        said = self.form.get("allow_failure") or self.form.get("fail_workflow") is False
        return bool(
            said or self.metadata.get("continue_on_error") or (self.form.get("continue_on_error") and not is_map)
        )

    def _on_success(self) -> list[dict[str, Any]] | None:
        node = self.form.node.get("on_success")
        if node is None:
            return None
        inner = msgspec.structs.replace(self.place, row=Unread(), names=self.place.names | {"output"}, is_regular=False)
        given = "output.content" if self.kind == "claude" else "output"
        said = {"last.output": given, f"{self.kind}.output": given}
        return command_list(node, inner.knowing(said), self.translation, _nested)

    def _remarked(self, keys: dict[str, Any]) -> dict[str, Any]:
        """The keys, with what is to be said about them: what of the step is not honoured, what is read as script."""
        above = next((value for value in self.action.values() if isinstance(value, Scalar | Mapping)), None)
        for key, why in _UNHEARD:
            if self.form.get(key, self.metadata.get(key)) not in (None, False):
                at = self.form.key(key) if key in self.form else self.form.key("metadata")
                self.translation.warn("prodigy", why, at, above=above)
        warn_of_squash(self.form.get("commit_config"), self.translation)
        env = keys.get("env")
        if isinstance(env, dict) and SCRIPT_VARIABLE in env:
            self.translation.remark(keys["shell"], PUT_TOGETHER)
        return keys


def _nested(step: Node, place: Place, translation: Translation) -> list[dict[str, Any]]:
    return command(step, place, translation).commands


def _of_handler(name: str, spot: Spot) -> str:
    """A variable that the handler captured: nothing where it had nothing to do."""
    return f"(type({spot.output}) == map ? {spot.output}.{name} : null)"


def _telling(script: str) -> str:
    """The script with what it printed at the end of its errors, too, where it fails: there its handler finds it."""
    return (
        f"_said=$(\n{script}\n)\n_code=$?\nprintf '%s\\n' \"$_said\"\n"
        "[ $_code -eq 0 ] || printf '%s\\n' \"$_said\" >&2\nexit $_code"
    )
