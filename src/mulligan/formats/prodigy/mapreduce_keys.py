"""Every key of a MapReduce workflow of Prodigy's, once, with what becomes of it."""

from __future__ import annotations

import re
from typing import Any

from mulligan.formats.prodigy.durations import SECONDS
from mulligan.formats.prodigy.environment_keys import ENVIRONMENT_KEYS
from mulligan.formats.prodigy.keys import STEP_LIST, VARIABLE_NAME, VARIABLE_NAMES
from mulligan.language.action_keys import ANY_TEXT, as_node
from mulligan.language.regular_expressions import PATTERN
from mulligan.language.shapes import (
    FLAG,
    TEXT,
    Choice,
    Either,
    Json,
    Key,
    MapOf,
    Record,
    Template,
    Value,
    number,
    whole,
)

# A number, or a variable of `env` that holds one.
NUMBER_FORM = Either("a number or '$NAME'", number=as_node(whole(1)), text=as_node(Template("'$NAME'")))

CAPTURE = Record(
    "capture_output",
    {
        "command_index": Key(whole(0), "which command of the setup, from 0", is_required=True),
        "source": Key(Choice(("stdout", "stderr", "both", "combined")), "which of its streams (default stdout)"),
        "pattern": Key(PATTERN, "a regular expression: what its first group finds, or all of it"),
        "json_path": Key(TEXT, "the place in the output, which is JSON"),
        "max_size": Key(whole(1), "how many bytes of the output are looked at (default 1 MiB)"),
        "default": Key(as_node(Json()), "the value where nothing is found"),
        "multiline": Key(
            Choice(("preserve", "join", "first_line", "last_line", "array")), "what becomes of several lines"
        ),
    },
)
SETUP = Record(
    "setup",
    {
        "commands": Key(STEP_LIST, "the steps before the map", is_required=True),
        "timeout": Key(
            Either("a number of seconds or '$NAME'", number=as_node(SECONDS), text=as_node(Template("'$NAME'"))),
            "the time of each of them",
        ),
        "capture_outputs": Key(
            MapOf(
                Either("the number of a command, or a mapping", number=whole(0), mapping=CAPTURE),
                VARIABLE_NAME,
                names=VARIABLE_NAMES,
            ),
            "variables from what the commands print",
        ),
    },
)
TEMPLATE = Record("agent_template", {"commands": Key(STEP_LIST, "what runs for each item", is_required=True)})
REDUCE = Record("reduce", {"commands": Key(STEP_LIST, "the steps after the map", is_required=True)})
MERGE = Record(
    "merge",
    {
        "commands": Key(STEP_LIST, "the steps that merge, in the place of ours", is_required=True),
        "timeout": Key(SECONDS, "the time of each of them"),
    },
)
MERGE_KEY = Key(
    Either("a list of steps or a mapping", list=STEP_LIST, mapping=MERGE),
    "the steps that merge the run's branch, in the place of ours",
)

TIMEOUTS = Record(
    "timeout_config",
    {
        "agent_timeout_secs": Key(NUMBER_FORM, "the time of each command of an item (default 600)"),
        "command_timeouts": Key(
            MapOf(SECONDS, VARIABLE_NAME, names=VARIABLE_NAMES), "the time of commands of a kind: {claude: 300}"
        ),
        "timeout_policy": Key(
            Choice(("PerAgent", "PerCommand", "Hybrid", "per_agent", "per_command", "hybrid")),
            "what the time is of: of each command, with us",
        ),
        "cleanup_grace_period_secs": Key(SECONDS, "the time between SIGTERM and SIGKILL when a run is cancelled"),
        "timeout_action": Key(
            Choice(
                (
                    *("Dlq", "Skip", "Fail", "GracefulTerminate"),
                    *("dlq", "skip", "fail", "graceful_terminate"),
                )
            ),
            "what a timeout means: the item has failed",
        ),
        "enable_monitoring": Key(FLAG, "times are measured in any case"),
    },
)
MAP = Record(
    "map",
    {
        "input": Key(Template("a file or a command"), "a file, else a command that prints", is_required=True),
        "json_path": Key(Template("a path"), "where in the input the items are"),
        "agent_template": Key(
            Either("a list of steps or a mapping", list=STEP_LIST, mapping=TEMPLATE),
            "what runs for each item",
            is_required=True,
        ),
        "max_parallel": Key(NUMBER_FORM, "how many items run at the same time (default 10)"),
        "filter": Key(Template("a filter"), "only items for which this holds"),
        "sort_by": Key(Template("an order"), "the order of the items"),
        "max_items": Key(whole(0), "how many items at most"),
        "offset": Key(whole(0), "how many items to leave out first"),
        "distinct": Key(TEXT, "one item per value of this field"),
        "agent_timeout_secs": Key(NUMBER_FORM, "the time of each command of an item"),
        "timeout_config": Key(TIMEOUTS, "times in more detail"),
        "timeout_per_agent": Key(SECONDS, "the time of each command of an item, under its old name"),
        "retry_on_failure": Key(whole(0, 1000), "how often a command of an item is tried again, in older files"),
    },
)

