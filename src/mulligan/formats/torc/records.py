"""Every key of Torc's files, once: what may stand there, and what becomes of it.

Torc refuses unknown keys everywhere but in `resource_monitor` and `slurm_defaults`. An optional key may be null.
"""

from __future__ import annotations

from typing import Any

from mulligan.language.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source
from mulligan.language.shapes import (
    FLAG,
    TEXT,
    Choice,
    Deferred,
    Definitions,
    Either,
    Fields,
    Json,
    Key,
    ListOf,
    MapOf,
    Record,
    Schema,
    Shape,
    Value,
    whole,
)

SORT_METHODS = ("gpus_runtime_memory", "gpus_memory_runtime", "none")
TRIGGERS = (
    "on_workflow_start",
    "on_workflow_complete",
    "on_jobs_ready",
    "on_jobs_complete",
    "on_worker_start",
    "on_worker_complete",
)
MAX_RETRIES_DEFAULT = 3
RUNTIME_DEFAULT = "PT1H"
# Numbers of signals end there; a shell says 128 and the signal, Torc says less than nothing.
SIGNAL_MAX = 64


class Optional(Shape, frozen=True):
    """The shape, or null for nothing."""

    of: Shape

    @property
    def expected(self) -> str:
        return self.of.expected

    def read(self, node: Node, label: str, source: Source) -> Any:
        if isinstance(node, Scalar) and node.value is None:
            return None
        return self.of.read(node, label, source)

    def schema(self, definitions: Definitions) -> Schema:
        return {"anyOf": [self.of.schema(definitions), {"type": "null"}]}


class Entries(Shape, frozen=True):
    """A list whose entries have readers of their own, which know what each is called."""

    of: Shape
    expected: str = "a list"

    def read(self, node: Node, label: str, source: Source) -> Sequence:
        if not isinstance(node, Sequence):
            raise self.refuse(node, label, source)
        return node

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "array", "items": self.of.schema(definitions)}


class Renamed(Record, frozen=True, dict=True):
    """A mapping some of whose keys had other names in earlier versions of Torc, which it no longer takes."""

    earlier: tuple[tuple[str, str], ...] = ()

    def _refuse_unknown(self, key: Scalar, node: Mapping, label: str, source: Source) -> Refusal:
        now = dict(self.earlier).get(key.text)
        if now is None:
            return super()._refuse_unknown(key, node, label, source)
        message = f"'{key.text}' is not a key of {label}"
        return source.refuse("unknown_key", message, key, hint=f"Torc calls it '{now}' now")


def _any_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


ANY_TEXT = Value("a text", _any_text, {"type": "string"})
_TEXTS = ListOf(TEXT)
# Regular expressions, which are checked when the values of the parameters are in them.
_PATTERNS = _TEXTS


def _optional(shape: Shape, about: str) -> Key:
    return Key(Optional(shape), about)


def _node(shape: Shape) -> Deferred:
    return Deferred(lambda: shape)


PARAMETER_VALUE = Either(
    "a text such as '1:10' or '[a,b]', a number or a list",
    text=ANY_TEXT,
    flag=FLAG,
    number=Json(),
    list=ListOf(Json()),
)
PARAMETERS = MapOf(
    _node(PARAMETER_VALUE), pattern=r"[^\s{}:$]+", names="what can stand in braces: no blank, ':', '{', '}' or '$'"
)
_EXPANSION = {
    "parameters": _optional(PARAMETERS, "one for each combination of their values"),
    "parameter_mode": _optional(Choice(("product", "zip")), "how they are combined (default product)"),
    "use_parameters": _optional(_TEXTS, "which parameters of the workflow it takes, where it has none of its own"),
}

