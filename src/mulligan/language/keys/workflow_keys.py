"""All keys of the language. The reader, the error messages, "did you mean" and the JSON Schema use these tables."""

from __future__ import annotations

from mulligan.core.model.run_data import NAME as DATA_NAME
from mulligan.core.model.run_data import NAME_IN_WORDS as DATA_NAME_IN_WORDS
from mulligan.core.model.workflow import (
    LABEL_NAME_CHARS_MAX,
    MAX_PER_RUN_DEFAULT,
    MAX_VISITS_DEFAULT,
    MERGE_KINDS,
    MIN_CONFIDENCE_DEFAULT,
    VERDICTS,
)
from mulligan.language.checks.error_codes import CODE
from mulligan.language.checks.plaintext_secrets import SecretSchema
from mulligan.language.checks.regular_expressions import PATTERN
from mulligan.language.keys.action_keys import (
    ACTION_KEYS,
    ACTIONS,
    ANY_TEXT,
    SHELL_PROGRAM,
    STRICT,
    TEMPLATED,
    as_node,
)
from mulligan.language.keys.plugins import ActionRecord
from mulligan.language.keys.retry_keys import CODES, EXIT_CODES, LOOP_BACKOFF, POLICY, RETRY
from mulligan.language.keys.value_schemas import (
    DURATION,
    FLAG,
    LABEL,
    LIMIT,
    OBJECT_PLACE,
    PLAIN,
    SIZE,
    STEP_NAME,
    STEP_NUMBER,
    TEXT,
    AnyOf,
    Choice,
    Deferred,
    DurationSchema,
    Either,
    Json,
    Key,
    ListOf,
    MapOf,
    Nothing,
    OrMatrixValue,
    Record,
    Template,
    ValueSchema,
    number,
    whole,
)
from mulligan.language.python.requirements import REQUIREMENTS
from mulligan.language.readers.budgets import BUDGET
from mulligan.language.readers.notices import NOTIFY
from mulligan.language.readers.schedules import SCHEDULES
from mulligan.language.readers.slurm_profiles import PROFILES as SLURM_PROFILES
from mulligan.language.text.quantities import parse_duration

# Running actions may end by themselves.
FINISH = "finish"
INPUT_TYPES = ("string", "integer", "number", "boolean", "array", "object", "any")

CONDITION = Template("a condition", ("string", "boolean"))
EXPRESSION = Template("an expression")
CAPTURE = Choice(("text", "json", "lines"))
ON_LOST = Choice(("rerun", "fail"))
LOG_LEVEL = Choice(("debug", "info", "warning", "error", "critical"))

_ONE_ACTION = tuple((action,) for action in ACTIONS)
# Names of failures and of findings: `TIMEOUT`, `exit 11`, `remediation 'repair' fails`, `unhandled_failure`.
ACCEPTED_NAMES = r"[A-Za-z].*"

RESOURCES = Record(
    "resources",
    {
        "cpus": Key(OrMatrixValue(number(0.001)), "how many processors; may be a fraction"),
        "memory": Key(OrMatrixValue(SIZE), "how much memory it may use"),
        "gpus": Key(OrMatrixValue(whole(0)), "how many graphics processors"),
        "labels": Key(ListOf(PLAIN, or_one=True), "labels that the worker must have"),
        "nodes": Key(
            OrMatrixValue(whole(1)),
            "an allocation of so many nodes for it alone: the step calls 'srun' itself (default 1)",
        ),
    },
)
ENV: ValueSchema = MapOf(ANY_TEXT)

_LOG = as_node(Template("a path"))
LOGS = Record(
    "logs",
    {
        "stdout": Key(_LOG, "a link to the standard output of the latest attempt"),
        "stderr": Key(_LOG, "a link to the standard error of the latest attempt"),
    },
)

HANDLER_FORMS: ValueSchema = Deferred(
    lambda: Either(
        "a command, a list of commands, or a handler",
        text=Template("a shell command"),
        list=ListOf(COMMAND_FORMS, at_least=1),
        mapping=HANDLER,
    )
)
COMMANDS_FORMS: ValueSchema = Deferred(lambda: ListOf(COMMAND_FORMS, or_one=True, at_least=1))
COMMAND_FORMS: ValueSchema = Deferred(lambda: Either("a command", text=Template("a shell command"), mapping=COMMAND))
DO_FORMS: ValueSchema = Deferred(lambda: ListOf(DO_COMMAND_FORMS, or_one=True, at_least=1))
DO_COMMAND_FORMS: ValueSchema = Deferred(
    lambda: Either("a command", text=Template("a shell command"), mapping=DO_COMMAND)
)

