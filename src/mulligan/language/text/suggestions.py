"""Suggestions for unknown words: misspellings, and the words that other systems use."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import takewhile

_COMPARED_MAX = 100
# How like two words have to be: the part of their letters that they share, in this order.
CUTOFF = 0.6

# Our key, and what other systems call it.
_FOREIGN = {
    "shell": "run command cmd script bash bash_command sh exec commands program",
    "python": "py code function",
    "http": "request url webhook curl rest",
    "sql": "query database db",
    "agent": "claude codex llm ai prompt model",
    "workflow": "subworkflow sub_workflow call uses playbook include",
    "wait": "sleep delay pause",
    "approve": "approval manual gate confirm",
    "name": "dag_id workflow_name",
    "step": "id name task task_id job node label rule",
    "steps": "jobs tasks nodes workflow stages rules",
    "needs": "depends_on depends dependson after requires dependencies upstream blocked_by cancel_on_blocking_failure",
    "next": "then then_to goto edges downstream on_complete transitions",
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
    "timeout": "timeout_seconds timeout_minutes time_limit max_time runtime walltime expires",
    "max_visits": "max_iterations max_loops",
    "env": "environment variables vars env_vars",
    "cwd": "working_dir working_directory workdir directory dir chdir",
    "capture": "stdout register capture_output output_format save_as",
    "resources": "requirements resource_requirements requests",
    "cpus": "cpu num_cpus cores threads",
    "memory": "mem mem_mb ram",
    "gpus": "gpu num_gpus",
    "labels": "tags",
    "inputs": "params parameters arguments workload args with",
    "args": "with params parameters arguments kwargs",
    "outputs": "returns results output",
    "reads": "input_files inputs input consumes",
    "writes": "output_files outputs output produces artifacts",
    "matrix": "parameters sweep strategy",
    "to": "target step goto",
    "codes": "error_codes code errors",
    "exit_codes": "exit_code return_codes",
    "exceptions": "exception exception_class retry_on error_class exception_types",
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
    # Keys of Torc and Prodigy, whose files are read as well.
    "depends_on": "needs depends requires dependencies after upstream",
    "failure_handler": "retry retries on_failure on_error retry_policy",
    "id": "step",
}

# If the first key is known at a position, hints for words that belong elsewhere. An empty hint means that we have no
# equivalent: a suggestion that only looks similar would mislead.
_BELONGS_ELSEWHERE = {
    "resources": {
        **dict.fromkeys(
            "cpu cpus num_cpus cores threads mem mem_mb memory ram gpu gpus num_gpus labels".split(),
            "put it under 'resources'",
        ),
        **dict.fromkeys("container image partition tags queue pool".split(), ""),
        "log_prints": "leave it out: what a step prints is in its log",
    },
    "defaults": {
        **dict.fromkeys(
            "retry env cwd capture on_lost resources logs log_level shell strict python agent requirements".split(),
            "put it under 'defaults'",
        ),
        "resource_requirements": "put it under 'defaults' as 'resources'",
        **dict.fromkeys(
            "schedule schedule_interval cron on".split(),
            "write it under 'schedules', such as {nightly: {cron: '30 2 * * *'}}",
        ),
        "on_failure": "write it on a step, or name it under 'handlers'",
    },
    # Keys that belong to the step, not to its action.
    **{
        key: {
            **dict.fromkeys(
                "needs when timeout retry on_failure validate resources env cwd capture".split(),
                f"put it next to '{action}'",
            ),
            "retries": f"put it next to '{action}' as 'retry'",
        }
        for action, key in (("http", "url"), ("sql", "query"), ("agent", "prompt"))
    },
    "approve": {"default": "it is a key of an approval: approve: {message: …, timeout: 8h, default: refuse}"},
    "labels": dict.fromkeys("time timeout time_limit runtime walltime".split(), "put 'timeout' next to 'resources'"),
    "retry": {
        "max_attempts": "put it under 'retry'",
        **dict.fromkeys("retry_delay retry_delay_seconds backoff_delay".split(), "put it under 'retry' as 'delay'"),
    },
    "map": dict.fromkeys(
        "parallel concurrency parallelism max_concurrency max_parallel".split(), "put it into 'map' as 'max_parallel'"
    ),
    "needs": dict.fromkeys("trigger_rule run_if".split(), "write it as 'on' of an entry of 'needs'"),
    "next": dict.fromkeys("finally always".split(), "write it as 'end' at the top of the file"),
}

# Our choice, and what other systems call it.
_FOREIGN_CHOICES = {
    "string": "str text varchar",
    "integer": "int long int64",
    "number": "float double decimal real",
    "boolean": "bool flag",
    "array": "list sequence tuple set",
    "object": "dict map mapping hash json struct",
    "success": "succeeded completed ok done pass",
    "failure": "failed error fail errored",
    "always": "any all finished ended completed",
    "success_or_skipped": "skipped none_failed",
    "text": "string stdout raw plain",
    "lines": "list array",
    "recovery": "recover repair fix",
    "fallback": "default alternative",
    "cleanup": "finally teardown",
    "rerun": "retry again repeat restart",
    "continue": "resume proceed skip",
    "collect": "continue ignore",
    "stop": "abort break fail_fast",
    "sequential": "serial linear sequence",
    "approve": "approved yes",
    "refuse": "refused reject deny no",
    "on_critical": "critical",
}


def _invert(foreign: dict[str, str]) -> dict[str, list[str]]:
    """Map a foreign word to our words. The first one that is known at the position is meant."""
    meanings: dict[str, list[str]] = {}
    for ours, theirs in foreign.items():
        for word in theirs.split():
            meanings.setdefault(word, []).append(ours)
    return meanings


_KEY_MEANINGS = _invert(_FOREIGN)
_CHOICE_MEANINGS = _invert(_FOREIGN_CHOICES)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant by `word`."""
    known = list(known)
    folded = {_fold(name): name for name in known}
    if exact := folded.get(_fold(word)):
        return exact
    return most_similar(word, _shortlist(word, _not_much_shorter(word, known)))


