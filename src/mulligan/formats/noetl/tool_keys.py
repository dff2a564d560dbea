"""The keys of NoETL's tools, and what becomes of each."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mulligan.formats.value_schemas import LenientRecord
from mulligan.language.keys.value_schemas import (
    FLAG,
    TEXT,
    Choice,
    Deferred,
    Either,
    Json,
    Key,
    ListOf,
    Nothing,
    Record,
    Value,
    number,
    whole,
)
from mulligan.language.text.nodes import Mapping, Refusal, Scalar, Source, shorten
from mulligan.language.text.suggestions import key_hint

# A value that may contain templates: it is passed on as it is written.
ANY = Deferred(Json)
NAME = Either("a name", text=TEXT, number=Value("a name", str, {"type": "number"}))
SECONDS = number(0, 86_400 * 365)
ATTEMPTS = whole(1, 1000)
GROWTH = number(1, 1000)
DESCRIPTION = Key(Either("a text", text=TEXT, empty=Nothing()), "the step's 'description'")


class Dialect(LenientRecord, frozen=True):
    """A mapping of one of NoETL's dialects, which ignores unknown keys: each is a warning.

    A key in `elsewhere`, which NoETL refuses or which we cannot honour, is refused with what to write instead. Keys in
    `ignored` are warnings, with what to write instead.
    """

    elsewhere: dict[str, str] = msgspec.field(default_factory=dict)
    ignored: dict[str, str] = msgspec.field(default_factory=dict)

    def is_foreign(self, word: str) -> bool:
        return word in self.elsewhere

    def hint(self, word: str) -> str:
        return self.ignored.get(word) or super().hint(word)

    def _refuse_unknown(self, key: Scalar, node: Mapping, label: str, source: Source) -> Refusal:
        hint = self.elsewhere.get(key.text) or key_hint(key.text, self.words)
        return source.refuse("unknown_key", f"'{shorten(key.text)}' is not a key of {label}", key, hint=hint)


class Open(Record, frozen=True):
    """A mapping that may have any other keys as well."""

    def known(self, word: str) -> Key | None:
        return self.keys.get(word) or _ANY_KEY

    @property
    def words(self) -> Collection[str]:
        return self.keys


_ANY_KEY = Key(ANY)


OUTPUT = Dialect(
    "output",
    {
        "store": Key(ANY, "ignored: a result of any size is kept"),
        "select": Key(ANY, "not honoured, the result is there whole: a warning"),
        "inline_max_bytes": Key(ANY, "ignored"),
        "preview_max_bytes": Key(ANY, "ignored"),
        "scope": Key(ANY, "ignored: a result is kept as long as its run"),
    },
    elsewhere={"accumulate": "gather with 'set'", "as": "write it as 'set' of the step"},
)
# Words of earlier engines, which set values: ignored, they would be wrong data.
_SETS_OF_RULES = {
    "set_ctx": "write it as 'set: {ctx.NAME: …}'",
    "set_iter": "write it as 'set: {iter.NAME: …}'",
    "set_vars": "write it as 'set: {ctx.NAME: …}'",
}
RULE_THEN = Dialect(
    "rule_then",
    {
        "do": Key(Choice(("continue", "retry", "break", "jump", "fail")), "what is done", is_required=True),
        "attempts": Key(ANY, "how often it is called in all"),
        "backoff": Key(
            Choice(("none", "fixed", "linear", "exponential")), "how delays grow; 'none' with a delay is constant"
        ),
        "delay": Key(ANY, "seconds before the next call"),
        "to": Key(NAME, "the task to jump to"),
        "set": Key(ANY, "is set"),
    },
    elsewhere=_SETS_OF_RULES,
)
RULE_ELSE = Dialect(
    "rule_else",
    {
        "then": Key(RULE_THEN, "what is done where no rule before holds"),
        # NoETL skips an `else` without `then`. It is taken as it is meant.
        **{word: msgspec.structs.replace(key, is_required=False) for word, key in RULE_THEN.keys.items()},
    },
    elsewhere=_SETS_OF_RULES,
    needed=("then", "do"),
)
RULE = Dialect(
    "rule",
    {
        "when": Key(ANY, "evaluated after each call"),
        "then": Key(RULE_THEN, "what is done where it holds"),
        "else": Key(RULE_ELSE, "what is done where no rule before holds"),
    },
)
TOOL_POLICY = Dialect(
    "tool_policy",
    {
        "rules": Key(ListOf(RULE, at_least=1), "the first that holds decides"),
        "mode": Key(ANY, "ignored, as in NoETL"),
        "on_unmatched": Key(ANY, "ignored, as in NoETL: an error without a rule fails"),
        **{key: Key(ANY, "not honoured, nor by NoETL: a warning") for key in ("before", "after", "finally")},
    },
)
TOOL_SPEC = Dialect(
    "tool_spec",
    {
        "policy": Key(TOOL_POLICY, "what to do after each call"),
        "timeout": Key(ANY, "the step's 'timeout'"),
    },
)
COLLECT = Dialect(
    "collect",
    {
        "strategy": Key(TEXT, "append, extend, concat, merge or replace"),
        "mode": Key(TEXT, "the same"),
        "path": Key(
            TEXT, "the data in an answer that are gathered: a path or a template; they become the data of the result"
        ),
        "from": Key(TEXT, "what is gathered beside the data: a path in an answer, or a template"),
        "into": Key(NAME, "what it is called in the result (default: pages)"),
    },
)
# Not lenient: what cannot be changed would be the same in every call.
NEXT_CALL = Record(
    "next_call",
    {
        **{
            key: Key(ANY, "laid over the tool's key of that name")
            for key in ("params", "headers", "data", "body", "payload", "args", "input")
        },
        **{
            key: Key(ANY, "in the place of the tool's key of that name")
            for key in ("url", "endpoint", "method", "command", "query")
        },
    },
)
_PAGES = {
    "next_call": Key(NEXT_CALL, "the tool is called again with this changed, within the same attempt"),
    "collect": Key(COLLECT, "what of each answer is gathered"),
    "sink": Key(ANY, "where each answer is put"),
}
_FIGURES = {
    "max_attempts": Key(ATTEMPTS, "how often it is called in all"),
    "initial_delay": Key(SECONDS, "seconds before the first retry (default 1)"),
    "backoff_multiplier": Key(GROWTH, "how much longer each further delay is (default 2)"),
    "max_delay": Key(SECONDS, "no delay is longer"),
}
CASE_PAGES = Record("case_pages", {"max_attempts": Key(ATTEMPTS, "how many pages there are at most"), **NEXT_CALL.keys})
RETRY_THEN = Dialect("retry_then", {**_FIGURES, **_PAGES})
ON_SUCCESS = Dialect(
    "on_success",
    {
        "while": Key(ANY, "there is another page where it holds"),
        "when": Key(ANY, "the same"),
        "max_attempts": Key(ATTEMPTS, "how many pages there are at most"),
        **_PAGES,
    },
)
ON_ERROR = Dialect("on_error", {"when": Key(ANY, "a retry only where it holds"), **_FIGURES})
RETRY = Dialect(
    "retry",
    {
        "when": Key(ANY, "a retry only where it holds"),
        "retry_when": Key(ANY, "the same"),
        "then": Key(RETRY_THEN, "how often and when"),
        **_FIGURES,
        "delay": Key(SECONDS, "the same as 'initial_delay'"),
        "backoff": Key(GROWTH, "the same as 'backoff_multiplier'"),
        "jitter": Key(FLAG, "true: a tenth of each delay is random"),
        "on_error": Key(ON_ERROR, "how often and when, after a failure"),
        "on_success": Key(ON_SUCCESS, "pages: the tool is called again while there are more"),
    },
    elsewhere={
        "stop_when": "say when to try again, with 'when'",
        **dict.fromkeys(("next_call", "collect", "sink"), "write it under 'then'"),
    },
)

_COMMON = {
    "kind": Key(TEXT, "which tool it is"),
    "name": Key(NAME, "what it is called in a list of tools"),
    "desc": Key(ANY, "a comment"),
    "input": Key(ANY, "its input"),
    "args": Key(ANY, "the same; 'input' wins"),
    "auth": Key(ANY, "the name of a credential: a secret from the variable NOETL_NAME"),
    "spec": Key(TOOL_SPEC, "what to do after each call"),
    "output": Key(OUTPUT, "where its result is kept"),
    "retry": Key(ANY, "a retry policy: a number, true, a mapping or a list"),
}


# Tools that a sink may be.
SINKS = ("postgres", "duckdb", "http", "python", "shell", "event_log")
_GONE = {
    "eval": "write it as 'spec.policy.rules'",
    "expr": "write it as 'when'",
    "pipe": "write the tools as a list under 'tool'",
    "set_vars": "write it as 'set' of the step",
    "credentials": "write 'attach' in its command",
    "deps": "install packages where the workers run",
    **dict.fromkeys(
        ("db_host", "db_port", "db_user", "db_password", "db_name", "db_conn_string"),
        "name a credential under 'auth', and put it into the variable NOETL_NAME",
    ),
}
# The keys of which a tool has one: a misspelled one is refused.
_NEEDED = {
    "python": ("code", "code_b64", "code_base64", "script"),
    "http": ("url", "endpoint"),
    "shell": ("cmds", "cmd", "command"),
    "playbook": ("path",),
    "postgres": ("command", "commands", "query", "sql", "command_b64", "commands_b64", "query_b64", "script"),
    "duckdb": ("command", "commands", "query", "queries", "cmd", "cmds", "command_b64", "commands_b64", "script"),
}
_IGNORED = {
    **dict.fromkeys(("sink", "save"), "write it as a separate step"),
    "credential": "write it as 'auth'",
    "output_select": "write it as 'output: {select: …}'; the whole result is available anyway",
    "assert": "write a step that checks it",
}
_SQL = {
    "command": "what it runs",
    "commands": "what it runs, several",
    "query": "what it runs",
    "command_b64": "the same in base64",
    "commands_b64": "the same in base64",
    "query_b64": "the same in base64",
    "script": "the file it runs",
}
_TOOL_KEYS = {
    "python": {
        "code": "what it runs",
        "code_b64": "the same in base64",
        "code_base64": "the same in base64",
        "script": "the file it runs",
        "libs": "modules, by the names that the code has for them",
        "data": "'args' of the oldest dialect",
    },
    "http": {
        "method": "the method",
        "url": "where the request goes",
        "endpoint": "the same",
        "headers": "its headers",
        "params": "what follows the '?'",
        "body": "its body, as JSON where it is a mapping or list",
        "payload": "the same",
        "data": "{query, body}",
        "timeout": "how long the server may take, in seconds",
        "verify_ssl": "whether its certificate is verified",
        "verify": "the same",
        "follow_redirects": "whether a redirect is followed",
    },
    "postgres": {
        **_SQL,
        "sql": "what it runs",
        "params": "values that are bound",
        "pool": "ignored",
        "with": "its input",
    },
    "duckdb": {
        **_SQL,
        "queries": "what it runs, several",
        "cmd": "what it runs",
        "cmds": "what it runs, several",
        "params": "values that are bound",
        "database": "the file of the database (default: one that the steps of the run share)",
    },
    "shell": {
        "cmds": "what it runs, one after the other",
        "cmd": "the same",
        "command": "the same",
        "env": "environment variables",
        "cwd": "the folder it runs in",
        "timeout_seconds": "the time of all of them (default 600)",
    },
    "playbook": {
        "path": "the other file: beside this one or in the catalogue, by its place or its 'metadata.path'",
        "version": "ignored: the file that is found",
        "return_step": "the step whose result is the result",
        "timeout": "the step's 'timeout', in seconds",
        "data": "'args' of the oldest dialect",
    },
    "workbook": {"task": "'name' by another name", "data": "'args' of the oldest dialect", "with": "the same"},
    "secrets": {"provider": "'env'; others are refused", "secret_name": "the environment variable"},
    "agent": {
        "framework": "'noetl': another playbook; others are refused",
        "entrypoint": "the path of the playbook",
        "payload": "its input",
        "return_step": "the step whose result is the result",
        "timeout": "the step's 'timeout', in seconds",
        "entrypoint_mode": "ignored",
        "on_failure": "not honoured: a warning",
    },
    "mcp": {
        "endpoint": "the address of the server",
        "url": "the same",
        "server": "the same",
        "method": "what is asked of it (default: tools/call)",
        "tool": "the tool of the server that is called",
        "arguments": "its arguments",
        "headers": "headers of the request",
        "timeout_seconds": "how long the server may take",
    },
    "noop": {},
}
# A credential means nothing to them.
_WITHOUT_AUTH = ("duckdb", "playbook", "workbook", "agent", "noop")
TOOLS = {
    kind: Dialect(
        f"tool_{kind}",
        {
            **{key: found for key, found in _COMMON.items() if key != "auth" or kind not in _WITHOUT_AUTH},
            **{key: Key(ANY, text) for key, text in about.items()},
        },
        elsewhere=_GONE,
        ignored=_IGNORED,
        needed=_NEEDED.get(kind, ()),
    )
    for kind, about in _TOOL_KEYS.items()
}
# Tools of NoETL's that are not here, and what to do in their place.
MISSING_TOOLS = {
    "ducklake": "use 'duckdb', which can attach a ducklake catalog",
    "snowflake": "use 'python' with snowflake's own package",
    "transfer": "use 'duckdb', which reads and writes many sources, or a step for each side",
    "snowflake_transfer": "use 'python' with snowflake's own package",
    "gcs": "use 'shell' with 'gcloud storage', or 'python'",
    "nats": "use 'shell' with the 'nats' program, or 'python'",
    "container": "use 'shell' with 'docker run --rm IMAGE …', or 'kubectl'",
    "script": "use 'shell' or 'python' with its 'script'",
    "artifact": "results of any size are kept: read the step's result; for other files use 'shell' or 'python'",
    "iterator": "write it as 'loop' of a step",
    "playbooks": "write one step per playbook",
    "gateway": "use 'http'",
    "task_sequence": "write the tools as a list under 'tool'",
    "rhai": "use 'python'",
    "result_fetch": "results are there whole: read the step's result",
}