GUARD = Record(
    "guard",
    {
        "name": Key(STEP_NAME, "the breaker, declared under 'breakers'", is_required=True),
        "key": Key(as_node(Template("a key")), "one breaker per value, such as ${item.url}", is_required=True),
    },
)
COMMAND_KEYS = {
    **ACTION_KEYS,
    "timeout": Key(OrMatrixValue(LIMIT), "how long one attempt may take"),
    "deadline": Key(LIMIT, "how long all attempts may take together"),
    "retry": Key(as_node(RETRY), "a number, a rule, {rules: […]}, or the name of a retry policy"),
    "on_failure": Key(HANDLER_FORMS, "what runs when the action failed and no rule grants a retry"),
    "on_success": Key(COMMANDS_FORMS, "what runs after a success without recovery"),
    "validate": Key(
        Deferred(lambda: Either("a condition or a command", text=CONDITION, mapping=COMMAND)),
        "a condition on 'output', or a command that checks it",
    ),
    "handler_failure_fatal": Key(FLAG, "true: if the handler fails, the failure is critical"),
    "continue_on_error": Key(FLAG, "true: its failure is recorded but does not count"),
    "capture": Key(CAPTURE, "how stdout is read (default text)"),
    "env": Key(as_node(ENV), "environment variables"),
    "cwd": Key(as_node(Template("a folder")), "the folder it runs in"),
    "log_level": Key(LOG_LEVEL, "from which level on Python code prints what it logs (default info)"),
    "resources": Key(RESOURCES, "what an attempt may use"),
    "on_lost": Key(ON_LOST, "what to do when its worker is lost (default rerun)"),
    "affinity": Key(Choice(("host", "any")), "where later commands run (default: the same host)"),
    "breaker": Key(
        Either("the name of a breaker or {name, key}", text=STEP_NAME, mapping=GUARD),
        "the circuit breaker that guards it; with {name, key} one per value of the key",
    ),
    "logs": Key(LOGS, "links to the logs of the latest attempt: {stdout: PATH, stderr: PATH}"),
}
COMMAND: Record = ActionRecord("command", COMMAND_KEYS, one_of=_ONE_ACTION)
DO_COMMAND: Record = ActionRecord(
    "do_command",
    {
        **COMMAND_KEYS,
        "when": Key(as_node(CONDITION), "skipped unless this is true"),
        "reads": Key(ListOf(TEXT, or_one=True), "files that it reads for this item: paths, or names from 'files'"),
        "writes": Key(ListOf(TEXT, or_one=True), "files that it writes for this item, with the item in their paths"),
    },
    one_of=_ONE_ACTION,
)

HANDLER_OPTIONS = {
    "commands": Key(COMMANDS_FORMS, "the commands, run in order"),
    "strategy": Key(Choice(("recovery", "fallback", "cleanup", "custom")), "what its success means (default recovery)"),
    "timeout": Key(LIMIT, "how long the whole handler may take"),
    "capture": Key(Deferred(lambda: HANDLER_CAPTURE), "the step's output after a recovery: name → expression"),
    "rerun": Key(whole(0, 1000), "how many times the step's action runs again after the handler"),
    "handler_failure_fatal": Key(FLAG, "true: if the handler fails, the failure is critical"),
}
HANDLER_CAPTURE: ValueSchema = MapOf(EXPRESSION)
# The keys of a handler override those of the single command that may replace `commands`.
HANDLER: Record = ActionRecord(
    "handler",
    {
        "use": Key(STEP_NAME, "the name of a handler from 'handlers'"),
        **COMMAND_KEYS,
        **HANDLER_OPTIONS,
        "capture": Key(
            Deferred(lambda: Either("a capture format or a mapping", text=CAPTURE, mapping=HANDLER_CAPTURE)),
            "name → expression, or the capture format of its one command",
        ),
    },
    one_of=(("use",), ("commands",), *_ONE_ACTION),
)