def _not_much_shorter(word: str, known: list[str], cutoff: float = CUTOFF) -> list[str]:
    """The names that `word` can be like by its length: twice their letters, of the letters of both, reach the cutoff.

    Whoever sends megabytes as a name is not to have them compared.
    """
    return [name for name in known if 2 * len(name) >= cutoff * (len(name) + len(word))]


def most_similar(word: str, known: Iterable[str], *, cutoff: float = CUTOFF) -> str | None:
    """The known word that is most like `word`, if one is; of several, the one that begins most like it.

    Most files have no misspelling, and never load difflib.
    """
    known = _not_much_shorter(word, list(known), cutoff)
    if not known:
        return None
    import difflib

    near: list[str] = difflib.get_close_matches(word, known, n=_COMPARED_MAX, cutoff=cutoff)
    if len(near) < 2:
        return near[0] if near else None
    # As `get_close_matches` compares: the second of two words is the one that stays.
    ratios = {name: difflib.SequenceMatcher(None, name, word).ratio() for name in near}
    best = [name for name in near if ratios[name] == ratios[near[0]]]
    return min(best, key=lambda name: (-_common_letters(name, word), name))


def _common_letters(first: str, second: str) -> int:
    """With how many letters both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _shortlist(word: str, known: list[str]) -> list[str]:
    """The names that share most letter pairs with `word`: difflib takes seconds for thousands of names."""
    if len(known) <= _COMPARED_MAX:
        return known
    from heapq import nlargest

    pairs = _letter_pairs(word)
    return nlargest(
        _COMPARED_MAX, known, key=lambda name: len(pairs & _letter_pairs(name)) - abs(len(name) - len(word))
    )


def _letter_pairs(word: str) -> set[str]:
    return {word[index : index + 2] for index in range(len(word))}


def closest_key(word: str, known: Collection[str]) -> str | None:
    """The key that was probably meant: the equivalent of another system's word, or a similar key."""
    return _translated(word, known, _KEY_MEANINGS) or closest(word, known)


def key_hint(word: str, known: Collection[str]) -> str:
    """The hint for an unknown key: where it belongs or which key was meant; empty if unclear."""
    folded = _fold(word)
    for ours, theirs in _BELONGS_ELSEWHERE.items():
        if ours in known and folded in theirs:
            return theirs[folded]
    meant = closest_key(word, known)
    return f"did you mean '{meant}'?" if meant else ""


def closest_choice(word: str, known: Collection[str]) -> str | None:
    """The choice that was probably meant, as `closest_key` finds keys."""
    return _translated(word, known, _CHOICE_MEANINGS) or closest(word, known)


def _translated(word: str, known: Collection[str], meanings: dict[str, list[str]]) -> str | None:
    return next((ours for ours in meanings.get(_fold(word), ()) if ours in known), None)


def _fold(word: str) -> str:
    return word.lower().replace("-", "_")


def did_you_mean(word: str, known: Iterable[str], form: str = "{}") -> str:
    """The hint "did you mean 'x'?", or an empty text."""
    meant = closest(word, known)
    return f"did you mean '{form.format(meant)}'?" if meant else ""


def quote_list(words: Iterable[str], last: str = "or") -> str:
    """`'a', 'b' or 'c'`."""
    return join_list((f"'{word}'" for word in words), last)


def join_list(words: Iterable[str], last: str = "or") -> str:
    """`a, b or c`."""
    found = list(words)
    return f"{', '.join(found[:-1])} {last} {found[-1]}" if len(found) > 1 else "".join(found)
