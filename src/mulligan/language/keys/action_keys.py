"""The keys of every action: `shell`, `http`, `sql` and the others."""

from __future__ import annotations

from typing import Any

from mulligan.core.deciding.json_schema import schema_problem
from mulligan.core.model.program_calls import CALLS_MAX
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import MAX_TURNS_DEFAULT
from mulligan.language.keys.value_schemas import (
    DURATION,
    FLAG,
    LIMIT,
    PLAIN,
    SIZE,
    STEP_NAME,
    TEXT,
    Choice,
    Deferred,
    Definitions,
    Either,
    Json,
    Key,
    ListOf,
    MapOf,
    Record,
    Schema,
    Template,
    Value,
    ValueSchema,
    text_that,
    whole,
)
from mulligan.language.python.requirements import REQUIREMENTS
from mulligan.language.shell.shell import strict_options
from mulligan.language.text.nodes import Node, Source

ACTIONS = ("shell", "python", "http", "sql", "agent", "workflow", "wait", "approve")
ANY_TEXT = Template(types=("string", "number", "boolean", "null"))
TEMPLATED = Json()  # any value whose texts may hold ${…}


def as_node(schema: ValueSchema) -> Deferred:
    """Keep the node as it is written: the action has its own reader."""
    return Deferred(lambda: schema)


