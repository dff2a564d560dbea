"""Every key of Torc's files, with what becomes of it.

Torc refuses unknown keys everywhere but in `resource_monitor` and `slurm_defaults`. An optional key may be null.
"""

from __future__ import annotations

from mulligan.formats.value_schemas import ANY_TEXT, optional
from mulligan.language.keys.action_keys import as_node
from mulligan.language.keys.value_schemas import (
    FLAG,
    TEXT,
    Choice,
    Definitions,
    Either,
    Fields,
    Json,
    Key,
    ListOf,
    MapOf,
    Record,
    Schema,
    ValueSchema,
    whole,
)
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source

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
# The highest signal number. A shell reports a signal as 128 plus its number, Torc as a negative number.
SIGNAL_MAX = 64


class Entries(ValueSchema, frozen=True):
    """A list whose entries are read later, by readers that know their names."""

    of: ValueSchema
    expected: str = "a list"

    def read(self, node: Node, label: str, source: Source) -> Sequence:
        if not isinstance(node, Sequence):
            raise self.refuse(node, label, source)
        return node

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return {"type": "array", "items": self.of.to_json_schema(definitions)}


class RenamedKeysRecord(Record, frozen=True, dict=True):
    """A mapping with keys that had other names in earlier versions of Torc, which are refused."""

    earlier: tuple[tuple[str, str], ...] = ()

    def _refuse_unknown(self, key: Scalar, node: Mapping, label: str, source: Source) -> Refusal:
        now = dict(self.earlier).get(key.text)
        if now is None:
            return super()._refuse_unknown(key, node, label, source)
        message = f"'{key.text}' is not a key of {label}"
        return source.refuse("unknown_key", message, key, hint=f"Torc calls it '{now}' now")


_TEXTS = ListOf(TEXT)
# Regular expressions; they are checked after parameters are filled in.
_PATTERNS = _TEXTS


PARAMETER_VALUE = Either(
    "a text such as '1:10' or '[a,b]', a number or a list",
    text=ANY_TEXT,
    flag=FLAG,
    number=Json(),
    list=ListOf(Json()),
)
PARAMETERS = MapOf(
    as_node(PARAMETER_VALUE), pattern=r"[^\s{}:$]+", names="characters other than blanks, ':', '{', '}' and '$'"
)
_EXPANSION = {
    "parameters": optional(PARAMETERS, "one for each combination of their values"),
    "parameter_mode": optional(Choice(("product", "zip")), "how they are combined (default product)"),
    "use_parameters": optional(_TEXTS, "which parameters of the workflow it uses, if it has none itself"),
}

_FORMER_KEYS = {
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
JOB: Record = RenamedKeysRecord(
    "torc_job",
    {
        "name": Key(TEXT, "the name of the step", is_required=True),
        "command": Key(TEXT, "the step's 'shell'", is_required=True),
        "invocation_script": optional(TEXT, "comes before the command in the step's 'shell'"),
        "resource_requirements": optional(TEXT, "the step's 'resources'"),
        "failure_handler": optional(TEXT, "the step's 'retry'"),
        "scheduler": optional(TEXT, "'labels' of 'resources': pilots of that profile run it"),
        "cancel_on_blocking_job_failure": optional(FLAG, "false: the step's needs are 'on: always' (default true)"),
        "supports_termination": optional(FLAG, "no effect: every step gets SIGTERM and time to end"),
        "depends_on": optional(_TEXTS, "the step's 'needs'"),
        "depends_on_regexes": optional(_PATTERNS, "the step's 'needs': all jobs whose name matches"),
        "input_files": optional(_TEXTS, "the step's 'reads'"),
        "output_files": optional(_TEXTS, "the step's 'writes'"),
        "input_file_regexes": optional(_PATTERNS, "all files whose name matches"),
        "output_file_regexes": optional(_PATTERNS, "all files whose name matches"),
        "input_user_data": optional(_TEXTS, "the step needs the steps that write them"),
        "output_user_data": optional(_TEXTS, "steps that read them need this step"),
        "input_user_data_regexes": optional(_PATTERNS, "all user data whose name matches"),
        "output_user_data_regexes": optional(_PATTERNS, "all user data whose name matches"),
        **_EXPANSION,
    },
    earlier=tuple(_FORMER_KEYS.items()),
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
        "name": optional(TEXT, "its name; data without a name cannot be used"),
        "data": optional(as_node(Json()), "the value that commands get"),
        "is_ephemeral": optional(FLAG, "no effect: each run starts from the file"),
    },
)

