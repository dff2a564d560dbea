"""Sweeps for `convert`: the steps of one parameterised job as one step with a `matrix`, where that is the same.

A value is part of a command's text in Torc, and a quoted variable in ours. Both are the same word if the value has no
character with a meaning to the shell, and neither has the word around it. Everything else is compared by loading both
files: see `is_same`. What cannot be shown to be the same stays expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec

from mulligan.core.model.actions import traits_of
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Action, Expression, Step, Template, Workflow
from mulligan.formats.torc.jobs import Job
from mulligan.formats.torc.parameters import PLACEHOLDER, Values, format_value, formatted, scalar_items
from mulligan.formats.translation import mapping, renewed, sequence
from mulligan.language.text.nodes import Mapping, Node, Sequence, plain

JOB_NAME = "TORC_JOB_NAME"
# The name of the job, where it is that of its step.
_STEP_NAME = Template((Expression("step.name", ("step",)),))
# A matrix of two steps is not shorter than the steps.
STEPS_MIN = 3
_SAFE_VALUE = lazy_regex(r"[A-Za-z0-9_./:@%+-]+")
_WORD = lazy_regex(r"\S+")
# A word around a value: a redirection, an assignment or an option at its start, then plain characters and quotes.
_SAFE_WORD = lazy_regex(r"(?:[0-9]?[<>]{1,2})?[A-Za-z0-9_./:,@%+=\"-]*")
_ASSIGNMENT = lazy_regex(r"[A-Za-z_][A-Za-z0-9_]*=")
# After these a word may be a command.
_BEFORE_COMMAND = (*";|&(){}!`", "$[")
_KEYWORDS = frozenset("if then elif else while until do time exec eval".split())
_LISTS = {"needs": ("depends_on",), "reads": ("input_files",), "writes": ("output_files",)}
_VARYING_KEYS = ("step", "shell", "env", *_LISTS)
_UNFIT = lazy_regex(r"[^A-Za-z0-9_-]")


class NotTheSame(Exception):
    """A sweep that cannot be shown to be the same as a matrix."""


def fold_sweeps(root: Mapping, jobs: Iterable[Job]) -> Mapping | None:
    """The tree of our file with its sweeps as matrices; None if it has no such sweeps."""
    steps = root.get("steps")
    by_step = {job.step: job for job in jobs}
    found: list[tuple[int, Job | None, Node]] = []
    for number, node in enumerate(steps.items if isinstance(steps, Sequence) else ()):
        name = node.get("step") if isinstance(node, Mapping) else None
        job = by_step.get(plain(name)) if name is not None else None
        found.append((id(job.form) if job is not None and job.values else -1 - number, job, node))
    folded: list[Node] = []
    # Steps that do not stand one after the other cannot be one step.
    for _, members in groupby(found, key=lambda one: one[0]):
        folded += _fold([(job, node) for _, job, node in members])
    if len(folded) == len(found):
        return None
    return renewed({**root.entries, "steps": (root.key("steps"), sequence(folded, root))}, root)


def _fold(members: list[tuple[Job | None, Node]]) -> list[Node]:
    nodes = [node for _, node in members]
    found = [(job, node) for job, node in members if job is not None and isinstance(node, Mapping)]
    if len(found) < STEPS_MIN or len(found) != len(nodes):
        return nodes
    try:
        return [_Sweep([job for job, _ in found], [node for _, node in found]).step()]
    except NotTheSame:
        return nodes


class _Sweep:
    """The steps of one job entry."""

    def __init__(self, jobs: list[Job], nodes: list[Mapping]) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._form = jobs[0].form
        self._values: list[Values] = [job.values for job in jobs]
        self._is_zip = self._form.get("parameter_mode") == "zip" or len(self._values[0]) == 1
        # The names of further lists of the matrix: a parameter as a text in one format.
        self._texts: dict[tuple[str, str], str] = {}

    def step(self) -> Mapping:
        first = self._nodes[0]
        for other in self._nodes[1:]:
            if _rest(other) != _rest(first):
                raise NotTheSame
        self._check_values()
        # Parameters in names are written alike in both.
        name, command = plain_text(self._jobs[0].name_node), self._command()
        listed = {key: self._listed(key, lists) for key, lists in _LISTS.items()}
        env = self._environment()
        # The matrix has what the others refer to.
        entries = {"step": name, "matrix": self._matrix(), "shell": command, **listed, "env": env}
        rest = {key: value for key, (_, value) in first.entries.items() if key not in _VARYING_KEYS}
        return mapping({**entries, **rest}, first)

    def _check_values(self) -> None:
        for values in self._values:
            if not all(_SAFE_VALUE.fullmatch(format_value(value)) for value in values.values()):
                raise NotTheSame

    def _command(self) -> str:
        text = plain_text(self._form.node.get("command"))
        # In a regular expression of bash, a quoted value has another meaning.
        if self._form.get("invocation_script") or any(part in text for part in ("${", "$$", "=~")):
            raise NotTheSame
        _check_words(text, self._values[0])
        template = PLACEHOLDER.sub(self._reference, text)
        for job, node in zip(self._jobs, self._nodes, strict=True):
            if self._filled(text, job.values) != plain(node.entries["shell"][1]):
                raise NotTheSame
        return template

    def _filled(self, text: str, values: Values) -> str:
        return PLACEHOLDER.sub(lambda found: _formatted(found, values), text)

    def _reference(self, found: re.Match[str]) -> str:
        mark, name, spec = found.groups()
        if mark or name not in self._values[0]:
            return found.group()
        if not spec:
            return f"${{matrix.{name}}}"
        if not self._is_zip:
            raise NotTheSame
        key = self._texts.setdefault((name, spec), f"{name}_{len(self._texts) + 1}")
        if key in self._values[0]:
            raise NotTheSame
        return f"${{matrix.{key}}}"

    def _plain(self, key: str) -> list[Any]:
        """The value of a key in each of the steps."""
        return [plain(node.entries[key][1]) if key in node.entries else None for node in self._nodes]

    def _listed(self, key: str, lists: tuple[str, ...]) -> Any:
        found: list[Any] = self._plain(key)
        if all(one == found[0] for one in found):
            return self._nodes[0].get(key)
        if not all(isinstance(one, list) for one in found) or len({len(one) for one in found}) > 1:
            raise NotTheSame
        templates = [node.text for name in lists for node in scalar_items(self._form, name)]
        return [self._entry([one[index] for one in found], templates) for index in range(len(found[0]))]

    def _entry(self, entries: list[Any], templates: list[str]) -> Any:
        if all(entry == entries[0] for entry in entries):
            return entries[0]
        for template in templates:
            names = [_UNFIT.sub("_", self._filled(template, values)) for values in self._values]
            if names == entries:
                return template
        raise NotTheSame

    def _environment(self) -> Any:
        found = self._plain("env")
        if all(one == found[0] for one in found):
            return self._nodes[0].get("env")
        # The name of the job, where that of its step differs.
        if not all(one is None or [*one] == [JOB_NAME] for one in found):
            raise NotTheSame
        template = PLACEHOLDER.sub(self._reference, plain_text(self._jobs[0].name_node))
        return {JOB_NAME: template}

    def _matrix(self) -> Any:
        names = list(self._values[0])
        lists: dict[str, list[Any]] = {name: [values[name] for values in self._values] for name in names}
        if not self._is_zip:
            return {name: _range(list(dict.fromkeys(items))) for name, items in lists.items()}
        for (name, spec), key in self._texts.items():
            lists[key] = [formatted(one, spec) for one in lists[name]]
        shown = {name: _range(items) for name, items in lists.items()}
        return shown if len(shown) == 1 else {"zip": shown}


def plain_text(node: Node | None) -> str:
    value = plain(node) if node is not None else None
    if not isinstance(value, str):
        raise NotTheSame
    return value


def _rest(node: Mapping) -> dict[str, Any]:
    """What must be the same in all steps of a sweep."""
    return {key: plain(value) for key, (_, value) in node.entries.items() if key not in _VARYING_KEYS}


def _formatted(found: re.Match[str], values: Values) -> str:
    mark, name, spec = found.groups()
    if mark or name not in values:
        return found.group()
    written = formatted(values[name], spec or "")
    if written is None:
        raise NotTheSame
    return written


def _check_words(text: str, names: Values) -> None:
    """Check that each word with a parameter is one word of the shell, whatever value stands in it."""
    for line in text.split("\n"):
        before = ""
        for word in _WORD.finditer(line):
            found = word.group()
            if any(not mark and name in names for mark, name, _ in PLACEHOLDER.findall(found)):
                may_be_command = not before or before.endswith(_BEFORE_COMMAND) or before in _KEYWORDS
                if may_be_command and not _ASSIGNMENT.match(found):
                    raise NotTheSame
                if not _SAFE_WORD.fullmatch(_with_letters(found, names)):
                    raise NotTheSame
            before = _with_letters(found, names)


def _with_letters(word: str, names: Values) -> str:
    """The word with a letter in place of each parameter."""
    return PLACEHOLDER.sub(lambda found: "x" if found.group(2) in names else found.group(), word)


def _range(values: list[Any]) -> Any:
    """The values as a range if they are numbers in steps of one."""
    is_range = len(values) > 1 and all(type(value) is int for value in values)
    if is_range and values == list(range(values[0], values[-1] + 1)):
        return f"{values[0]}..{values[-1]}"
    return values


# -- comparing -------------------------------------------------------------------------------------------------------


def is_same(expanded: Workflow, folded: Workflow) -> bool:
    """Whether both run the same steps with the same commands; the words of a command were compared before."""
    if len(expanded.steps) != len(folded.steps):
        return False
    ours = msgspec.structs.replace(folded, steps=())
    if ours != msgspec.structs.replace(expanded, steps=()):
        return False
    return all(_comparable(one) == _comparable(other) for one, other in zip(expanded.steps, folded.steps, strict=True))


def _comparable(step: Step) -> Step:
    """The step without what only a matrix has, and without the text of its command."""
    action = step.action
    if action is not None and traits_of(action).script:
        kept = {name: value for name, value in action.bindings.items() if not name.startswith("_matrix_")}
        action = Action(action.kind, {**action.params, "text": ""}, kept, action.paths)
    env = {name: _joined(template) for name, template in step.env.items()}
    if env.get(JOB_NAME) == _STEP_NAME:
        env[JOB_NAME] = Template((step.name,))
    return msgspec.structs.replace(step, action=action, env=env, matrix={}, sweep="")


def _joined(template: Template) -> Template:
    """The template with its constant texts joined."""
    if all(isinstance(part, str) for part in template.parts):
        return Template(("".join(map(str, template.parts)),))
    return template