A_STEP = Either("a step's name", text=TEXT, number=STEP_NUMBER)
NEED = Record(
    "need",
    {
        "step": Key(A_STEP, "a step"),
        "matrix": Key(TEXT, "all steps of a matrix"),
        "match": Key(PATTERN, "all steps whose full name matches"),
        "on": Key(Choice(("success", "success_or_skipped", "always")), "default success"),
    },
    one_of=(("step",), ("matrix",), ("match",)),
)
NEEDS = ListOf(Either("a step's name", text=TEXT, number=STEP_NUMBER, mapping=NEED), or_one=True)

EDGE = Record(
    "edge",
    {
        "to": Key(A_STEP, "the target step", is_required=True),
        "on": Key(Choice(("success", "failure", "always")), "default success"),
        "when": Key(as_node(CONDITION), "taken only if this is true; not on failure edges"),
        "priority": Key(
            whole(-1_000_000),
            "the lowest is tried first; with failure edges and 'take: first' the first that matches is taken",
        ),
        "codes": CODES,
        "exit_codes": EXIT_CODES,
        "handles": Key(FLAG, "false: taken in addition to the chosen edge, and does not handle the failure"),
        "then": Key(Choice(("rerun", "continue")), "what this step does after the remediation succeeds"),
        **LOOP_BACKOFF,
    },
)
NEXT = ListOf(Either("a step's name", text=TEXT, number=STEP_NUMBER, mapping=EDGE), or_one=True)

TRIAGE_AGENT = Record(
    "triage_agent",
    {
        "provider": Key(STEP_NAME, "which agent: a name, as for agent steps", is_required=True),
        "prompt": Key(Template("a prompt"), "what the author knows about such failures, for the agent"),
        "model": Key(Template("a model"), "the model"),
        "timeout": Key(LIMIT, "how long the agent has, waiting for a worker included (default 5m)"),
    },
)
TRIAGE = Record(
    "triage",
    {
        "when": Key(
            Choice(("unmatched", "exhausted", "always")), "which failures (default unmatched: no rule matched)"
        ),
        "timeout": Key(LIMIT, "how long a person may take; with an agent, from when the agent has not decided"),
        "default": Key(Choice(VERDICTS), "the verdict after the timeout (default fail)"),
        "by": Key(Choice(("person", "agent")), "agent: an agent is asked first (default person)"),
        "agent": Key(Either("an agent's name or a mapping", text=STEP_NAME, mapping=TRIAGE_AGENT), "that agent"),
        "may": Key(
            ListOf(Choice(VERDICTS), or_one=True, at_least=1), "the verdicts that the agent may decide (default both)"
        ),
        "min_confidence": Key(
            number(0, 1), f"a less certain answer is left to a person (default {MIN_CONFIDENCE_DEFAULT})"
        ),
        "max_per_run": Key(
            whole(0, 1_000_000), f"how often agents may decide in a run (default {MAX_PER_RUN_DEFAULT})"
        ),
        "memory_max": Key(SIZE, "the most memory that the agent may give a retry (default: it may not change it)"),
        "timeout_max": Key(
            LIMIT, "the longest timeout that the agent may give a retry (default: it may not change it)"
        ),
    },
)

SORT = Record(
    "sort_by",
    {
        "by": Key(as_node(EXPRESSION), "the sort key", is_required=True),
        "descending": Key(FLAG, "true: largest first"),
    },
)
OVER_RECORD = ActionRecord(
    "over",
    {"file": Key(as_node(Template("a file")), "one item per line; a list if its name ends in .json"), **COMMAND_KEYS},
    one_of=(("file",), *_ONE_ACTION),
)
MAP = Record(
    "map",
    {
        "over": Key(
            as_node(
                Either(
                    "a list, an expression, or a command", text=EXPRESSION, list=ListOf(TEMPLATED), mapping=OVER_RECORD
                )
            ),
            "a list, an expression, {file: …} or {shell: …}",
            is_required=True,
        ),
        "as": Key(TEXT, "the item's name (default item)"),
        "item_name": Key(as_node(Template("a text")), "what people call an item: '${item.region}'"),
        "max_parallel": Key(
            as_node(Either("a whole number or an expression", number=whole(1), text=EXPRESSION)),
            "how many items run at the same time",
        ),
        "filter": Key(as_node(CONDITION), "only items for which this is true"),
        "sort_by": Key(as_node(Either("an expression", text=EXPRESSION, mapping=SORT)), "or {by: …, descending: true}"),
        "distinct": Key(as_node(Either("an expression or true", text=EXPRESSION, flag=FLAG)), "one item per value"),
        "offset": Key(whole(0), "how many items to skip at the start"),
        "max_items": Key(whole(0), "the most items to run"),
        "on_item_failure": Key(Choice(("fail", "stop", "collect")), "default fail: all items run, then the step fails"),
        "max_failures": Key(whole(0), "the step fails if more items fail"),
        "failure_threshold": Key(number(0, 1), "the step fails if a larger share of items fails"),
        "item_timeout": Key(LIMIT, "how long an item may take, with all of its commands"),
        "collect_critical": Key(FLAG, "critical failures of items may be collected and tolerated too (default false)"),
    },
)

