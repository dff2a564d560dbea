"""Every key of Prodigy's files, with what becomes of it: steps, the environment, MapReduce workflows."""

from __future__ import annotations

import re
from typing import Any

from mulligan.formats.value_schemas import LenientRecord
from mulligan.language.checks.regular_expressions import PATTERN
from mulligan.language.keys.action_keys import ANY_TEXT, as_node
from mulligan.language.keys.value_schemas import (
    FLAG,
    TEXT,
    Choice,
    Deferred,
    DurationSchema,
    Either,
    Json,
    Key,
    ListOf,
    MapOf,
    Record,
    Template,
    Value,
    ValueSchema,
    number,
    whole,
)
from mulligan.language.text.quantities import parse_duration

# -- durations -------------------------------------------------------------------------------------------------------


_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.A)
_BLANK = re.compile(r"(?<=[a-z])\s+(?=\d)")


def _read_seconds(value: Any) -> float:
    """A number of seconds, also as text, or a duration."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    return parse_duration(_BLANK.sub("", value.strip()) if isinstance(value, str) else value)


SECONDS = DurationSchema("a number of seconds", _read_seconds, {"anyOf": [{"type": "string"}, {"type": "number"}]})


def format_seconds(seconds: float) -> str:
    """A duration as our files write it."""
    return f"{seconds:g}s" if seconds == round(seconds, 3) and seconds < 1e6 else f"{seconds:f}s"


def growing_delays(kind: str, first: float, growth: float, count: int) -> list[float]:
    """The delays before `count` retries. `growth` is the increment of a linear backoff, the base of an exponential."""
    if kind == "linear":
        return [first + growth * index for index in range(count)]
    if kind == "exponential":
        return [first * growth ** min(index, 60) for index in range(count)]
    figures = [1, 1]
    while len(figures) < count:
        figures.append(figures[-1] + figures[-2] if kind == "fibonacci" else 1)
    return [first * figure for figure in figures[:count]]


# -- steps -----------------------------------------------------------------------------------------------------------


VARIABLE_NAME = r"[A-Za-z_][\w-]*"
VARIABLE_NAMES = "letters, digits, '_' and '-'"


def _text_like(expected: str, pattern: str) -> Value:
    """A text that matches a pattern."""
    matches = re.compile(pattern, re.A).fullmatch

    def read(value: Any) -> str:
        if not isinstance(value, str) or not matches(value):
            raise ValueError(value)
        return value

    return Value(expected, read, {"type": "string"})


VARIABLE = _text_like("the name of a variable", rf"{VARIABLE_NAME}(?:\.{VARIABLE_NAME})*")
COMMAND_TEXT = Template("a command")
# A step in any of its forms; it is read where it is translated.
STEP_FORM: ValueSchema = as_node(Either("a step", text=COMMAND_TEXT, mapping=Deferred(lambda: STEP)))
STEP_LIST: ValueSchema = as_node(ListOf(STEP_FORM))
STEPS_FORM: ValueSchema = as_node(Either("a list of steps", text=COMMAND_TEXT, list=STEP_LIST, mapping=STEP_FORM))
COUNT = whole(1, 1000)
# The names under which a regular workflow may have its steps.
LISTS = ("commands", "steps", "tasks")

HANDLER = LenientRecord(
    "on_failure",
    {
        "shell": Key(COMMAND_TEXT, "a command of the handler"),
        "claude": Key(COMMAND_TEXT, "a prompt of the handler, for the agent"),
        "commands": Key(STEPS_FORM, "the handler's commands, one after the other"),
        "strategy": Key(Choice(("recovery", "fallback", "cleanup", "custom")), "what the success of the handler means"),
        "timeout": Key(SECONDS, "timeout of the whole handler"),
        "capture": Key(MapOf(ANY_TEXT, VARIABLE_NAME, names=VARIABLE_NAMES), "variables from the handler's output"),
        "fail_workflow": Key(FLAG, "false: the workflow continues although the step still fails"),
        "handler_failure_fatal": Key(FLAG, "true: a handler that fails stops the run"),
        "retry_original": Key(FLAG, "true: the command runs again after the handler"),
        "max_attempts": Key(COUNT, "how often the command runs in total, with the handler before each further run"),
        "max_retries": Key(whole(0, 1000), "how often the command runs again after the handler"),
        "commit_required": Key(FLAG, "true: the handler must make a commit"),
        "on_failure": Key(Deferred(lambda: HANDLER_FORM), "what runs when the handler's command fails as well"),
        "on_success": Key(Deferred(lambda: STEPS_FORM), "what the handler runs after its command"),
    },
)
HANDLER_FORMS = Either(
    "a command, a list of commands, true, false, or a mapping",
    text=COMMAND_TEXT,
    flag=FLAG,
    list=STEP_LIST,
    mapping=HANDLER,
)
HANDLER_FORM: ValueSchema = as_node(HANDLER_FORMS)

RETRY_PATTERN = LenientRecord(
    "retry_pattern", {"pattern": Key(TEXT, "a regular expression that the message matches", is_required=True)}
)
RETRY_ON = ("network", "timeout", "server_error", "rate_limit")
BACKOFFS = ("fixed", "linear", "exponential", "fibonacci", "custom")
BACKOFF = LenientRecord(
    "backoff",
    {
        "fixed": Key(as_node(Json()), "the same delay each time"),
        "linear": Key(as_node(Json()), "each delay is longer by 'increment'"),
        "exponential": Key(as_node(Json()), "each delay is 'base' times as long"),
        "fibonacci": Key(as_node(Json()), "delays grow by the Fibonacci numbers"),
        "custom": Key(as_node(Json()), "'delays', one after the other"),
    },
    one_of=tuple((name,) for name in BACKOFFS),
    needed=BACKOFFS,
)
FALLBACK_COMMAND = LenientRecord(
    "fallback_command", {"command": Key(COMMAND_TEXT, "what runs instead", is_required=True)}
)
FALLBACK = LenientRecord(
    "fallback", {"fallback": Key(FALLBACK_COMMAND, "a command that replaces it", is_required=True)}
)
RETRY = LenientRecord(
    "retry",
    {
        "attempts": Key(COUNT, "number of attempts (default 3)"),
        "backoff": Key(Either("a backoff", text=Choice(BACKOFFS[:4]), mapping=BACKOFF), "how delays grow"),
        "initial_delay": Key(SECONDS, "the first delay (default 1s)"),
        "max_delay": Key(SECONDS, "longest delay (default 30s)"),
        "jitter": Key(FLAG, "true: delays are randomized"),
        "jitter_factor": Key(number(0, 2), "by how much (default 0.3)"),
        "retry_on": Key(
            ListOf(Either("a kind of error or a pattern", text=Choice(RETRY_ON), mapping=RETRY_PATTERN), or_one=True),
            "only these failures are retried",
        ),
        "retry_budget": Key(SECONDS, "limit of the sum of all delays"),
        "on_failure": Key(
            Either("stop, continue or a fallback", text=Choice(("stop", "continue")), mapping=FALLBACK),
            "what happens when no attempt is left",
        ),
    },
)

ON_INCOMPLETE = LenientRecord(
    "on_incomplete",
    {
        "claude": Key(COMMAND_TEXT, "a prompt for the agent that completes the work"),
        "shell": Key(COMMAND_TEXT, "a command that completes the work"),
        "commands": Key(STEPS_FORM, "commands that complete the work"),
        "prompt": Key(COMMAND_TEXT, "a question for a person; approval lets the work pass"),
        "max_attempts": Key(COUNT, "how often the work is continued and checked again (default 2)"),
        "fail_workflow": Key(FLAG, "false: the workflow continues with incomplete work (default true)"),
        "commit_required": Key(FLAG, "true: completing it must make a commit"),
    },
)
VALIDATE = LenientRecord(
    "validate",
    {
        "shell": Key(COMMAND_TEXT, "the command that checks"),
        "command": Key(COMMAND_TEXT, "the command that checks, under its old name"),
        "claude": Key(COMMAND_TEXT, "the prompt of an agent that checks"),
        "commands": Key(STEPS_FORM, "commands that check, one after the other"),
        "expected_schema": Key(as_node(Json()), "the JSON Schema of the result"),
        "threshold": Key(as_node(Json()), "how complete it must be, in percent (default 100)"),
        "timeout": Key(SECONDS, "timeout of the check"),
        "result_file": Key(Template("a file"), "where the check writes its result"),
        "on_incomplete": Key(
            as_node(Either("a list or a mapping", text=COMMAND_TEXT, list=STEP_LIST, mapping=ON_INCOMPLETE)),
            "what runs if the work is incomplete; then it is checked again",
        ),
    },
    one_of=(("shell",), ("command",), ("claude",), ("commands",)),
)
VALIDATE_FORM: ValueSchema = as_node(
    Either("a command, a list of steps or a mapping", text=COMMAND_TEXT, list=STEP_LIST, mapping=VALIDATE)
)

CHECK = LenientRecord(
    "step_validate_command",
    {
        "command": Key(COMMAND_TEXT, "the command that checks", is_required=True),
        "expect_output": Key(TEXT, "a regular expression that its output matches"),
        "expect_exit_code": Key(whole(0, 255), "the exit code that is a success (default 0)"),
        "command_type": Key(Choice(("shell", "claude", "test")), "what runs it"),
    },
)
AT_LEAST = LenientRecord("atleast", {"atleast": Key(COUNT, "how many checks must pass", is_required=True)})
STEP_VALIDATE = LenientRecord(
    "step_validate",
    {
        "commands": Key(
            ListOf(Either("a check", text=COMMAND_TEXT, mapping=CHECK), at_least=1),
            "the checks",
            is_required=True,
        ),
        "success_criteria": Key(
            Either("all, any or atleast", text=Choice(("all", "any")), mapping=AT_LEAST), "how many must pass"
        ),
        "max_attempts": Key(COUNT, "how often it is checked (default 1)"),
        "retry_delay": Key(SECONDS, "how long to wait between (default 5s)"),
    },
)

WRITE_FILE = LenientRecord(
    "write_file",
    {
        "path": Key(Template("a file"), "which file", is_required=True),
        "content": Key(ANY_TEXT, "what is in it", is_required=True),
        "format": Key(Choice(("text", "json", "yaml")), "json and yaml are checked and formatted"),
        "mode": Key(ANY_TEXT, "its permissions, such as 0644"),
        "create_dirs": Key(FLAG, "true: missing folders are created"),
    },
)
OUTPUT_FILE = LenientRecord("output_pattern", {"file_pattern": Key(TEXT, "which files", is_required=True)})
COMMIT_CONFIG = LenientRecord(
    "commit_config",
    {
        "message_template": Key(COMMAND_TEXT, "the message of the commit"),
        "message_pattern": Key(TEXT, "a regular expression that the message matches"),
        "sign": Key(FLAG, "true: the commit is signed"),
        "author": Key(TEXT, "its author: Name <mail>"),
        "include_files": Key(ListOf(TEXT, or_one=True), "only these files"),
        "exclude_files": Key(ListOf(TEXT, or_one=True), "not these files"),
        "squash": Key(FLAG, "ignored"),
    },
)
STREAMS = LenientRecord(
    "capture_streams",
    {
        "stdout": Key(FLAG, "true: capture stdout (default)"),
        "stderr": Key(FLAG, "true: capture stderr as well"),
        "exit_code": Key(FLAG, "${NAME.exit_code}, which is always set"),
        "success": Key(FLAG, "${NAME.success}, which is always set"),
        "duration": Key(FLAG, "${NAME.duration}, which is always set"),
    },
)
TEST = LenientRecord(
    "test",
    {
        "command": Key(COMMAND_TEXT, "the command", is_required=True),
        "on_failure": Key(HANDLER_FORM, "as on_failure of a step"),
    },
)
_ANALYSIS = Key(as_node(Json()), "analysis before the step, which Prodigy has removed: ignored")
METADATA = LenientRecord(
    "metadata",
    {
        "retries": Key(whole(0, 1000), "number of retries"),
        "timeout": Key(SECONDS, "timeout of one attempt"),
        "continue_on_error": Key(FLAG, "true: its failure does not fail the workflow"),
        "env": Key(MapOf(ANY_TEXT), "environment variables"),
        "commit_required": Key(FLAG, "true: it must make a commit"),
        "analysis": _ANALYSIS,
    },
)

KINDS = ("claude", "shell", "test", "foreach", "write_file", "command")
STEP: Record = LenientRecord(
    "step",
    {
        "name": Key(ANY_TEXT, "its title; without an action, a Claude command"),
        "id": Key(ANY_TEXT, "the name of the step"),
        "description": Key(ANY_TEXT, "what it is for"),
        "claude": Key(COMMAND_TEXT, "a prompt for the agent claude"),
        "shell": Key(COMMAND_TEXT, "a shell command, run by sh"),
        "test": Key(Either("a command or a mapping", text=COMMAND_TEXT, mapping=TEST), "a shell command"),
        "foreach": Key(
            as_node(Either("a command, a list, or a mapping", text=COMMAND_TEXT, list=ListOf(Json()), mapping=Json())),
            "a map over a list, or over the lines that a command prints",
        ),
        "write_file": Key(WRITE_FILE, "writes a file atomically"),
        "command": Key(COMMAND_TEXT, "a Claude command, under its old name"),
        "analyze": Key(as_node(Json()), "removed by Prodigy: refused"),
        "goal_seek": Key(as_node(Json()), "removed by Prodigy: refused"),
        "handler": Key(as_node(Json()), "code inside Prodigy: refused"),
        "args": Key(ListOf(ANY_TEXT), "the arguments of a Claude command"),
        "options": Key(as_node(Json()), "ignored"),
        "metadata": Key(METADATA, "settings of a Claude command"),
        "parallel": Key(Either("true, false or a number", flag=FLAG, number=COUNT), "how many items at the same time"),
        "do": Key(STEPS_FORM, "what runs for each item"),
        "continue_on_error": Key(FLAG, "true: its failure does not fail the workflow"),
        "allow_failure": Key(FLAG, "true: its failure does not fail the workflow"),
        "fail_workflow": Key(FLAG, "false: its failure does not fail the workflow"),
        "max_items": Key(whole(0), "how many items at most"),
        "capture": Key(VARIABLE, "the variable that holds the output"),
        "capture_format": Key(
            Choice(("string", "json", "lines", "number", "boolean")), "how the output is parsed (default string)"
        ),
        "capture_streams": Key(
            Either("stdout, stderr, both or a mapping", text=Choice(("stdout", "stderr", "both")), mapping=STREAMS),
            "which streams are the output",
        ),
        "capture_output": Key(
            Either("true, false or the name of a variable", flag=FLAG, text=VARIABLE), "the variable with the output"
        ),
        "output_file": Key(Template("a file"), "a file that the output is written to"),
        "timeout": Key(SECONDS, "timeout of one attempt"),
        "working_dir": Key(Template("a folder"), "the folder it runs in"),
        "env": Key(MapOf(ANY_TEXT), "environment variables"),
        "temporary": Key(FLAG, "no effect: 'env' always applies to the step alone"),
        "clear_env": Key(FLAG, "ignored"),
        "on_failure": Key(HANDLER_FORM, "what runs when it fails"),
        "retry": Key(RETRY, "how often it is tried"),
        "on_success": Key(STEPS_FORM, "what runs after it succeeded"),
        "on_exit_code": Key(
            MapOf(STEP_FORM, r"\d{1,3}", names="digits"), "what runs for an exit code and replaces the step"
        ),
        "commit_required": Key(FLAG, "true: it must make a commit"),
        "commit_config": Key(COMMIT_CONFIG, "what a commit looks like"),
        "auto_commit": Key(FLAG, "true: what it changed is committed"),
        "validate": Key(VALIDATE_FORM, "checks whether its work is complete"),
        "step_validate": Key(
            as_node(
                Either(
                    "a command, a list of commands or a mapping",
                    text=COMMAND_TEXT,
                    list=ListOf(COMMAND_TEXT, at_least=1),
                    mapping=STEP_VALIDATE,
                )
            ),
            "checks after the step",
        ),
        "skip_validation": Key(FLAG, "true: nothing is checked"),
        "validation_timeout": Key(SECONDS, "timeout of the checks"),
        "ignore_validation_failure": Key(FLAG, "true: a failed check is recorded and ignored"),
        "when": Key(Template("a condition", ("string", "boolean")), "the step is skipped unless this is true"),
        "outputs": Key(
            MapOf(OUTPUT_FILE, VARIABLE_NAME, names=VARIABLE_NAMES),
            "files that it writes, by a pattern: ${ID.NAME} is the path of one",
        ),
        "analysis": _ANALYSIS,
    },
    needed=(*KINDS, "name"),
    foreign=("step",),
)
FOREACH = LenientRecord(
    "foreach_mapping",
    {
        "foreach": Key(as_node(Json()), "the list, or the command that prints it"),
        "input": Key(as_node(Json()), "the list, or the command that prints it"),
        "items": Key(as_node(Json()), "the list, or the command that prints it"),
        "parallel": STEP.keys["parallel"],
        "do": STEP.keys["do"],
        "continue_on_error": STEP.keys["continue_on_error"],
        "max_items": STEP.keys["max_items"],
    },
)


# -- environment -----------------------------------------------------------------------------------------------------


PROVIDERS = ("env", "file", "vault", "aws", "custom")
_ANYTHING = r"(?s:.+)"

ENV_VALUE = LenientRecord(
    "env_value",
    {
        "secret": Key(FLAG, "true: the value is hidden wherever it would be shown"),
        "value": Key(ANY_TEXT, "the value, preferably '${env:NAME}'"),
        "command": Key(COMMAND_TEXT, "a command that prints the value"),
        "cache": Key(FLAG, "true: the command runs once in a run, not before each shell command (default false)"),
        "condition": Key(
            Template("a condition", ("string", "boolean")), "decides between 'when_true' and 'when_false'"
        ),
        "when_true": Key(ANY_TEXT, "the value if the condition is true"),
        "when_false": Key(ANY_TEXT, "the value if the condition is false"),
    },
    one_of=(("value",), ("command",), ("condition",)),
)
SECRET = LenientRecord(
    "secret",
    {
        "provider": Key(Choice(PROVIDERS), "env: a variable of the worker; file: a file. The others are refused"),
        "key": Key(TEXT, "the name of the variable, or the path of the file", is_required=True),
        "version": Key(ANY_TEXT, "which version of a secret in a vault: refused with the vault"),
    },
)
VALUE_FORM = Either(
    "a text, a number, true, false, a secret, a command or a condition",
    text=ANY_TEXT,
    number=ANY_TEXT,
    flag=ANY_TEXT,
    empty=ANY_TEXT,
    mapping=ENV_VALUE,
)
SECRET_FORM = Either("'${env:NAME}' or a mapping", text=COMMAND_TEXT, mapping=SECRET)
PROFILE = MapOf(ANY_TEXT)

ENVIRONMENT_KEYS = {
    "env": Key(MapOf(VALUE_FORM), "environment variables of every command"),
    "secrets": Key(MapOf(SECRET_FORM), "environment variables whose values are hidden"),
    "env_files": Key(ListOf(TEXT, or_one=True), "files with one variable per line; a missing file is skipped"),
    "profiles": Key(
        MapOf(PROFILE, _ANYTHING, names="characters"),
        "other values of variables, chosen with the input 'profile'",
    ),
}


# -- composition -----------------------------------------------------------------------------------------------------


IMPORT = LenientRecord(
    "import",
    {
        "path": Key(COMMAND_TEXT, "the file", is_required=True),
        "alias": Key(COMMAND_TEXT, "a name for 'extends' and 'template': its steps are not added"),
        "selective": Key(
            as_node(ListOf(COMMAND_TEXT, at_least=1, or_one=True)), "only these steps and parameters, by their names"
        ),
    },
)
TEMPLATE_USE = LenientRecord(
    "template",
    {
        "name": Key(COMMAND_TEXT, "what it is called; the name of the file without a 'source'"),
        "source": Key(as_node(Json()), "the file, or {file: …}"),
        "with": Key(as_node(Json()), "values of its parameters"),
        "override": Key(as_node(Json()), "other values for its keys: {env: …, commands.0.timeout: 60}"),
    },
)
COMPOSITION_KEYS = {
    "imports": Key(as_node(Json()), "files whose steps come first"),
    "extends": Key(as_node(Json()), "the file that this one is based on"),
    "template": Key(as_node(Json()), "a file with parameters, whose steps come first"),
    "defaults": Key(as_node(Json()), "values of parameters and variables that nothing else sets"),
}


# -- MapReduce -------------------------------------------------------------------------------------------------------


# A number, or an `env` variable with a number.
NUMBER_FORM = Either("a number or '$NAME'", number=as_node(whole(1)), text=as_node(Template("'$NAME'")))


def _phase(mapping: Record) -> Either:
    return Either("a list of steps or a mapping", list=STEP_LIST, mapping=mapping)


def _by_name(schema: ValueSchema) -> MapOf:
    """Values of variables, by their names."""
    return MapOf(schema, VARIABLE_NAME, names=VARIABLE_NAMES)


CAPTURE = LenientRecord(
    "capture_output",
    {
        "command_index": Key(whole(0), "which command of the setup, from 0", is_required=True),
        "source": Key(Choice(("stdout", "stderr", "both", "combined")), "which stream (default stdout)"),
        "pattern": Key(PATTERN, "a regular expression: what its first group finds, or all of it"),
        "json_path": Key(TEXT, "the place in the output, which is JSON"),
        "max_size": Key(whole(1), "how many bytes of the output are searched (default 1 MiB)"),
        "default": Key(as_node(Json()), "the value if nothing is found"),
        "multiline": Key(
            Choice(("preserve", "join", "first_line", "last_line", "array")), "how several lines are combined"
        ),
    },
)
SETUP = LenientRecord(
    "setup",
    {
        "commands": Key(STEP_LIST, "the steps before the map", is_required=True),
        "timeout": Key(
            Either("a number of seconds or '$NAME'", number=as_node(SECONDS), text=as_node(Template("'$NAME'"))),
            "timeout of each step",
        ),
        "capture_outputs": Key(
            _by_name(Either("the number of a command, or a mapping", number=whole(0), mapping=CAPTURE)),
            "variables from what the commands print",
        ),
    },
)
TEMPLATE = LenientRecord("agent_template", {"commands": Key(STEP_LIST, "what runs for each item", is_required=True)})
REDUCE = LenientRecord("reduce", {"commands": Key(STEP_LIST, "the steps after the map", is_required=True)})
MERGE = LenientRecord(
    "merge",
    {
        "commands": Key(STEP_LIST, "the steps that merge, instead of ours", is_required=True),
        "timeout": Key(SECONDS, "timeout of each step"),
    },
)
MERGE_KEY = Key(_phase(MERGE), "the steps that merge the run's branch, instead of ours")

TIMEOUTS = LenientRecord(
    "timeout_config",
    {
        "agent_timeout_secs": Key(NUMBER_FORM, "timeout of an item, with all of its commands (default 600)"),
        "command_timeouts": Key(_by_name(SECONDS), "timeout by kind of command: {claude: 300}"),
        "timeout_policy": Key(
            Choice(("PerAgent", "PerCommand", "Hybrid", "per_agent", "per_command", "hybrid")),
            "PerCommand: the timeout applies to each command, not to the item (default Hybrid)",
        ),
        "cleanup_grace_period_secs": Key(SECONDS, "ignored: the time between SIGTERM and SIGKILL is 10s"),
        "timeout_action": Key(
            Choice(
                (
                    *("Dlq", "Skip", "Fail", "GracefulTerminate"),
                    *("dlq", "skip", "fail", "graceful_terminate"),
                )
            ),
            "here a timeout always fails the item",
        ),
        "enable_monitoring": Key(FLAG, "no effect: durations are always measured"),
    },
)
MAP = LenientRecord(
    "map",
    {
        "input": Key(Template("a file or a command"), "a file, or a command that prints the items", is_required=True),
        "json_path": Key(Template("a path"), "where in the input the items are"),
        "agent_template": Key(_phase(TEMPLATE), "what runs for each item", is_required=True),
        "max_parallel": Key(NUMBER_FORM, "how many items run at the same time (default 10)"),
        "filter": Key(Template("a filter"), "only items for which this is true"),
        "sort_by": Key(Template("an order"), "the order of the items"),
        "max_items": Key(whole(0), "how many items at most"),
        "offset": Key(whole(0), "how many items to skip first"),
        "distinct": Key(TEXT, "one item per value of this field"),
        "agent_timeout_secs": Key(NUMBER_FORM, "timeout of an item, with all of its commands"),
        "timeout_config": Key(TIMEOUTS, "timeouts in more detail"),
        "timeout_per_agent": Key(SECONDS, "timeout of an item, under its old name"),
        "retry_on_failure": Key(whole(0, 1000), "retries of each command of an item, in older files"),
    },
)

BACKOFF_FIXED = LenientRecord("fixed", {"delay": Key(SECONDS, "each delay", is_required=True)})
BACKOFF_LINEAR = LenientRecord(
    "linear_backoff",
    {
        "initial": Key(SECONDS, "the first delay", is_required=True),
        "increment": Key(SECONDS, "by how much each further delay grows", is_required=True),
    },
)
BACKOFF_EXPONENTIAL = LenientRecord(
    "exponential_backoff",
    {
        "initial": Key(SECONDS, "the first delay (default 1s)"),
        "multiplier": Key(number(1, 1000), "factor by which each further delay grows (default 2)"),
    },
)
BACKOFF_FIBONACCI = LenientRecord("fibonacci", {"initial": Key(SECONDS, "the first delay", is_required=True)})
ITEM_BACKOFF = LenientRecord(
    "item_backoff",
    {
        "fixed": Key(BACKOFF_FIXED, "the same delay each time"),
        "linear": Key(BACKOFF_LINEAR, "each delay is longer by the same time"),
        "exponential": Key(BACKOFF_EXPONENTIAL, "each delay is longer by a factor"),
        "fibonacci": Key(BACKOFF_FIBONACCI, "delays grow by the Fibonacci numbers"),
    },
    one_of=(("fixed",), ("linear",), ("exponential",), ("fibonacci",)),
)
ITEM_RETRY = LenientRecord(
    "retry_config",
    {
        "max_attempts": Key(whole(1, 1000), "number of attempts of each command of an item (default 3)"),
        "backoff": Key(ITEM_BACKOFF, "how delays grow (default exponential from 1s)"),
    },
)
CIRCUIT_BREAKER = LenientRecord(
    "circuit_breaker",
    {
        "failure_threshold": Key(whole(1), "how many failures in a row open it (default 5)"),
        "success_threshold": Key(whole(1), "ignored: one success closes it"),
        "timeout": Key(SECONDS, "how long it stays open (default 30s)"),
        "half_open_requests": Key(whole(1), "ignored: it lets one command through at a time"),
    },
)
BATCH = LenientRecord(
    "batched", {"size": Key(whole(1), "ignored: errors are reported as they occur", is_required=True)}
)
COLLECTION = LenientRecord(
    "error_collection", {"batched": Key(BATCH, "ignored: errors are reported as they occur", is_required=True)}
)


COLLECTION_FORM = _text_like("aggregate, immediate or batched:N", r"aggregate|immediate|batched:[1-9]\d*")
POLICY_KEYS = {
    "on_item_failure": Key(
        Either(
            "dlq, retry, skip or stop",
            text=Choice(("dlq", "retry", "skip", "stop", "custom")),
            mapping=LenientRecord("custom", {"custom": Key(as_node(Json()), "code inside Prodigy: refused")}),
        ),
        "what the failure of an item means (default dlq)",
    ),
    "continue_on_failure": Key(FLAG, "false: no further item starts after a failure (default true)"),
    "max_failures": Key(whole(1), "this many failed items stop the map, which fails"),
    "failure_threshold": Key(number(0, 1), "a larger share of failed items stops the map, which fails"),
    "error_collection": Key(
        Either("aggregate, immediate or batched:N", text=COLLECTION_FORM, mapping=COLLECTION),
        "ignored: errors are reported as they occur",
    ),
}
POLICY = LenientRecord(
    "error_policy",
    {
        **POLICY_KEYS,
        "circuit_breaker": Key(CIRCUIT_BREAKER, "a breaker: items wait while it is open"),
        "retry_config": Key(ITEM_RETRY, "retries of the commands of items"),
    },
)

MAPREDUCE = LenientRecord(
    "mapreduce",
    {
        "name": Key(ANY_TEXT, "the name of the workflow"),
        "description": Key(ANY_TEXT, "what it is for"),
        "mode": Key(Choice(("mapreduce",)), "what it is"),
        "parameters": Key(as_node(Json()), "inputs of the workflow"),
        **COMPOSITION_KEYS,
        **ENVIRONMENT_KEYS,
        "setup": Key(_phase(SETUP), "the steps before the map"),
        "map": Key(MAP, "what runs for each item", is_required=True),
        "reduce": Key(_phase(REDUCE), "the steps after the map"),
        "merge": MERGE_KEY,
        "error_policy": Key(POLICY, "what happens when items fail"),
        **POLICY_KEYS,
    },
    may_extend=True,
)
