"""Read a playbook: its dialect, the steps that can run, the first and the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.core.model.workflow import END
from mulligan.formats.noetl.credentials import Credentials, refuse_plain_credentials, variable
from mulligan.formats.noetl.keys import LOOP, OLDER_LOOP, PLAYBOOK
from mulligan.formats.noetl.steps import Reader, Step
from mulligan.formats.noetl.tool_keys import MISSING_TOOLS, TOOLS
from mulligan.formats.noetl.tools import Workbook
from mulligan.formats.translation import Translation
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Source, plain, shorten
from mulligan.language.text.suggestions import did_you_mean

START = "start"
_OLDEST = "noetl.io/v1"
_NEWEST = "noetl.io/v10"
# Keys of a step that only the newer dialect has, and those that only the older ones have.
_NEWER = frozenset({"spec", "set"})
_OLDER = frozenset({"case", "vars", "args", "type", "retry", "save", "sink", "data"})
_OF_OLDER_LOOPS = OLDER_LOOP.keys.keys() - LOOP.keys.keys()


class Playbook(msgspec.Struct, eq=False):
    """A playbook. `steps` can be reached from `entry`; `final` runs last and is not among them."""

    fields: Fields
    workload: dict[str, Any]
    steps: list[Step]
    entry: Step
    final: Step | None
    credentials: Credentials

    @property
    def spec(self) -> dict[str, Any]:
        return _executor_spec(self.fields)

    @property
    def aggregates(self) -> bool:
        """Whether the final step makes the result."""
        return self.final is not None and any(tool.kind != "noop" for tool in self.final.tools.all)


def read_playbook(root: Node, translation: Translation) -> Playbook | None:
    """Read the tree of a playbook. Notes all problems; None where it has no steps that can be read."""
    source = translation.source
    fields: Fields = PLAYBOOK.read(root, "the playbook", source)
    _check_executor(fields, translation)
    refuse_plain_credentials(fields.get("keychain", ()), source)
    for text in _comments(fields):
        translation.remark(fields.node, text)
    workload = {key: plain(node) for key, node in (fields.get("workload") or {}).items()}
    reader = Reader(_is_newer(fields), Workbook(fields.get("workbook", ()), translation), translation)
    steps = _steps(fields.get("workflow", ()), reader, source)
    if not steps:
        return None
    entry, final = _entry(steps, fields, source), _final(steps, fields, source)
    if final is entry:
        final = None
    reached = _reached(entry, final, steps, translation)
    return Playbook(fields, workload, reached, entry, final, Credentials(workload, source))


def _is_newer(fields: Fields) -> bool:
    """Whether it is the dialect with arcs. The steps show that: two dialects share one version."""
    version = fields.get("apiVersion", "")
    if version == _OLDEST:
        return False
    steps = [node for node in fields.get("workflow", ()) if isinstance(node, Mapping)]
    following, loops = _keys_under("next", steps), _keys_under("loop", steps)
    if version == _NEWEST or not following.isdisjoint(("arcs", "spec")):
        return True
    keys = {key for node in steps for key in node.entries}
    if not keys.isdisjoint(_NEWER) or "spec" in loops:
        return True
    # A `next`, a loop or a tool as the older dialects write it.
    is_older = "next" in keys or not _OF_OLDER_LOOPS.isdisjoint(loops)
    return keys.isdisjoint(_OLDER) and not is_older and not any(isinstance(step.get("tool"), Scalar) for step in steps)


def _keys_under(key: str, steps: list[Mapping]) -> set[str]:
    return {word for step in steps if isinstance(inner := step.get(key), Mapping) for word in inner.entries}


def _steps(nodes: tuple[Node, ...], reader: Reader, source: Source) -> list[Step]:
    steps: dict[str, Step] = {}
    for node in nodes:
        step = None
        with source.noting:
            step = reader.read(node)
        if step is None:
            source.note_unread(node, "step")
        elif step.name in steps:
            source.note(source.refuse("duplicate_step", f"there are two steps '{shorten(step.name)}'", step.at))
        else:
            steps[step.name] = step
    return list(steps.values())


# -- the first and the last step -------------------------------------------------------------------------------------


def _executor_spec(fields: Fields) -> dict[str, Any]:
    executor = fields.get("executor")
    return executor["spec"].values if executor is not None and "spec" in executor else {}


def _entry(steps: list[Step], fields: Fields, source: Source) -> Step:
    named = _named_step("entry_step", steps, fields, source)
    return named or next((step for step in steps if step.name == START), steps[0])


def _final(steps: list[Step], fields: Fields, source: Source) -> Step | None:
    """The step that runs last: `final_step`, otherwise `end`. None where it does more than our `end` can."""
    named = _named_step("final_step", steps, fields, source)
    final = named or next((step for step in steps if step.name.lower() == END), None)
    if named is not None and not named.can_be_end:
        message = f"'{named.name}' runs last, so it cannot have a 'next' or a 'loop', or call a playbook"
        source.note(source.refuse("noetl", message, named.at))
    return final if final is not None and final.can_be_end else None


def _named_step(key: str, steps: list[Step], fields: Fields, source: Source) -> Step | None:
    name = _executor_spec(fields).get(key)
    if name is None:
        return None
    step = next((step for step in steps if step.name == str(name)), None)
    if step is None:
        at = fields["executor"]["spec"].at(key)
        hint = did_you_mean(str(name), [step.name for step in steps])
        source.note(source.refuse_unknown(f"there is no step '{shorten(str(name))}'", str(name), at, hint=hint))
    return step


def _reached(entry: Step, final: Step | None, steps: list[Step], translation: Translation) -> list[Step]:
    """The steps that can be reached, in the order of the file. NoETL never runs the others either."""
    known = {step.name: step for step in steps}
    reached: set[str] = set()
    ahead = [entry]
    while ahead:
        step = ahead.pop()
        if step.name in reached:
            continue
        reached.add(step.name)
        ahead += [known[arc.to] for arc in step.router.targets if arc.to in known]
    source = translation.source
    for step in steps:
        for arc in step.router.targets:
            if arc.to not in known and arc.to.lower() != END:
                message = f"step '{step.name}' leads to '{shorten(arc.to)}', which is not a step"
                source.note(source.refuse_unknown(message, arc.to, arc.at, hint=did_you_mean(arc.to, known)))
        if step.name not in reached and step is not final:
            message = f"nothing leads to step '{step.name}', so it never runs and is left out"
            source.warn("noetl", message, step.at)
    return [step for step in steps if step.name in reached and step is not final]


def _check_executor(fields: Fields, translation: Translation) -> None:
    """Refuse a playbook that requires a tool that we do not have; warn of what is not honoured."""
    executor = fields.get("executor")
    if executor is None:
        return
    source = translation.source
    if "requires" in executor:
        for name in executor["requires"].get("tools", ()):
            if name not in TOOLS:
                hint = MISSING_TOOLS.get(name) or did_you_mean(name, TOOLS)
                at = executor["requires"].at("tools")
                source.note(source.refuse("noetl", f"the tool '{shorten(name)}' is not supported", at, hint=hint))
    if "policy" in _executor_spec(fields):
        message = "'policy' of 'executor.spec' is not honoured"
        translation.warn("noetl", message, executor["spec"].key("policy"))


# Keys of the metadata that the translation has as well.
_TRANSLATED = ("name", "description")


def _comments(playbook: Fields) -> Iterator[str]:
    """What does not change a run, for comments at the head of the converted file."""
    if (metadata := playbook.get("metadata")) is not None:
        for key, value in metadata.node.items():
            if key.text not in _TRANSLATED:
                yield f"{key.text}: {msgspec.json.encode(plain(value)).decode()}"
    executor = playbook.get("executor")
    if features := executor["requires"].get("features") if executor is not None and "requires" in executor else None:
        yield f"requires of NoETL: {', '.join(features)}"
    for entry in playbook.get("keychain", ()):
        if "name" in entry:
            name, kind = str(entry["name"]), entry.get("kind", "credential")
            where = "a command prints it" if "command" in entry else f"it is in the variable {variable(name)}"
            yield f"NoETL looks up the credential '{name}' as {kind}; here {where}"