# Within these limits a float keeps all digits of a value of a range.
RANGE_MAX = 1e15
RANGE_STEP_MIN = 1e-12
RANGE = Record(
    "range",
    {
        "from": Key(number(-RANGE_MAX, RANGE_MAX), "the first value", is_required=True),
        "to": Key(number(-RANGE_MAX, RANGE_MAX), "the last possible value", is_required=True),
        "step": Key(number(-RANGE_MAX, RANGE_MAX), "the difference between values (default 1); negative to count down"),
    },
)
MATRIX_LISTS = MapOf(Either("a list or a range such as 1..10", text=TEXT, list=as_node(ListOf(Json())), mapping=RANGE))
MATRIX_ZIP = Record(
    "matrix_zip",
    {"zip": Key(as_node(MATRIX_LISTS), "combines the first values of all lists, then the second values, and so on")},
)
MATRIX_PRODUCT = Record(
    "matrix_product", {"product": Key(as_node(MATRIX_LISTS), "combines every value with every other; the default")}
)
MATRIX = AnyOf("a mapping of lists, {product: …} or {zip: …}", (MATRIX_ZIP, MATRIX_PRODUCT, MATRIX_LISTS))

CACHE = Record(
    "cache",
    {
        "key": Key(Template("a text"), "what must also be equal, such as '${inputs.day}'"),
        "code": Key(FLAG, "false: the code of its function may change (default true)"),
    },
)

INPUT = Record(
    "input",
    {
        "type": Key(Choice(INPUT_TYPES), "default string"),
        "default": Key(as_node(Json()), "its value if none is given; without it the input is required"),
        "enum": Key(as_node(ListOf(Json(), at_least=1)), "the allowed values"),
        "description": Key(TEXT, "what it is for"),
    },
)
INPUTS = MapOf(Either("a type or a mapping", text=Choice(INPUT_TYPES), mapping=INPUT, empty=Nothing()))
TOOL = Record("tool", {"inputs": Key(INPUTS, "its arguments, read as ${inputs.NAME}")})

GROUP = Record(
    "group",
    {
        "steps": Key(
            Deferred(lambda: ListOf(STEP, at_least=1)), "the steps; they are retried together", is_required=True
        ),
        "retry": Key(COMMAND_KEYS["retry"].schema, "the same as 'retry' of the step: when the whole group is retried"),
        "inputs": Key(
            as_node(MapOf(TEMPLATED)),
            "values from other steps, read inside as ${inputs.NAME}, in addition to the inputs of the file",
        ),
        "order": Key(Choice(("sequential", "graph")), "as at the top of the file (default: the same)"),
    },
)
WORKSPACE = Record(
    "workspace",
    {
        "git": Key(
            Choice(("worktree",)), "worktree: the steps run in a Git worktree of the run, on a branch", is_required=True
        ),
        "branch": Key(as_node(Template("the name of a branch")), "its branch (default mulligan/${run.id})"),
        "merge": Key(
            Choice(MERGE_KINDS),
            "how a run that succeeds is merged into the branch that was checked out when it started (default none: "
            "the worktree and the branch are kept)",
        ),
        "on_failure": Key(HANDLER_FORMS, "what runs in the worktree if the merge fails, with MERGE_CONFLICT for one"),
    },
)
ITEM_WORKSPACE = Record(
    "item_workspace",
    {
        "git": Key(
            Choice(("worktree",)),
            "worktree: each item has a worktree, which is merged into that of the run when the item succeeds",
            is_required=True,
        ),
    },
)
COVERAGE = Record(
    "coverage",
    {
        "accept": Key(
            MapOf(TEXT, ACCEPTED_NAMES, names="the name of a failure or a finding"),
            "failures and findings that are meant to be so, each with the reason: {TIMEOUT: it is run again by hand}",
            is_required=True,
        )
    },
)
_COVERAGE_KEY = Key(COVERAGE, "what 'mulligan coverage' accepts, as a comment '# coverage: accept …' does")
_A_NAME = "a name of letters, digits, '_' and '-'"
FAIL_FAST = Choice(("on_critical", "always", "never"), {True: "always", False: "never"})