_EARLIER = {
    "blocked_by": "depends_on",
    "blocked_by_regexes": "depends_on_regexes",
    "blocked_by_job_names": "depends_on",
    "blocked_by_job_name_regexes": "depends_on_regexes",
    "resource_requirements_name": "resource_requirements",
    "scheduler_name": "scheduler",
    "input_file_names": "input_files",
    "output_file_names": "output_files",
    "input_file_name_regexes": "input_file_regexes",
    "output_file_name_regexes": "output_file_regexes",
    "input_user_data_names": "input_user_data",
    "output_data_names": "output_user_data",
    "output_user_data_names": "output_user_data",
}
JOB: Record = Renamed(
    "torc_job",
    {
        "name": Key(TEXT, "the name of the step", is_required=True),
        "command": Key(TEXT, "the step's 'shell'", is_required=True),
        "invocation_script": _optional(TEXT, "stands before the command in the step's 'shell'"),
        "resource_requirements": _optional(TEXT, "the step's 'resources'"),
        "failure_handler": _optional(TEXT, "the step's 'retry'"),
        "scheduler": _optional(TEXT, "kept for a cluster as 'x-torc'"),
        "cancel_on_blocking_job_failure": _optional(FLAG, "false: the step's needs are 'on: always' (default true)"),
        "supports_termination": _optional(FLAG, "nothing: every step gets SIGTERM, and time to end"),
        "depends_on": _optional(_TEXTS, "the step's 'needs'"),
        "depends_on_regexes": _optional(_PATTERNS, "the step's 'needs': all jobs whose name matches"),
        "input_files": _optional(_TEXTS, "the step's 'reads'"),
        "output_files": _optional(_TEXTS, "the step's 'writes'"),
        "input_file_regexes": _optional(_PATTERNS, "all files whose name matches"),
        "output_file_regexes": _optional(_PATTERNS, "all files whose name matches"),
        "input_user_data": _optional(_TEXTS, "the step needs those who write them"),
        "output_user_data": _optional(_TEXTS, "who reads them needs the step"),
        "input_user_data_regexes": _optional(_PATTERNS, "all user data whose name matches"),
        "output_user_data_regexes": _optional(_PATTERNS, "all user data whose name matches"),
        **_EXPANSION,
    },
    earlier=tuple(_EARLIER.items()),
)

FILE = Record(
    "torc_file",
    {
        "name": Key(TEXT, "its name in 'files'", is_required=True),
        "path": Key(TEXT, "where it is", is_required=True),
        **_EXPANSION,
    },
)

USER_DATA = Record(
    "torc_user_data",
    {
        "name": _optional(TEXT, "what it is called; without a name nobody can use it"),
        "data": _optional(_node(Json()), "the value that commands get"),
        "is_ephemeral": _optional(FLAG, "nothing: each run starts from the file"),
    },
)

REQUIREMENTS = Record(
    "torc_resource_requirements",
    {
        "name": Key(TEXT, "what jobs call it", is_required=True),
        "num_cpus": Key(whole(0), "'cpus' of 'resources'", is_required=True),
        "memory": Key(_node(TEXT), "'memory' of 'resources': 512k, 1m, 2g", is_required=True),
        "num_gpus": _optional(whole(0), "'gpus' of 'resources'"),
        "num_nodes": _optional(whole(0), "more than one is for a cluster"),
        "runtime": _optional(_node(TEXT), "kept for a cluster, and for the order of jobs"),
    },
)

RULE = Record(
    "torc_rule",
    {
        "exit_codes": _optional(ListOf(whole(-SIGNAL_MAX, 255)), "'exit_codes'; -1 is death by any signal"),
        "match_all_exit_codes": _optional(FLAG, "'any: true'"),
        "recovery_script": _optional(TEXT, "'recovery_script'"),
        "max_retries": _optional(
            whole(0, 1_000_000), f"'max_attempts': Torc counts attempts (default {MAX_RETRIES_DEFAULT})"
        ),
    },
)
HANDLER = Record(
    "torc_failure_handler",
    {
        "name": Key(TEXT, "its name in 'retry_policies'", is_required=True),
        "rules": Key(ListOf(RULE), "its rules", is_required=True),
    },
)

SCHEDULER = Record(
    "torc_slurm_scheduler",
    {
        "name": _optional(TEXT, "kept for a cluster"),
        "account": Key(TEXT, "kept for a cluster", is_required=True),
        "partition": _optional(TEXT, "kept for a cluster"),
        "nodes": _optional(whole(1), "kept for a cluster"),
        "walltime": _optional(TEXT, "kept for a cluster"),
        "mem": _optional(TEXT, "kept for a cluster"),
        "gres": _optional(TEXT, "kept for a cluster"),
        "qos": _optional(TEXT, "kept for a cluster"),
        "ntasks_per_node": _optional(whole(1), "kept for a cluster"),
        "tmp": _optional(TEXT, "kept for a cluster"),
        "extra": _optional(ANY_TEXT, "kept for a cluster"),
    },
)
SLURM_DEFAULTS = MapOf(
    Either("a text, a number or true", text=ANY_TEXT, flag=FLAG, number=Json()),
    pattern=r"[a-z][a-z0-9_-]*",
    names="a long option of sbatch",
)