BACKOFF_FIXED = Record("fixed", {"delay": Key(SECONDS, "each delay", is_required=True)})
BACKOFF_LINEAR = Record(
    "linear_backoff",
    {
        "initial": Key(SECONDS, "the first delay", is_required=True),
        "increment": Key(SECONDS, "how much longer each further one is", is_required=True),
    },
)
BACKOFF_EXPONENTIAL = Record(
    "exponential_backoff",
    {
        "initial": Key(SECONDS, "the first delay (default 1s)"),
        "multiplier": Key(number(1, 1000), "how many times longer each further one is (default 2)"),
    },
)
BACKOFF_FIBONACCI = Record("fibonacci", {"initial": Key(SECONDS, "the first delay", is_required=True)})
ITEM_BACKOFF = Record(
    "item_backoff",
    {
        "fixed": Key(BACKOFF_FIXED, "the same delay each time"),
        "linear": Key(BACKOFF_LINEAR, "each delay is longer by the same time"),
        "exponential": Key(BACKOFF_EXPONENTIAL, "each delay is longer by a factor"),
        "fibonacci": Key(BACKOFF_FIBONACCI, "delays grow by the Fibonacci numbers"),
    },
    one_of=(("fixed",), ("linear",), ("exponential",), ("fibonacci",)),
)
ITEM_RETRY = Record(
    "retry_config",
    {
        "max_attempts": Key(whole(1, 1000), "how often a command of an item is tried in all (default 3)"),
        "backoff": Key(ITEM_BACKOFF, "how delays grow (default exponential from 1s)"),
    },
)
CIRCUIT_BREAKER = Record(
    "circuit_breaker",
    {
        "failure_threshold": Key(whole(1), "how many failures in a row open it (default 5)"),
        "success_threshold": Key(whole(1), "one success closes it, with us"),
        "timeout": Key(SECONDS, "when it lets a command through again (default 30s)"),
        "half_open_requests": Key(whole(1), "one command at a time is let through, with us"),
    },
)
BATCH = Record("batched", {"size": Key(whole(1), "how many errors are reported together", is_required=True)})
COLLECTION = Record("error_collection", {"batched": Key(BATCH, "errors are told as they come", is_required=True)})


def _collected(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"aggregate|immediate|batched:[1-9]\d*", value):
        raise ValueError(value)
    return value


COLLECTED = Value("aggregate, immediate or batched:N", _collected, {"type": "string"})
POLICY_KEYS = {
    "on_item_failure": Key(
        Either(
            "dlq, retry, skip or stop",
            text=Choice(("dlq", "retry", "skip", "stop", "custom")),
            mapping=Record("custom", {"custom": Key(as_node(Json()), "code inside Prodigy: refused")}),
        ),
        "what the failure of an item means (default dlq)",
    ),
    "continue_on_failure": Key(FLAG, "false: no further item starts after a failure (default true)"),
    "max_failures": Key(whole(1), "so many failed items stop the map, which fails"),
    "failure_threshold": Key(number(0, 1), "a larger share of failed items stops the map, which fails"),
    "error_collection": Key(
        Either("aggregate, immediate or batched:N", text=COLLECTED, mapping=COLLECTION), "errors are told as they come"
    ),
}
POLICY = Record(
    "error_policy",
    {
        **POLICY_KEYS,
        "circuit_breaker": Key(CIRCUIT_BREAKER, "a breaker: items wait while it is open"),
        "retry_config": Key(ITEM_RETRY, "how often commands of items are tried"),
    },
)

MAPREDUCE = Record(
    "mapreduce",
    {
        "name": Key(ANY_TEXT, "the name of the workflow"),
        "description": Key(ANY_TEXT, "what it is for"),
        "mode": Key(Choice(("mapreduce",)), "what it is"),
        **ENVIRONMENT_KEYS,
        "setup": Key(Either("a list of steps or a mapping", list=STEP_LIST, mapping=SETUP), "the steps before the map"),
        "map": Key(MAP, "what runs for each item", is_required=True),
        "reduce": Key(
            Either("a list of steps or a mapping", list=STEP_LIST, mapping=REDUCE), "the steps after the map"
        ),
        "merge": MERGE_KEY,
        "error_policy": Key(POLICY, "what failures of items mean"),
        **POLICY_KEYS,
    },
)
RECORDS: tuple[Record, ...] = (
    *(MAPREDUCE, SETUP, CAPTURE, MAP, TEMPLATE, TIMEOUTS, REDUCE, MERGE, POLICY, COLLECTION, BATCH),
    *(CIRCUIT_BREAKER, ITEM_RETRY, ITEM_BACKOFF),
    *(BACKOFF_FIXED, BACKOFF_LINEAR, BACKOFF_EXPONENTIAL, BACKOFF_FIBONACCI),
)