STEP_KEYS = {
    "step": Key(Either(_A_NAME, text=Template(_A_NAME), number=STEP_NUMBER), "its name", is_required=True),
    "description": Key(TEXT, "what it is for"),
    **COMMAND_KEYS,
    "group": Key(as_node(GROUP), "steps that are retried together, from the first one"),
    "map": Key(as_node(MAP), "runs 'do' once per item"),
    "do": Key(DO_FORMS, "the commands for each item, run in order"),
    "workspace": Key(as_node(ITEM_WORKSPACE), "with 'map': each item works in its own Git worktree"),
    "needs": Key(as_node(NEEDS), "steps that must end first"),
    "next": Key(as_node(NEXT), "steps that follow"),
    "take": Key(Choice(("all", "first")), "which success edges are taken (default all)"),
    "no_match": Key(Choice(("record", "fail")), "what to do when no success edge is taken (default record)"),
    "join": Key(Choice(("any", "all", "first", "each")), "which arrivals start it (default any)"),
    "when": Key(as_node(CONDITION), "skipped unless this is true"),
    "triage": Key(
        Either("true or a mapping", flag=FLAG, mapping=TRIAGE), "holds a failure until a person or an agent decides"
    ),
    "undo": Key(COMMAND_FORMS, "undoes its work if the run does not complete"),
    "max_visits": Key(whole(1, 1_000_000), f"how often a loop may enter it (default {MAX_VISITS_DEFAULT})"),
    "at_max_visits": Key(
        Choice(("loop_limit", "last_failure")),
        "what the visit beyond 'max_visits' fails with: LOOP_LIMIT (default), or the failure that led back to it",
    ),
    "start": Key(FLAG, "true: its loop starts here"),
    "fail_fast": Key(FAIL_FAST, "which of its failures stop the run (default: what the file says)"),
    "reads": Key(ListOf(TEXT, or_one=True), "files that it reads: names from 'files', or paths"),
    "writes": Key(ListOf(TEXT, or_one=True), "files that it writes: names from 'files', or paths"),
    "cache": Key(
        Either("true, false or a mapping", flag=FLAG, mapping=CACHE),
        "reuses the result of an earlier run if no input has changed",
    ),
    "matrix": Key(as_node(MATRIX), "one step per combination of these values"),
    "budget": Key(
        BUDGET, "what its agents may spend, including those of its items and handlers: {tokens, cost, calls}"
    ),
    "tool": Key(
        Either("true or a mapping with 'inputs'", flag=FLAG, mapping=TOOL),
        "agents call this step: it is not part of the graph, and runs when an agent that names it asks for it",
    ),
    "coverage": _COVERAGE_KEY,
}
STEP: Record = ActionRecord("step", STEP_KEYS, one_of=(*_ONE_ACTION, ("group",), ("map", "do")))

END_KEYS = {
    key: COMMAND_KEYS[key]
    for key in (*ACTION_KEYS, "retry", "on_failure", "validate", "timeout", "capture", "env", "cwd")
}
END = ActionRecord("end", {"description": Key(TEXT, "what it is for"), **END_KEYS}, one_of=_ONE_ACTION)

_DEFAULTED = ("timeout", "retry", "env", "cwd", "capture", "on_lost", "resources", "logs", "log_level")
DEFAULTS = Record(
    "defaults",
    {
        **{key: COMMAND_KEYS[key] for key in _DEFAULTED},
        "shell": Key(
            SHELL_PROGRAM, "the program that is started with '-c' and the text of a shell action (default bash)"
        ),
        "strict": STRICT,
        "python": Key(PLAIN, "the interpreter of python actions: a name, or a path relative to where 'run' was called"),
        "requirements": Key(REQUIREMENTS, "the packages of python actions that name no requirements themselves"),
        "agent": Key(STEP_NAME, "the provider of agent actions (default claude)"),
    },
)

