"""Which failures can happen to each step: those that the workflow names, and those that happen to everybody.

A kind says what fails (`of`) and with which code. What belongs to a step, such as its handler, fails only after the
step itself: the kind that brings it about is its `after`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mulligan.analysis.coverage.possible_codes import PossibleCodes
from mulligan.analysis.coverage.results import FailureKind
from mulligan.core.deciding.bounded_regex import is_found
from mulligan.core.deciding.conditions import describe_edge, describe_rule, matching_rule
from mulligan.core.evolve.evolve_places import holds_conversation
from mulligan.core.model.actions import traits_of
from mulligan.core.model.failure import RETRYABLE, Failure, code_of_exception, failure, known_classes
from mulligan.core.model.workflow import END, Command, Edge, Map, Rule, Step, Workflow, all_commands

# Codes that only follow from something else: they are not made to happen, whoever names them.
_FOLLOW_FROM_OTHERS = frozenset(
    "HANDLER_FAILED UNDO_FAILED BUDGET_UNREPORTED LOOP_LIMIT NO_ROUTE RUN_TIMEOUT INTERRUPTED CANCELLED CIRCUIT_OPEN "
    "ITEMS_FAILED TURN_LIMIT BUDGET_EXCEEDED TOOL_FAILED APPROVAL_REFUSED APPROVAL_EXPIRED".split()
)
# More exit codes of one rule than this are not played one by one: a range is represented by its first and last.
EXIT_CODES_MAX = 6


class Kind(msgspec.Struct, frozen=True):
    """One way in which something of a step fails, with all that is needed to make it happen."""

    shown: FailureKind
    # The failure as the core sees it, to know which rules and edges are for it.
    found: Failure
    # For what fails only after the step itself: how the step fails first.
    after: Kind | None = None
    # The step of a remediation, or the position of a rule, of which `of` is a part.
    target: str = ""

    @property
    def name(self) -> str:
        return self.shown.name

    @property
    def of(self) -> str:
        return self.shown.of


def kinds_of(workflow: Workflow, step: Step) -> list[Kind]:
    """All failures of a step and of what belongs to it; each name once.

    What a rule or a route names is left out if it cannot happen to the step.
    """
    codes, command = PossibleCodes(workflow), failing_command(step)
    found = [one for one in _own_kinds(step) if not one.shown.named_by or _can_happen(codes, command, one)]
    if not found:
        # It runs nothing that can fail by itself.
        return list(_stops()) if step.name != END else []
    if step.name != END:
        found += _parts(step, found)
        found += _stops()
    return list({kind.name: kind for kind in found}.values())


def plain_first(kinds: Iterable[Kind]) -> list[Kind]:
    """The failures of the step itself. A plain one comes first: it reaches what is for any failure."""
    own = [kind for kind in kinds if kind.of == "step"]
    return sorted(own, key=lambda kind: (kind.name != "EXIT_NONZERO", kind.shown.code == "WORKER_LOST"))


def _can_happen(codes: PossibleCodes, command: Command, kind: Kind) -> bool:
    if kind.found.exit_code is not None and codes.why_no_exit_code(command):
        return False
    return not codes.why_never(command, kind.found.code)


# -- failures of the step itself -------------------------------------------------------------------------------------


def _own_kinds(step: Step) -> Iterator[Kind]:
    """The failures of its action: of its items' commands, for a map; of its model and its tools, for an agent."""
    action = step.action
    if step.map is not None:
        yield from _map_kinds(step, step.map)
    elif action is None:
        return
    elif traits_of(action).asks_person:
        yield _kind("APPROVAL_REFUSED")
        if "timeout" in action.params:
            yield _kind("APPROVAL_EXPIRED")
    elif traits_of(action).awaits_event:
        if "timeout" in action.params and "default" not in action.params:
            yield _kind("TIMEOUT")
        if "schema" in action.params:
            yield _kind("OUTPUT_INVALID")
    elif traits_of(action).is_timer:
        return
    else:
        yield from _task_kinds(step, step)
        if holds_conversation(step):
            yield from _agent_kinds(step)
    yield from _command_kinds(step)