_CALL = lazy_regex(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


CALL = Value(
    "a function such as package.module:function",
    text_that(lambda text: _CALL.fullmatch(text)),
    {"type": "string", "pattern": "^[A-Za-z_].*:.+$"},
)

_QUERY = MapOf(TEMPLATED, pattern=r"(?s:.+)")
HTTP_AUTH = Record(
    "auth",
    {
        "user": Key(ANY_TEXT, "the user name", is_required=True),
        "password": Key(ANY_TEXT, "use a secret: ${secrets.NAME}"),
    },
)
HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADERS = as_node(MapOf(ANY_TEXT, HEADER, names="letters, digits and '-'"))
HTTP = Record(
    "http",
    {
        "method": Key(Choice(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")), "default GET"),
        "url": Key(as_node(Template("an address")), "the URL", is_required=True),
        "headers": Key(_HEADERS, "the request's headers"),
        "params": Key(as_node(_QUERY), "query parameters of the URL"),
        "json": Key(as_node(TEMPLATED), "a body to send as JSON"),
        "form": Key(as_node(_QUERY), "a body to send as a form"),
        "body": Key(as_node(ANY_TEXT), "a body to send unchanged"),
        "auth": Key(as_node(HTTP_AUTH), "user name and password (basic authentication)"),
        "expect": Key(
            ListOf(whole(100, 599), or_one=True, at_least=1),
            "the status codes that count as success (default: any 2xx)",
        ),
        "follow_redirects": Key(FLAG, "false: return redirects as they are (default true)"),
        "connect_timeout": Key(LIMIT, "how long connecting may take (default 10s)"),
        "read_timeout": Key(LIMIT, "how long the server may send nothing (default 60s)"),
        "max_body": Key(SIZE, "a larger response fails with OUTPUT_INVALID (default 16MiB)"),
        "verify": Key(FLAG, "false: accept any TLS certificate (default true)"),
    },
)
SQL = Record(
    "sql",
    {
        "connection": Key(
            as_node(Template("a connection")),
            "the address of the database: sqlite:///FILE, postgresql://… or duckdb:///FILE",
            is_required=True,
        ),
        "query": Key(
            as_node(Template("a query")),
            "one or more statements; values in ${…} are bound as parameters",
            is_required=True,
        ),
        "params": Key(as_node(TEMPLATED), "values for the query's own parameters: by name for :name, a list for ?"),
        "read_only": Key(FLAG, "true: a query that writes fails"),
        "rows": Key(Choice(("json", "none")), "none: the output is {rowcount: N} (default json)"),
    },
)


def _provider(value: Any) -> Any:
    return value if isinstance(value, str) and "${" in value else STEP_NAME.convert(value)


MCP_SERVER = Record(
    "mcp_server",
    {
        "command": Key(
            as_node(Either("a command, or a list of its words", text=PLAIN, list=ListOf(TEMPLATED, at_least=1))),
            "starts the server, which is spoken to over its standard input and output",
        ),
        "url": Key(as_node(Template("an address")), "the address of a server (streamable HTTP)"),
        "env": Key(as_node(MapOf(ANY_TEXT)), "environment variables of the command"),
        "headers": Key(_HEADERS, "headers for the address"),
        "timeout": Key(LIMIT, "how long one call may take (default 1m)"),
        "on_lost": Key(Choice(("rerun", "fail")), "what to do with a call whose worker is lost (default rerun)"),
    },
    one_of=(("command",), ("url",)),
)
TOOL_SERVER = Record(
    "tool_server",
    {
        "mcp": Key(as_node(MCP_SERVER), "an MCP server", is_required=True),
        "allow": Key(ListOf(PLAIN, at_least=1), "the tools that the agent may call", is_required=True),
        "prefix": Key(STEP_NAME, "stands before the names of its tools, if those of two servers are the same"),
    },
)
PROVIDER = Value(STEP_NAME.expected, _provider, {"type": "string", "pattern": r"^[A-Za-z0-9_-]+$|\$\{"})


class JsonSchema(Json, frozen=True):
    """A JSON Schema of which every keyword is checked."""

    def read(self, node: Node, label: str, source: Source) -> Any:
        schema = super().read(node, label, source)
        if not isinstance(schema, dict):
            raise self.refuse(node, label, source)
        if problem := schema_problem(schema):
            hint = "docs/agents/providers.md lists the keywords of JSON Schema that are checked"
            raise source.refuse("json_schema", f"{label} is not valid: {problem}", node, hint=hint)
        return schema

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return {"type": "object"}


ANSWER = Either(
    "text, json, or a mapping with 'schema'",
    text=Choice(("text", "json")),
    mapping=Record("answer", {"schema": Key(JsonSchema("a JSON Schema"), "what it must match", is_required=True)}),
)
AGENT = Record(
    "agent",
    {
        "provider": Key(as_node(PROVIDER), "which agent: claude, codex, or one that the worker's environment names"),
        "prompt": Key(as_node(Template("a prompt")), "what it is asked to do", is_required=True),
        "model": Key(as_node(Template("a model")), "the model"),
        "context": Key(as_node(TEMPLATED), "more context, in addition to the prompt and the outputs of earlier steps"),
        "upstream": Key(FLAG, "false: do not include the outputs of earlier steps"),
        "answer": Key(ANSWER, "json, or {schema: …}: it must answer with JSON, available as output.json"),
        "skip_permissions": Key(FLAG, "true: it edits files and runs commands without asking"),
        "tools": Key(
            as_node(
                ListOf(Either("the name of a step with 'tool', or an MCP server", text=STEP_NAME, mapping=TOOL_SERVER))
            ),
            "what it may call: names of steps with 'tool', or {mcp: …, allow: […]}",
        ),
        "max_turns": Key(
            whole(1, 1_000), f"how often its model is asked in one attempt, with tools (default {MAX_TURNS_DEFAULT})"
        ),
        "max_tool_calls": Key(whole(1, 100_000), "how many calls of tools one attempt may make"),
        "on_tool_failure": Key(
            Choice(("report", "fail")), "a failed tool is reported to the agent (default), or fails it"
        ),
        "session": Key(STEP_NAME, "keeps its messages for the next agent of the run with the same session"),
    },
)
CHILD = Record(
    "workflow_action",
    {
        "file": Key(TEXT, "relative to this file", is_required=True),
        "inputs": Key(as_node(MapOf(TEMPLATED)), "the inputs of the child run"),
    },
)
STRICT = Key(FLAG, "false: continue after a command fails (default true: run with 'bash -euo pipefail' or 'sh -eu')")


class ShellProgram(Value, frozen=True):
    """The name or path of a shell. Options are refused: `strict` sets the usual ones."""

    def read(self, node: Node, label: str, source: Source) -> Any:
        program = super().read(node, label, source)
        name, *words = program.split()
        if any(word.startswith("-") for word in words):
            text = "put its options into the text"
            if options := " ".join(strict_options(name)):
                text = (
                    f"it runs with '{options}' unless 'strict: false' is set; other options go into the text (set -x)"
                )
            hint = f"write '{name}'; {text}"
            raise source.refuse("shell", f"{label} takes a program without options", node, hint=hint)
        return program


SHELL_PROGRAM = ShellProgram(PLAIN.expected, PLAIN.convert, PLAIN.json_schema)
SHELL = Record(
    "shell",
    {
        "text": Key(as_node(Template("a shell command")), "what it runs", is_required=True),
        "shell": Key(SHELL_PROGRAM, "the program that is started with '-c' and the text (default bash)"),
        "strict": STRICT,
    },
)
PYTHON = Record(
    "python",
    {
        "code": Key(Template("python code"), "code with a main(…)"),
        "call": Key(CALL, "a function that workers can import, or one of 'source'"),
        "source": Key(TEXT, "the text of the module in 'call': workers run it instead of importing it"),
        "file": Key(
            PLAIN, "where 'source' comes from, relative to where 'run' was called: its folder is imported from"
        ),
        "import_from": Key(PLAIN, "a further folder with modules, relative to where 'run' was called"),
        "python": Key(PLAIN, "the interpreter: a name, or a path relative to where 'run' was called"),
        "requirements": Key(REQUIREMENTS, "the packages that it needs: it runs in an environment that has them"),
        "program": Key(FLAG, "true: the function is a program, which calls steps while it runs"),
        "calls": Key(whole(1, CALLS_MAX), "how many calls a program may make (default: 10,000)"),
    },
    one_of=(("code",), ("call",)),
)
ON = Record("on", {"dask": Key(FLAG, "true: 'client' is a client of the Dask cluster that runs the steps")})
_TIME = Template("a time such as 2030-01-31T09:00:00Z")
# The keys that go with `event` alone.
OF_EVENT = ("timeout", "default", "schema")
WAIT = Record(
    "wait",
    {
        "until": Key(as_node(_TIME), "when it ends"),
        "event": Key(as_node(Template("the name of an event")), "the event that it waits for: see 'mulligan send'"),
        "timeout": Key(LIMIT, "how long to wait for the event"),
        "default": Key(as_node(TEMPLATED), "its output if no event has come in time (default: it fails)"),
        "schema": Key(JsonSchema("a JSON Schema"), "what the value of the event must match"),
    },
    one_of=(("until",), ("event",)),
)
APPROVE = Record(
    "approve",
    {
        "message": Key(as_node(Template("a message")), "the question", is_required=True),
        "timeout": Key(LIMIT, "how long to wait for an answer"),
        "default": Key(Choice(("approve", "refuse")), "the answer after the timeout (default refuse)"),
        "evidence": Key(
            as_node(MapOf(TEMPLATED)), "what is shown with the question: texts, rows, diffs, files by name"
        ),
    },
)

ACTION_SCHEMAS: dict[str, ValueSchema] = {
    "shell": Either("a shell command", text=Template("a shell command"), mapping=SHELL),
    "python": Either("python code, or a mapping with 'code' or 'call'", text=Template(), mapping=PYTHON),
    "http": HTTP,
    "sql": SQL,
    "agent": Either("a prompt, or a mapping with 'prompt'", text=Template(), mapping=AGENT),
    "workflow": Either("a file, or a mapping with 'file'", text=TEXT, mapping=CHILD),
    "wait": Either("a duration such as 30s", text=Template(), number=DURATION, mapping=WAIT),
    "approve": Either("a message, or a mapping with 'message'", text=Template(), mapping=APPROVE),
}
ACTION_KEYS = {
    "shell": Key(as_node(ACTION_SCHEMAS["shell"]), "a shell command; ${…} becomes an environment variable"),
    "python": Key(as_node(ACTION_SCHEMAS["python"]), "code with a main(…), or {call: 'package.module:function'}"),
    "http": Key(as_node(ACTION_SCHEMAS["http"]), "an HTTP request"),
    "sql": Key(as_node(ACTION_SCHEMAS["sql"]), "a query; values are bound as parameters"),
    "agent": Key(as_node(ACTION_SCHEMAS["agent"]), "a prompt for an AI agent"),
    "workflow": Key(as_node(ACTION_SCHEMAS["workflow"]), "another workflow, as a child run"),
    "wait": Key(as_node(ACTION_SCHEMAS["wait"]), "a pause: a duration, {until: a time} or {event: its name}"),
    "approve": Key(as_node(ACTION_SCHEMAS["approve"]), "waits for a person's approval"),
    "args": Key(as_node(MapOf(TEMPLATED)), "the arguments of a python action, by name"),
    "on": Key(ON, "what a python action gets of the cluster that runs the steps: {dask: true}"),
    "stdin": Key(as_node(TEMPLATED), "the standard input of a shell action"),
    "strict": STRICT,
}