SECRET = SecretSchema(
    "secret",
    {
        "env": Key(TEXT, "an environment variable of the worker"),
        "file": Key(TEXT, "a file on the worker's host"),
        "command": Key(TEXT, "a command that prints it, run by the worker"),
    },
    one_of=(("env",), ("file",), ("command",)),
)
BREAKER = Record(
    "breaker",
    {
        "failures": Key(whole(1), "how many failures in a row open it (default 5)"),
        "reset": Key(DURATION, "after how long it allows a probe (default 60s)"),
        "ignore": Key(ListOf(CODE, or_one=True), "error codes that do not count"),
        "when_open": Key(Choice(("wait", "fail")), "what steps do while it is open (default wait)"),
        "max_parallel": Key(whole(1), "how many tasks may call the service at once (default: any number)"),
    },
)

GRACE = DurationSchema(
    "a duration such as 30s or 'finish'",
    lambda value: None if value == FINISH else parse_duration(value),
    {"anyOf": [{"const": FINISH}, *DURATION.json_schema["anyOf"]]},
)
_NAMES = r"[A-Za-z_][A-Za-z0-9_-]*"
_NAMES_IN_WORDS = "letters, digits, '_' and '-'"
WORKFLOW = Record(
    "workflow",
    {
        "name": Key(TEXT, "its name (default: the name of the file)"),
        "description": Key(TEXT, "what it is for"),
        "labels": Key(
            MapOf(
                LABEL,
                rf"[A-Za-z0-9_][A-Za-z0-9_./-]{{0,{LABEL_NAME_CHARS_MAX - 1}}}",
                names=f"letters, digits, '_', '-', '.' and '/', at most {LABEL_NAME_CHARS_MAX}",
            ),
            "labels of its runs, to find them with 'mulligan list --label'; 'run --label' adds to them",
        ),
        "inputs": Key(
            INPUTS,
            "typed inputs",
        ),
        "defaults": Key(as_node(DEFAULTS), "settings for all steps that do not set them"),
        "artifacts": Key(
            OBJECT_PLACE, "the bucket for large outputs and kept files (default: that of the store, if it has one)"
        ),
        "retry_policies": Key(MapOf(as_node(POLICY), _NAMES, names=_NAMES_IN_WORDS), "named lists of rules"),
        "handlers": Key(MapOf(HANDLER_FORMS, _NAMES, names=_NAMES_IN_WORDS), "named handlers"),
        "files": Key(MapOf(PLAIN), "names of files, for 'reads' and 'writes'"),
        "unordered_writers": Key(
            Choice(("refuse", "warn")),
            "two steps that write one file while neither comes first: refuse them (default), or only warn",
        ),
        "data": Key(
            MapOf(Json(), DATA_NAME, names=DATA_NAME_IN_WORDS),
            "values that steps share: what they are when a run starts; a step sets them with 'mulligan data set'",
        ),
        "secrets": Key(MapOf(SECRET), "where workers find secrets"),
        "breakers": Key(MapOf(BREAKER, _NAMES, names=_NAMES_IN_WORDS), "circuit breakers, shared by all runs"),
        "order": Key(Choice(("graph", "sequential")), "sequential: each step needs the one before it"),
        "steps": Key(Deferred(lambda: ListOf(STEP, at_least=1)), "the steps", is_required=True),
        "end": Key(Deferred(lambda: END), "runs last, whatever happened"),
        "workspace": Key(
            as_node(WORKSPACE), "the steps run in a Git worktree of the run, on a branch, and never in your checkout"
        ),
        "outputs": Key(MapOf(as_node(TEMPLATED)), "what the run returns"),
        "timeout": Key(LIMIT, "how long the whole run may take"),
        "budget": Key(BUDGET, "what the agents of a run may spend: {tokens, cost, calls}"),
        "notify": Key(
            ListOf(NOTIFY, or_one=True, at_least=1),
            "who is notified when a run needs a person, fails, completes or is late",
        ),
        "schedules": Key(SCHEDULES, "when a server starts runs, by name; they are in force once the file is published"),
        "slurm": Key(SLURM_PROFILES, "profiles for 'mulligan slurm': how jobs are submitted in which workers run"),
        "max_parallel": Key(whole(1), "how many steps run at the same time (default: no limit)"),
        "fail_fast": Key(FAIL_FAST, "which failure stops the run (default on_critical)"),
        "cancel_grace": Key(GRACE, "how long running actions may take to stop when the run is cancelled (default 10s)"),
        "hide_credentials": Key(
            FLAG, "hide what looks like a credential from agents and in failure contexts (default true)"
        ),
        "coverage": _COVERAGE_KEY,
    },
    may_extend=True,
)