def _command_kinds(step: Step) -> Iterator[Kind]:
    """The failures of what checks the step and follows its success."""
    if step.validator is not None:
        yield _kind("VALIDATION_FAILED", of="validator", name="validator fails")
    if step.validate is not None:
        yield _kind("VALIDATION_FAILED", named_by="validate")
    if step.on_success:
        yield _part_kind("success", "on_success fails")


def _task_kinds(step: Step, command: Command) -> Iterator[Kind]:
    """What can happen to a task: what rules and edges name, what nobody names, and what happens to everybody."""
    rules, edges = command.rules, tuple(edge for edge in step.edges if edge.on == "failure")
    action = traits_of(command.action)
    named: dict[str, Kind] = {}
    for index, rule in enumerate(rules):
        where = f"rule {index + 1}: {describe_rule(rule)}"
        for kind in _named(rule.codes, rule.exit_codes, where):
            named.setdefault(kind.name, kind)
        for name in rule.exceptions if action.has_exceptions else ():
            named.setdefault(name, _exception_kind(name, name, where))
        matched = None if rule.pattern is None else _pattern_kind(rule.pattern, where)
        if matched is not None:
            named.setdefault(matched.name, matched)
    for edge in edges:
        for kind in _named(edge.codes, edge.exit_codes, _edge_words(edge)):
            named.setdefault(kind.name, kind)
    others = []
    if action.calls_run:
        others.append(_kind("CHILD_FAILED"))
    else:
        where = _catch_all(rules)
        others += [_kind(code, named_by=where if RETRYABLE[code] else "") for code in action.usual_codes]
        others += [] if action.usual_codes else [_unnamed(rules, edges)]
        others.append(_kind("WORKER_LOST"))
        if command.action is not None and action.has_memory:
            others.append(_kind("OUT_OF_MEMORY"))
        if command.writes:
            others.append(_kind("OUTPUT_MISSING"))
    item_limit = step.map.item_timeout if step.map is not None else None
    if command.timeout is not None or command.deadline is not None or item_limit:
        others.append(_kind("TIMEOUT"))
    if not (command.timeout or command.deadline or item_limit):
        # Nothing ends an attempt that takes too long: only Python code may say so itself.
        timeout = named.pop("TIMEOUT", None)
        if timeout is not None and action.has_exceptions:
            named["TIMEOUT"] = _exception_kind("TimeoutError", "TIMEOUT", timeout.shown.named_by)
    for kind in others:
        yield named.pop(kind.name, kind)
    yield from named.values()


def _map_kinds(step: Step, policy: Map) -> Iterator[Kind]:
    """The failures of one item: those of its first command that runs a task. And of what lists the items."""
    command = next((one for one in step.do if one.action and traits_of(one.action).runs_in != "engine"), None)
    if command is not None:
        yield from _task_kinds(step, command)
    if policy.lister is not None:
        yield _part_kind("lister", "list of items fails")


def _agent_kinds(step: Step) -> Iterator[Kind]:
    if step.tools is not None and step.tools.commands:
        yield _part_kind("tool", "tool fails")
    if step.tools is not None and step.tools.servers:
        yield _part_kind("tool_list", "list of tools fails")


def _named(codes: tuple[str, ...], exit_codes: tuple[int, ...], where: str) -> Iterator[Kind]:
    yield from (_kind(code, named_by=where) for code in codes if code not in _FOLLOW_FROM_OTHERS)
    shown = exit_codes if len(exit_codes) <= EXIT_CODES_MAX else (exit_codes[0], exit_codes[-1])
    yield from (_exit_kind(exit_code, where) for exit_code in shown if exit_code)