ACTION = Record(
    "torc_action",
    {
        "trigger_type": Key(Choice(TRIGGERS), "when its step runs", is_required=True),
        "action_type": Key(Choice(("run_commands", "schedule_nodes")), "what it does", is_required=True),
        "jobs": _optional(_TEXTS, "the jobs that it is about"),
        "job_name_regexes": _optional(_PATTERNS, "all jobs whose name matches"),
        "commands": _optional(ListOf(ANY_TEXT), "the step's commands, one after the other"),
        "scheduler": _optional(TEXT, "kept for a cluster"),
        "scheduler_type": _optional(TEXT, "kept for a cluster"),
        "num_allocations": _optional(whole(0), "kept for a cluster"),
        "start_one_worker_per_node": _optional(FLAG, "kept for a cluster"),
        "max_parallel_jobs": _optional(whole(0), "kept for a cluster"),
        "persistent": _optional(FLAG, "kept for a cluster"),
    },
)

MONITOR = Record(
    "torc_resource_monitor",
    {
        "enabled": _optional(FLAG, "nothing: what a step uses is always measured"),
        "granularity": _optional(Choice(("summary", "time_series")), "nothing: peaks and sums are kept"),
        "sample_interval_seconds": _optional(whole(1), "nothing: the system counts"),
        "generate_plots": _optional(FLAG, "nothing: see 'mulligan report'"),
    },
)

WORKFLOW = Record(
    "torc_workflow",
    {
        "name": Key(TEXT, "'name'", is_required=True),
        "user": _optional(TEXT, "kept as 'x-torc'"),
        "description": _optional(ANY_TEXT, "'description'"),
        "project": _optional(ANY_TEXT, "kept as 'x-torc'"),
        "metadata": _optional(ANY_TEXT, "kept as 'x-torc'"),
        "parameters": _optional(PARAMETERS, "what jobs and files name in 'use_parameters'"),
        "jobs": Key(Entries(JOB), "'steps'", is_required=True),
        "files": _optional(Entries(FILE), "'files'"),
        "user_data": _optional(Entries(USER_DATA), "values in commands"),
        "resource_requirements": _optional(Entries(REQUIREMENTS), "'resources' of the steps that name them"),
        "failure_handlers": _optional(Entries(HANDLER), "'retry_policies'"),
        "slurm_schedulers": _optional(Entries(SCHEDULER), "kept for a cluster as 'x-torc'"),
        "slurm_defaults": _optional(SLURM_DEFAULTS, "kept for a cluster as 'x-torc'"),
        "resource_monitor": _optional(_node(MONITOR), "nothing: what a step uses is always measured"),
        "actions": _optional(Entries(ACTION), "steps of their own"),
        "use_pending_failed": _optional(FLAG, "'triage: true' for every step"),
        "compute_node_expiration_buffer_seconds": _optional(whole(0), "kept for a cluster as 'x-torc'"),
        "compute_node_wait_for_new_jobs_seconds": _optional(whole(0), "kept for a cluster as 'x-torc'"),
        "compute_node_ignore_workflow_completion": _optional(FLAG, "kept for a cluster as 'x-torc'"),
        "compute_node_wait_for_healthy_database_minutes": _optional(whole(0), "kept for a cluster as 'x-torc'"),
        "jobs_sort_method": _optional(Choice(SORT_METHODS), "the order of the steps"),
    },
)


def entries(form: Fields, key: str) -> list[Node]:
    """The entries of a list; none where there is no list."""
    node: Sequence | None = form.get(key)
    return node.items if node is not None else []


RECORDS = (
    WORKFLOW,
    JOB,
    FILE,
    USER_DATA,
    REQUIREMENTS,
    HANDLER,
    RULE,
    SCHEDULER,
    ACTION,
    MONITOR,
)
