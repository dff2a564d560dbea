"""Failure handlers as retry policies. Their rules limit the attempts of the job, not the retries of one rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mulligan.formats.names import Names
from mulligan.formats.torc.commands import script_text
from mulligan.formats.torc.jobs import Job
from mulligan.formats.torc.records import HANDLER, MAX_RETRIES_DEFAULT, entries_of
from mulligan.formats.translation import Translation, made, mapping, sequence
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source
from mulligan.language.text.suggestions import did_you_mean

# Torc has no limit.
SCRIPT_TIMEOUT = "1h"
# Torc's exit code for a job that any signal ended.
_SIGNALED = -1
# Torc's exit code for a job that succeeds without writing a declared file.
_MISSING_OUTPUT = 1
# Variables of recovery scripts in addition to those of the job.
RECOVERY_ENV: dict[str, Any] = {"TORC_RETURN_CODE": "${error.code == 'OUTPUT_MISSING' ? 1 : error.exit_code}"}


class Handler(NamedTuple):
    """A failure handler. `policy` is None if it has no rules: then nothing is retried."""

    key: str
    form: Fields
    policy: Mapping | None


def read_handlers(workflow: Fields, translation: Translation) -> dict[str, Handler]:
    """The handlers by name."""
    source = translation.source
    names = Names.of_policies()
    found: dict[str, Handler] = {}
    for item in entries_of(workflow, "failure_handlers"):
        with source.noting:
            form: Fields = HANDLER.read(item, "a failure handler", source)
            if "name" not in form:
                continue
            name = form["name"]
            if name in found:
                line = source.number(found[name].form.at("name"))
                message = f"there are two failure handlers '{name}': first in line {line}"
                raise source.refuse("duplicate_name", message, form.at("name"))
            found[name] = Handler(names.fit(name), form, _policy(form, translation))
    return found


def _policy(form: Fields, translation: Translation) -> Mapping | None:
    rules = [made(ours, rule.node) for rule in form.get("rules", ()) for ours in _rules(rule, translation)]
    return mapping({"rules": made(rules, form.at("rules"))}, form.node) if rules else None


def _rules(rule: Fields, translation: Translation) -> Iterator[dict[str, Any]]:
    """Translate one rule: each of ours matches by one condition, and all have the same limit."""
    bounds = _rule_limits(rule)
    exit_codes, codes = _codes(rule, translation)
    if codes:
        yield {"codes": codes, **bounds}
    if exit_codes:
        yield {"exit_codes": exit_codes, **bounds}
    if rule.get("match_all_exit_codes"):
        yield {"any": True, **bounds}
    elif not codes and not exit_codes:
        hint = "add 'exit_codes' or 'match_all_exit_codes: true'"
        translation.warn("rule", "the rule matches no failure and is ignored", rule.node, hint=hint)


def _rule_limits(rule: Fields) -> dict[str, Any]:
    """The limits of a rule. Torc compares `max_retries` with the attempts of the job, whichever rule granted them."""
    max_retries = rule.get("max_retries")
    attempts = max(1, MAX_RETRIES_DEFAULT if max_retries is None else max_retries)
    bounds: dict[str, Any] = {"max_attempts": made(attempts, rule.node.get("max_retries") or rule.node)}
    if rule.get("recovery_script") is not None:
        node = rule.at("recovery_script")
        script = {"shell": script_text(node), "timeout": SCRIPT_TIMEOUT, "env": RECOVERY_ENV or None}
        bounds["recovery_script"] = mapping(script, node)
    return bounds


def _codes(rule: Fields, translation: Translation) -> tuple[Sequence | None, list[str]]:
    """The exit codes as a shell reports them, and the failure codes that Torc treats as one of them."""
    node = rule.node.get("exit_codes")
    if not isinstance(node, Sequence) or "exit_codes" not in rule:
        return None, []
    exit_codes: list[Node] = []
    codes: list[str] = []
    for item in node.items:
        value = item.value if isinstance(item, Scalar) else None
        if value == _SIGNALED:
            codes += ["SIGNALED", "OUT_OF_MEMORY"]
        elif value == 0:
            translation.warn("rule", "a job that exits with 0 has not failed", item)
        elif isinstance(value, int):
            exit_codes.append(item if value > 0 else made(128 - value, item))
        if value == _MISSING_OUTPUT:
            codes.append("OUTPUT_MISSING")
    return sequence(exit_codes, node) if exit_codes else None, list(dict.fromkeys(codes))


def retry_of(job: Job, known: dict[str, Handler], source: Source) -> Any:
    """The step's `retry`; None if the job has no handler."""
    name = job.texts.get("failure_handler")
    if name is None:
        return None
    if name not in known:
        hint = did_you_mean(name, known) or "declare it under 'failure_handlers'"
        message = f"there is no failure handler '{name}'"
        raise source.refuse("unknown_handler", message, job.at("failure_handler"), hint=hint)
    handler = known[name]
    return made(handler.key if handler.policy else 0, job.at("failure_handler"))
