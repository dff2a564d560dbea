"""The keys of `retry`: rules with their conditions, delays, adjustments and recovery scripts."""

from __future__ import annotations

from mulligan.core.model.workflow import MAX_RETRIES_DEFAULT
from mulligan.language.checks.error_codes import EXCEPTION, EXIT_CODE_LIST, MATCHED_CODE, RULE_CODE
from mulligan.language.checks.regular_expressions import SEARCHED
from mulligan.language.keys.action_keys import ACTION_KEYS, ACTIONS, ANY_TEXT, as_node
from mulligan.language.keys.plugins import ActionRecord
from mulligan.language.keys.value_schemas import (
    DURATION,
    FACTOR,
    FLAG,
    LIMIT,
    SIZE,
    STEP_NAME,
    Choice,
    Deferred,
    Either,
    Key,
    ListOf,
    MapOf,
    Record,
    Template,
    number,
    whole,
)

CODES = Key(ListOf(MATCHED_CODE, or_one=True, at_least=1), "error codes that match, such as [TIMEOUT, EXIT_NONZERO]")
_RULE_CODES = Key(ListOf(RULE_CODE, or_one=True, at_least=1), CODES.about)
EXIT_CODES = Key(EXIT_CODE_LIST, "exit codes that match, such as [1, 10-19, '>=128']")

BACKOFF = {
    "delay": Key(DURATION, "how long to wait before the first retry"),
    "factor": Key(number(1, 1000), "each further delay is this many times as long"),
    "max_delay": Key(DURATION, "the longest delay"),
    "jitter": Key(number(0, 1), "the random share of a delay, from 0 to 1"),
}
RULE_BACKOFF = {
    **BACKOFF,
    "delays": Key(
        ListOf(DURATION, at_least=1),
        "instead of delay and factor: one delay per retry; the last one repeats",
    ),
}
LOOP_BACKOFF = {
    **BACKOFF,
    "delay": Key(DURATION, "for edges that close a loop: how long to wait before the first round"),
}

ADJUST = Record(
    "adjust",
    {
        "memory": Key(FACTOR, "x1.5: 1.5 times the memory requested or used, whichever is larger"),
        "max_memory": Key(SIZE, "the most memory; no retry if this was not enough"),
        "cpus": Key(FACTOR, "x2: twice as many processors"),
        "max_cpus": Key(number(0.001), "the most processors"),
        "timeout": Key(FACTOR, "x2: twice the time"),
        "max_timeout": Key(LIMIT, "the longest timeout; no retry if this was not enough"),
    },
)

_ONE_ACTION = tuple((action,) for action in ACTIONS)
SCRIPT_RECORD = ActionRecord(
    "recovery_script",
    {
        **ACTION_KEYS,
        "timeout": Key(LIMIT, "default 5m"),
        "env": Key(MapOf(ANY_TEXT), "environment variables, in addition to those of the step"),
        "cwd": Key(Template("a folder"), "the folder it runs in (default: the step's)"),
    },
    one_of=_ONE_ACTION,
)
SCRIPT = Either("a shell command, or a mapping with an action", text=Template(), mapping=SCRIPT_RECORD)

RULE_KEYS = {
    "codes": _RULE_CODES,
    "exit_codes": EXIT_CODES,
    "exceptions": Key(
        ListOf(EXCEPTION, or_one=True, at_least=1),
        "classes of exceptions of Python steps that match, also by a base: [ConnectionError, httpx.TimeoutException]",
    ),
    "pattern": Key(SEARCHED, "a regular expression that the failure's message matches"),
    "any": Key(FLAG, "matches every failure that is not fatal"),
    "max_retries": Key(whole(0, 1_000_000), f"retries after the first attempt (default {MAX_RETRIES_DEFAULT})"),
    **RULE_BACKOFF,
    "recovery_script": Key(as_node(SCRIPT), "runs before each retry; the failure is in ${error}"),
    "adjust": Key(ADJUST, "what the next attempt gets more of: memory, processors, time"),
    "host": Key(
        Choice(("any", "other")),
        "other: the retry avoids the hosts that failed the step, and waits a minute for another one (default: any)",
    ),
    "conversation": Key(
        Choice(("continue", "new")),
        "of an agent with tools or a session: the retry goes on with it (default), or begins a new one",
    ),
}
RULE = Record(
    "rule",
    {
        **RULE_KEYS,
        "max_attempts": Key(
            whole(1, 1_000_000), "grants no retry after this many attempts, whichever rules granted them (1: no retry)"
        ),
    },
)
POLICY = Record(
    "policy",
    {
        **RULE_KEYS,
        "rules": Key(
            Deferred(lambda: ListOf(RULE, at_least=1)),
            "the rules; precedence: codes, exit_codes, exceptions, pattern, any",
        ),
        "max_attempts": Key(whole(1, 1_000_000), "the most attempts, all rules together"),
        "deadline": Key(LIMIT, "how long all attempts of a visit may take together"),
    },
)
RETRY = Either(
    "a number, a rule, rules, or the name of a retry policy",
    text=STEP_NAME,
    flag=FLAG,
    number=whole(0, 1_000_000),
    mapping=POLICY,
)
