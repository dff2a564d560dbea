"""Which word was meant: near misses, and the words of other systems for ours."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from heapq import nlargest

_COMPARED_MAX = 100

# Our key, and what other systems call it.
_FOREIGN = {
    "shell": "run command cmd script bash sh exec commands program",
    "python": "py code function",
    "http": "request url webhook curl rest",
    "sql": "query database db",
    "agent": "claude codex llm ai prompt model",
    "workflow": "subworkflow sub_workflow call uses playbook include",
    "wait": "sleep delay pause",
    "approve": "approval manual gate confirm",
    "step": "id name task job node label",
    "steps": "jobs tasks nodes workflow stages",
    "needs": "depends_on depends dependson after requires dependencies upstream blocked_by cancel_on_blocking_failure",
    "next": "then_to goto edges downstream on_complete transitions",
    "when": "if condition only_if unless case",
    "end": "finally always teardown cleanup on_exit",
    "map": "foreach for_each loop with_items each iterate items",
    "do": "body agent_template steps",
    "over": "input items in list collection json_path",
    "as": "var item_name loop_var iterator name",
    "max_parallel": "parallel concurrency parallelism max_concurrency parallelism_limit",
    "retry": "retries max_retry max_retries attempts failure_handler retry_policy backoff",
    "max_retries": "retries attempts max_retry limit times count",
    "delay": "interval initial_delay wait retry_delay",
    "factor": "multiplier backoff_multiplier backoff exponential base",
    "max_delay": "max_interval cap",
    "on_failure": "on_error catch rescue onfailure error_handler except failure_handler",
    "continue_on_error": "ignore_errors allow_failure continue_on_failure",
    "timeout": "timeout_seconds timeout_minutes time_limit max_time runtime expires",
    "max_visits": "max_iterations max_loops",
    "env": "environment variables vars",
    "cwd": "working_dir working_directory workdir dir chdir",
    "capture": "register capture_output output_format save_as",
    "resources": "requirements resource_requirements requests",
    "cpus": "cpu num_cpus cores",
    "memory": "mem ram",
    "gpus": "gpu num_gpus",
    "labels": "tags",
    "inputs": "params parameters arguments workload args with",
    "args": "with params parameters arguments kwargs",
    "outputs": "returns results output",
    "reads": "input_files inputs consumes",
    "writes": "output_files outputs produces artifacts",
    "matrix": "parameters sweep strategy",
    "to": "target step goto",
    "codes": "error_codes code errors",
    "exit_codes": "exit_code return_codes",
    "any": "match_all_exit_codes all default",
    "recovery_script": "script before_retry cleanup",
    "retry_policies": "failure_handlers policies",
    "secrets": "credentials",
    "breaker": "circuit_breaker",
    "breakers": "circuit_breakers",
    "undo": "compensate compensation rollback",
    "validate": "assert check verify expect success_condition",
    "description": "desc doc title comment summary",
    "fail_fast": "failfast",
    "use": "handler ref",
    "message": "text prompt",
    "reset": "timeout reset_timeout recovery_timeout cooldown",
    "failures": "threshold failure_threshold max_failures",
    "method": "verb",
    "json": "data payload",
    "body": "data",
    "headers": "header",
    "connection": "dsn url database",
    "on_item_failure": "on_error error_policy",
    "required": "optional",
}

# Several of ours may answer one foreign word: the first that the place knows is meant.
_MEANINGS: dict[str, list[str]] = {}
for _ours, _theirs in _FOREIGN.items():
    for _word in _theirs.split():
        _MEANINGS.setdefault(_word, []).append(_ours)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant by `word`."""
    known = list(known)
    folded = {name.lower().replace("-", "_"): name for name in known}
    if exact := folded.get(word.lower().replace("-", "_")):
        return exact
    near = get_close_matches(word, _shortlist(word, known), n=1, cutoff=0.6)
    return near[0] if near else None


def _shortlist(word: str, known: list[str]) -> list[str]:
    """The names that share most pairs of letters with `word`: comparing it with thousands in earnest takes seconds."""
    if len(known) <= _COMPARED_MAX:
        return known
    pairs = _pairs(word)
    return nlargest(_COMPARED_MAX, known, key=lambda name: len(pairs & _pairs(name)) - abs(len(name) - len(word)))


def _pairs(word: str) -> set[str]:
    return {word[index : index + 2] for index in range(len(word))}


def closest_key(word: str, known: Iterable[str]) -> str | None:
    """The key that was probably meant: a near miss, else what another system's word stands for."""
    known = list(known)
    meanings = _MEANINGS.get(word.lower().replace("-", "_"), ())
    translated = next((ours for ours in meanings if ours in known), None)
    return translated or closest(word, known)


def did_you_mean(word: str, known: Iterable[str], form: str = "{}") -> str:
    """The hint "did you mean 'x'?", or nothing."""
    meant = closest(word, known)
    return f"did you mean '{form.format(meant)}'?" if meant else ""


def listed(words: Iterable[str], last: str = "or") -> str:
    """`'a', 'b' or 'c'`."""
    quoted = [f"'{word}'" for word in words]
    return f" {last} ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