def _exception_kind(exception: str, name: str, where: str) -> Kind:
    """The failure of a step that raises an exception of this class."""
    classes = known_classes(exception)
    code = code_of_exception(classes)
    found = failure(code, exception.rpartition(".")[2], exceptions=classes)
    return Kind(FailureKind(name, code, named_by=where, exceptions=classes), found)


def _edge_words(edge: Edge) -> str:
    for_what = describe_edge(edge)
    return f"route to '{edge.to}'{f': {for_what}' if for_what else ''}"


def _exit_kind(exit_code: int, where: str, name: str = "") -> Kind:
    shown = FailureKind(name or f"exit {exit_code}", "EXIT_NONZERO", exit_code=exit_code, named_by=where)
    return Kind(shown, failure("EXIT_NONZERO", f"exit code {exit_code}", exit_code=exit_code))


def _unnamed(rules: tuple[Rule, ...], edges: tuple[Edge, ...]) -> Kind:
    """An exit code that no rule and no edge names."""
    names = {code for rule in rules for code in rule.exit_codes} | {code for edge in edges for code in edge.exit_codes}
    exit_code = next(code for code in range(1, 256) if code not in names or code == 255)
    return _exit_kind(exit_code, _catch_all(rules), "EXIT_NONZERO")


def _catch_all(rules: tuple[Rule, ...]) -> str:
    """The rule for any failure, in words; "" if there is none."""
    found = next((index for index, rule in enumerate(rules) if rule.any), None)
    return "" if found is None else f"rule {found + 1}: any failure"


def _pattern_kind(pattern: str, where: str) -> Kind | None:
    """A failure whose message the pattern finds; None if no example of it is known."""
    message = example_of(pattern)
    if message is None or not is_found(pattern, message):
        return None
    shown = FailureKind(f"message '{pattern}'", "EXIT_NONZERO", exit_code=1, named_by=where)
    return Kind(shown, failure("EXIT_NONZERO", message, exit_code=1))


def _kind(code: str, *, of: str = "step", name: str = "", named_by: str = "") -> Kind:
    return Kind(FailureKind(name or code, code, of=of, named_by=named_by), failure(code, code))


def _part_kind(of: str, name: str, after: Kind | None = None, target: str = "") -> Kind:
    shown = FailureKind(name, "EXIT_NONZERO", exit_code=1, of=of)
    return Kind(shown, failure("EXIT_NONZERO", "exit code 1", exit_code=1), after, target)


# -- failures of what deals with failures ----------------------------------------------------------------------------


def _parts(step: Step, own: list[Kind]) -> list[Kind]:
    """The handler, the recovery scripts, the remediations, the triager and the undo of a step fail."""
    firsts = plain_first(own)
    if not firsts:
        return []
    found: list[Kind] = []
    command = failing_command(step)
    if command.on_failure is not None or step.on_failure is not None:
        found.append(_part_kind("handler", "handler fails", firsts[0]))
    for index, rule in enumerate(command.rules):
        first = next((kind for kind in firsts if matching_rule(command.rules, kind.found) == index), None)
        if rule.recovery_script is not None and first is not None:
            found.append(_part_kind("script", f"recovery script of rule {index + 1} fails", first, str(index)))
    remediations = (edge for edge in step.edges if edge.on == "failure" and edge.handles and edge.to != END)
    for target in dict.fromkeys(edge.to for edge in remediations):
        first = next((kind for kind in firsts if leads_to(step, kind, target)), None)
        if first is not None:
            found.append(_part_kind("remediation", f"remediation '{target}' fails", first, target))
    if step.triage is not None and step.triage.agent is not None:
        first = next((kind for kind in firsts if matching_rule(command.rules, kind.found) is None), firsts[0])
        found.append(_part_kind("triager", "triager fails", first))
    if step.undo is not None:
        found.append(_part_kind("undo", "undo fails"))
    return found


def failing_command(step: Step) -> Command:
    """What fails first when the step fails: its own action, or the first command of its items."""
    if step.map is None:
        return step
    return next((one for one in step.do if one.action and traits_of(one.action).runs_in != "engine"), step)


