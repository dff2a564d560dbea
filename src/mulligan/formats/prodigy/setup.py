"""The setup of a MapReduce workflow: steps before the map, and the variables that are taken from what they print."""

from __future__ import annotations

from typing import Any

from mulligan.formats.prodigy.durations import SECONDS
from mulligan.formats.prodigy.forms import understood
from mulligan.formats.prodigy.frame import step_list, timed
from mulligan.formats.prodigy.joining import as_mapping, is_step, joined
from mulligan.formats.prodigy.json_path import items_at
from mulligan.formats.prodigy.numbers import number_of
from mulligan.formats.prodigy.places import Place
from mulligan.formats.prodigy.steps import Translated, commands
from mulligan.formats.translation import Translation, literal_value, made, scalar
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, plain
from mulligan.language.shapes import Fields

CAPTURED = "mulligan.formats.prodigy.setup_outputs:captured"
_STREAMS = {"stderr": "stderr", "both": "both", "combined": "both"}


def setup(form: Fields, place: Place, translation: Translation) -> Translated:
    """The steps of a setup, and what is known after them."""
    own: Any = form["setup"]
    steps = step_list(form.at("setup"), "setup", translation)
    if not isinstance(own, Fields):
        return commands(steps, place, translation)
    limit = number_of(own, "timeout", SECONDS, place.env, translation)
    asked = _Asked(own, steps, translation)
    done = commands(asked.steps, place, translation)
    return asked.taken(Translated(timed(done.commands, limit), done.place))


class _Asked:
    """What `capture_outputs` asks for, and the steps that are asked: each captures what it prints."""

    def __init__(self, own: Fields, steps: Sequence, translation: Translation) -> None:
        self.rules: dict[str, Any] = own.get("capture_outputs", {})
        self.node = own.node.get("capture_outputs")
        self.translation = translation
        # Of each rule: the variable that holds what its command printed.
        self.variables: dict[str, str] = {}
        self.steps = self._asked(steps) if self.rules else steps

    def _asked(self, steps: Sequence) -> Sequence:
        found = joined(steps, self.translation)
        for name, rule in self.rules.items():
            index = rule if isinstance(rule, int) else rule.get("command_index", 0)
            if index < len(found):
                found[index] = self._capturing(found[index], name, rule)
            else:
                assert isinstance(self.node, Mapping)
                message = f"'{name}' is of command {index}, and the setup has {len(found)}, counted from 0"
                self.translation.source.note(self.translation.source.refuse("prodigy", message, self.node.key(name)))
        whole = Sequence(steps.line, steps.column)
        whole.items = found
        return whole

    def _capturing(self, step: Node, name: str, rule: Any) -> Node:
        if not is_step(step):
            return step
        owner = as_mapping(step)
        asked = Mapping(owner.line, owner.column)
        asked.entries = dict(owner.entries)
        stream = _STREAMS.get(rule.get("source", "stdout")) if isinstance(rule, Fields) else None
        for key, value in (("capture", name), ("capture_streams", stream)):
            if value is not None and key not in asked.entries:
                asked.entries[key] = (scalar(key, owner), scalar(value, owner))
        captured = asked.get("capture")
        self.variables[name] = captured.text if isinstance(captured, Scalar) else name
        return asked

    def taken(self, done: Translated) -> Translated:
        """The steps, with one behind them where more is to be made of an output than to have it."""
        place = done.place
        outputs = {name: place.variables.get(variable) for name, variable in self.variables.items()}
        place = place.knowing({name: output for name, output in outputs.items() if output})
        rules = {name: self._rule(rule) for name, rule in self.rules.items() if _makes_more(rule)}
        if not rules:
            return Translated(done.commands, place)
        spot = place.row.take("captured")
        given = {name: f"${{{outputs[name]}}}" for name in rules if outputs.get(name)}
        assert self.node is not None
        call = made({"call": CAPTURED}, self.node)
        step = {"step": spot.name, "python": call, "args": {"outputs": given, "rules": rules}}
        return Translated([*done.commands, step], place.knowing({name: f'{spot.output}["{name}"]' for name in rules}))

    def _rule(self, rule: Fields) -> Node:
        """What the worker goes by: the keys as they are."""
        path = rule.node.get("json_path")
        if isinstance(path, Scalar):
            understood(path, items_at, self.translation)
        return made({key: literal_value(plain(value)) for key, (_, value) in rule.node.entries.items()}, rule.node)


def _makes_more(rule: Any) -> bool:
    return isinstance(rule, Fields) and not set(rule.values) <= {"command_index", "source"}