REQUIREMENTS = Record(
    "torc_resource_requirements",
    {
        "name": Key(TEXT, "the name that jobs use", is_required=True),
        "num_cpus": Key(whole(0), "'cpus' of 'resources'", is_required=True),
        "memory": Key(as_node(TEXT), "'memory' of 'resources': 512k, 1m, 2g", is_required=True),
        "num_gpus": optional(whole(0), "'gpus' of 'resources'"),
        "num_nodes": optional(whole(0), "more than one is for a cluster"),
        "runtime": optional(as_node(TEXT), "kept for a cluster, and for the order of jobs"),
    },
)

RULE = Record(
    "torc_rule",
    {
        "exit_codes": optional(ListOf(whole(-SIGNAL_MAX, 255)), "'exit_codes'; -1 is any signal"),
        "match_all_exit_codes": optional(FLAG, "'any: true'"),
        "recovery_script": optional(TEXT, "'recovery_script'"),
        "max_retries": optional(
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
        "name": optional(TEXT, "the name of a profile in 'slurm', and its label"),
        "account": Key(TEXT, "'account' of the profile", is_required=True),
        "partition": optional(TEXT, "'partition' of the profile"),
        "nodes": optional(whole(1), "'nodes' of the profile"),
        "walltime": optional(TEXT, "'walltime' of the profile (default 01:00:00)"),
        "mem": optional(TEXT, "'memory' of the profile"),
        "gres": optional(TEXT, "'gpus' of the profile for gpu:N; '--gres' among its options for anything else"),
        "qos": optional(TEXT, "'qos' of the profile"),
        "ntasks_per_node": optional(whole(1), "'--ntasks-per-node' among its options"),
        "tmp": optional(TEXT, "'--tmp' among its options"),
        "extra": optional(ANY_TEXT, "further options of the profile"),
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
        "jobs": optional(_TEXTS, "the jobs it refers to"),
        "job_name_regexes": optional(_PATTERNS, "all jobs whose name matches"),
        "commands": optional(ListOf(ANY_TEXT), "the step's commands, one after the other"),
        "scheduler": optional(TEXT, "the profile whose pilots are submitted"),
        "scheduler_type": optional(TEXT, "kept under 'x-torc'"),
        "num_allocations": optional(whole(0), "'pilots' of the profile"),
        "start_one_worker_per_node": optional(FLAG, "true: a pilot for each node"),
        "max_parallel_jobs": optional(whole(0), "no effect: a pilot takes what it has room for"),
        "persistent": optional(FLAG, "kept under 'x-torc'"),
    },
)

MONITOR = Record(
    "torc_resource_monitor",
    {
        "enabled": optional(FLAG, "no effect: the use of resources is always measured"),
        "granularity": optional(Choice(("summary", "time_series")), "no effect: peaks and sums are kept"),
        "sample_interval_seconds": optional(whole(1), "no effect: the operating system measures"),
        "generate_plots": optional(FLAG, "no effect: see 'mulligan report'"),
    },
)

WORKFLOW = Record(
    "torc_workflow",
    {
        "name": Key(TEXT, "'name'", is_required=True),
        "user": optional(TEXT, "kept as 'x-torc'"),
        "description": optional(ANY_TEXT, "'description'"),
        "project": optional(ANY_TEXT, "kept as 'x-torc'"),
        "metadata": optional(ANY_TEXT, "kept as 'x-torc'"),
        "parameters": optional(PARAMETERS, "what jobs and files name in 'use_parameters'"),
        "jobs": Key(Entries(JOB), "'steps'", is_required=True),
        "files": optional(Entries(FILE), "'files'"),
        "user_data": optional(Entries(USER_DATA), "values in commands"),
        "resource_requirements": optional(Entries(REQUIREMENTS), "'resources' of the steps that name them"),
        "failure_handlers": optional(Entries(HANDLER), "'retry_policies'"),
        "slurm_schedulers": optional(Entries(SCHEDULER), "the profiles of 'slurm'"),
        "slurm_defaults": optional(SLURM_DEFAULTS, "keys and options of all profiles"),
        "resource_monitor": optional(as_node(MONITOR), "no effect: the use of resources is always measured"),
        "actions": optional(Entries(ACTION), "further steps"),
        "use_pending_failed": optional(FLAG, "'triage: true' for every step"),
        "compute_node_expiration_buffer_seconds": optional(whole(0), "kept for a cluster as 'x-torc'"),
        "compute_node_wait_for_new_jobs_seconds": optional(whole(0), "kept for a cluster as 'x-torc'"),
        "compute_node_ignore_workflow_completion": optional(FLAG, "kept for a cluster as 'x-torc'"),
        "compute_node_wait_for_healthy_database_minutes": optional(whole(0), "kept for a cluster as 'x-torc'"),
        "jobs_sort_method": optional(Choice(SORT_METHODS), "the order of the steps"),
    },
)


def entries_of(form: Fields, key: str) -> list[Node]:
    """The entries of a list; none if the key is missing."""
    node: Sequence | None = form.get(key)
    return node.items if node is not None else []