def leads_to(step: Step, kind: Kind, target: str) -> bool:
    """Whether the first edge for this failure leads to `target`."""
    edges = sorted(
        (edge for edge in step.edges if edge.on == "failure" and edge.handles),
        key=lambda edge: (edge.priority is None, edge.priority or 0, edge.index),
    )
    for edge in edges:
        fits_code = not edge.codes or kind.found.code in edge.codes
        if fits_code and (not edge.exit_codes or kind.found.exit_code in edge.exit_codes):
            return edge.to == target
    return False


def _stops() -> Iterator[Kind]:
    """At the moment at which the step runs: somebody cancels the run; its worker is killed, and another goes on."""
    yield Kind(FailureKind("cancel", "CANCELLED", of="cancel"), failure("CANCELLED", "the run is cancelled"))
    yield Kind(FailureKind("kill", "WORKER_LOST", of="kill"), failure("WORKER_LOST", "its worker is killed"))


def code_kinds(workflow: Workflow, step: Step, codes: Iterable[str]) -> list[Kind]:
    """The failures of a step with codes that the code of a program names, as far as they can happen to it."""
    possible, has_limit = PossibleCodes(workflow), bool(step.timeout or step.deadline)
    kinds = [_kind(code, named_by="the program") for code in codes if code not in _FOLLOW_FROM_OTHERS]
    return [one for one in kinds if (has_limit or one.name != "TIMEOUT") and _can_happen(possible, step, one)]


def unexplained_patterns(workflow: Workflow) -> list[str]:
    """The patterns of rules of which no example is known."""
    rules = (rule for one in all_commands((*workflow.steps, workflow.end)) for rule in one.rules)
    patterns = dict.fromkeys(rule.pattern for rule in rules if rule.pattern is not None)
    return [one for one in patterns if _pattern_kind(one, "") is None]


# -- examples of messages ---------------------------------------------------------------------------------------------


# The parser of the standard library: its tree is all that is needed here.
_parser: Any = re._parser  # type: ignore[attr-defined]
_REPEATS_MAX = 3
_CATEGORIES = {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a", "CATEGORY_NOT_SPACE": "a"}


def example_of(pattern: str) -> str | None:
    """A short text in which the pattern is probably found; None if none can be made. The caller checks it."""
    try:
        return "".join(_text(node) for node in _parser.parse(pattern))
    except (re.error, ValueError, RecursionError, OverflowError, LookupError):
        return None


def _text(node: tuple[Any, Any]) -> str:
    kind, value = str(node[0]), node[1]
    if kind == "LITERAL":
        return chr(value)
    if kind == "ANY":
        return "a"
    if kind == "NOT_LITERAL":
        return "a" if chr(value) != "a" else "b"
    if kind == "IN":
        return _member(value)
    if kind == "BRANCH":
        return "".join(map(_text, value[1][0]))
    if kind == "SUBPATTERN":
        return "".join(map(_text, value[-1]))
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, _, inner = value
        if least > _REPEATS_MAX * 100:
            raise ValueError("too long")
        return "".join("".join(map(_text, inner)) for _ in range(least))
    if kind in ("AT", "ASSERT_NOT"):
        return ""
    if kind == "ATOMIC_GROUP":
        return "".join(map(_text, value))
    if kind == "ASSERT":
        return "".join(map(_text, value[1])) if value[0] > 0 else ""
    raise ValueError(f"no example for {kind}")


def _member(choices: list[tuple[Any, Any]]) -> str:
    """A character of a class."""
    if str(choices[0][0]) == "NEGATE":
        refused = "".join(_member([one]) for one in choices[1:])
        return next(char for char in "abc 0-_xyz" if char not in refused)
    kind, value = str(choices[0][0]), choices[0][1]
    if kind == "LITERAL":
        return chr(value)
    if kind == "RANGE":
        return chr(value[0])
    if kind == "CATEGORY":
        return _CATEGORIES[str(value)]
    raise ValueError(f"no example for {kind}")
