"""Every mapping of a NoETL file, in each dialect, and what becomes of its keys."""

from __future__ import annotations

from mulligan.formats.noetl.tool_keys import (
    ANY,
    COLLECT,
    DESCRIPTION,
    NAME,
    Dialect,
    Open,
)
from mulligan.language.keys.value_schemas import (
    FLAG,
    TEXT,
    Choice,
    Either,
    Key,
    ListOf,
    MapOf,
    Nothing,
    ValueSchema,
    whole,
)

# -- the file ----------------------------------------------------------------------------------------------------------

METADATA = Open(
    "metadata",
    {
        "name": Key(NAME, "the workflow's 'name'"),
        "path": Key(NAME, "what other playbooks call it by"),
        "description": Key(ANY, "the workflow's 'description'"),
        "tags": Key(ANY, "a comment"),
        "exposed_in_ui": Key(ANY, "a comment"),
        "exposes_as_mcp": Key(ANY, "a comment"),
        "agent": Key(ANY, "a comment"),
        "capabilities": Key(ANY, "a comment"),
        "inline_when_safe": Key(ANY, "a comment"),
    },
)
REQUIRES = Dialect(
    "requires",
    {
        "tools": Key(ListOf(TEXT), "refused where one of them is not there"),
        "features": Key(ListOf(TEXT), "a comment"),
    },
)
EXECUTOR_POLICY = Dialect(
    "executor_policy",
    {
        "defaults": Key(ANY, "not honoured: a warning"),
        "results": Key(ANY, "not honoured: a warning"),
        "limits": Key(ANY, "not honoured: a warning"),
    },
)
EXECUTOR_SPEC = Dialect(
    "executor_spec",
    {
        "entry_step": Key(NAME, "the step that starts (default: 'start', else the first)"),
        "final_step": Key(NAME, "the step that becomes 'end'"),
        "no_next_is_error": Key(FLAG, "'no_match: fail' on every step with arcs"),
        "policy": Key(EXECUTOR_POLICY, "not honoured: a warning"),
    },
)
EXECUTOR = Dialect(
    "executor",
    {
        "profile": Key(Choice(("local", "distributed", "auto")), "makes no difference"),
        "version": Key(TEXT, "makes no difference"),
        "requires": Key(REQUIRES, "what the file cannot do without"),
        "spec": Key(EXECUTOR_SPEC, "where it starts and ends"),
    },
)
KEYCHAIN = Dialect(
    "keychain",
    {
        "name": Key(NAME, "a secret of that name, from the variable NOETL_NAME", is_required=True),
        "kind": Key(
            Choice(
                (
                    *("secret_manager", "oauth2", "google_id_token", "bearer", "static", "credential"),
                    *("credential_ref", "google_oauth", "google_service_account"),
                )
            ),
            "where NoETL gets it; here it comes from the environment, and 'static' is refused",
        ),
        "command": Key(TEXT, "a command that prints it, in the place of the variable; NoETL has no such key"),
        "scope": Key(Choice(("local", "global", "shared", "catalog")), "makes no difference"),
        **{
            key: Key(ANY, "not used: the secret comes from the environment")
            for key in (
                *("provider", "auth", "map", "endpoint", "method", "headers", "data", "auto_renew", "token_field"),
                *("ttl_field", "ttl_seconds", "credential", "target_audience"),
            )
        },
    },
)
WORKBOOK = Dialect(
    "workbook_entry",
    {
        "name": Key(NAME, "what steps call it by", is_required=True),
        "desc": Key(ANY, "a comment"),
        "tool": Key(ANY, "stands in the step that names it"),
        "type": Key(TEXT, "its kind, in the oldest dialect, in which the keys of the tool stand here, too"),
        "assert": Key(ANY, "not honoured: a warning"),
    },
)
WORKLOAD: ValueSchema = Either("a mapping", mapping=MapOf(ANY, r"(?s:.+)"), empty=Nothing())

PLAYBOOK = Dialect(
    "playbook",
    {
        "apiVersion": Key(TEXT, "marks the file as NoETL's; 'noetl.io/v1' is the oldest dialect"),
        "kind": Key(Choice(("Playbook", "playbook")), "what the file is"),
        "metadata": Key(METADATA, "name, description and comments"),
        "name": Key(NAME, "the workflow's 'name', in the oldest dialect"),
        "path": Key(NAME, "what other playbooks call it by, in the oldest dialect"),
        "description": Key(ANY, "the workflow's 'description', in the oldest dialect"),
        "executor": Key(EXECUTOR, "where it starts and ends"),
        "workload": Key(WORKLOAD, "'inputs' with defaults: -i key=value overrides"),
        "keychain": Key(ListOf(KEYCHAIN), "'secrets'"),
        "workbook": Key(ListOf(ANY), "tools that steps call by name"),
        "workflow": Key(ListOf(ANY, at_least=1), "'steps'", is_required=True),
    },
    elsewhere={"vars": "put its entries under 'workload:'", "steps": "did you mean 'workflow'?"},
)

# -- steps -------------------------------------------------------------------------------------------------------------

STEP_POLICY = Dialect(
    "step_policy",
    {
        "admit": Key(ANY, "not honoured, nor by NoETL: a warning"),
        "lifecycle": Key(ANY, "not honoured, nor by NoETL: a warning"),
        "failure": Key(
            ANY, "'best_effort' is 'continue_on_error', 'fail_fast' is 'fail_fast: true' (NoETL reads neither)"
        ),
        "emit": Key(ANY, "not honoured, nor by NoETL: a warning"),
    },
)
STEP_SPEC = Dialect(
    "step_spec",
    {
        "policy": Key(STEP_POLICY, "what holds for the whole step"),
        "timeout": Key(ANY, "the step's 'timeout' (NoETL does not read it)"),
    },
    elsewhere={"next_mode": "write it as 'mode' of 'next.spec'"},
)
ARC = Dialect(
    "arc",
    {
        "step": Key(NAME, "the step that follows", is_required=True),
        "when": Key(ANY, "an edge that is taken where it holds"),
        "set": Key(ANY, "is set where the arc is taken"),
        "spec": Key(ANY, "not honoured, nor by NoETL: a warning"),
    },
    elsewhere={"args": "write it as 'set'"},
)
ROUTER_SPEC = Dialect(
    "next_spec",
    {
        "mode": Key(Choice(("exclusive", "inclusive")), "the first arc that holds (default), or all that hold"),
        "on_no_match": Key(
            Choice(("complete", "quiet", "fail")), "no arc holds: the path ends (default), or the step fails"
        ),
        "policy": Key(ANY, "not honoured, nor by NoETL: a warning"),
    },
)
ROUTER = Dialect(
    "next",
    {
        "spec": Key(ROUTER_SPEC, "how arcs are chosen"),
        "arcs": Key(ListOf(ARC), "what follows"),
    },
)
LOOP_POLICY = Dialect("loop_policy", {"exec": Key(ANY, "makes no difference on one machine")})
LOOP_SPEC = Dialect(
    "loop_spec",
    {
        "mode": Key(Choice(("sequential", "parallel", "async")), "one item after the other (default), or all at once"),
        "max_in_flight": Key(ANY, "'max_parallel' of the map"),
        "policy": Key(LOOP_POLICY, "makes no difference"),
    },
    elsewhere={"frame": "it is for cursors, which are not there: list the rows in a step before"},
)
_LOOP = {
    "in": Key(ANY, "what the map runs over"),
    "iterator": Key(TEXT, "the item's name"),
}
LOOP = Dialect(
    "loop",
    {**_LOOP, "spec": Key(LOOP_SPEC, "how items run")},
    elsewhere={
        "mode": "put it into 'spec:'",
        "collection": "did you mean 'in'?",
        "element": "did you mean 'iterator'?",
        "cursor": "claim the rows in a step before ('update … returning'), and loop over its result",
    },
)
OLDER_LOOP = Dialect(
    "older_loop",
    {
        **_LOOP,
        "mode": Key(Choice(("sequential", "parallel", "async")), "one item after the other (default), or all at once"),
        "collection": Key(ANY, "'in' of the oldest dialect"),
        "element": Key(TEXT, "'iterator' of the oldest dialect"),
        "concurrency": Key(ANY, "'max_parallel' of the map"),
        "max_in_flight": Key(ANY, "'max_parallel' of the map"),
        "limit": Key(whole(0), "'max_items' of the map"),
    },
    elsewhere={
        "spec": "write 'mode' and 'max_in_flight' without 'spec'",
        "cursor": "claim the rows in a step before ('update … returning'), and loop over its result",
        **dict.fromkeys(("where", "order_by", "chunk", "filter", "until"), "make the list in a step before"),
    },
)
STEP = Dialect(
    "step",
    {
        "step": Key(NAME, "the step's name", is_required=True),
        "desc": DESCRIPTION,
        "spec": Key(STEP_SPEC, "what holds for the whole step"),
        "input": Key(ANY, "what its tool is given"),
        "loop": Key(LOOP, "a map over the items"),
        "tool": Key(ANY, "what it does: one tool, or a list of them"),
        "set": Key(ANY, "is set after a success"),
        "next": Key(ROUTER, "what follows"),
        "output": Key(ANY, "not honoured, nor by NoETL: a warning"),
    },
    elsewhere={
        "case": "write each case as an arc of 'next': {step: …, when: …}",
        "set_ctx": "write it as 'set' with 'ctx.NAME'",
        "set_iter": "write it as 'set' with 'iter.NAME'",
        "args": "write it as 'input'",
        "when": "put the condition on the arc that leads here",
        "type": "write it as 'kind' of 'tool'",
        "result": "the result of a step is read by its name",
        "outcome": "the outcome of a step is read as 'output'",
    },
    ignored={
        **dict.fromkeys(("sink", "save"), "write it as a separate step"),
        **dict.fromkeys(("needs", "depends_on"), "write it as an arc: in 'next' of the step that comes before"),
        "vars": "write it as 'set'",
        "retry": "write it as a rule of 'tool.spec.policy'",
        "output_select": "the whole result is available",
        "credential": "write it as 'auth' of 'tool'",
        "assert": "write a step that checks it",
    },
    needed=("tool",),
)
TARGET = Dialect(
    "target",
    {
        "step": Key(NAME, "the step that follows"),
        "args": Key(ANY, "what the step that follows is given"),
        "data": Key(ANY, "'args' of the oldest dialect"),
        "input": Key(ANY, "what the step that follows is given"),
        "when": Key(ANY, "an edge that is taken where it holds"),
        "then": Key(ANY, "the steps that follow where 'when' holds"),
        "else": Key(ANY, "the steps that follow where nothing before held"),
    },
)
CASE = Dialect(
    "case",
    {
        "when": Key(
            ANY,
            "evaluated after the tool ('call.done', 'call.error', 'loop.done', 'step.exit'), or before ('step.enter')",
            is_required=True,
        ),
        "then": Key(ANY, "what is done where it holds", is_required=True),
    },
)
THEN = Dialect(
    "then",
    {
        "next": Key(ANY, "the steps that follow"),
        "set": Key(ANY, "is set"),
        "fail": Key(ANY, "the step fails with that message"),
        "retry": Key(ANY, "a retry of the step"),
        "call": Key(ANY, "another step with arguments, as 'next' does it; without 'step' the tool again, changed"),
        "collect": Key(COLLECT, "what of each answer is gathered"),
        "result": Key(ANY, "{from: NAME}: what was gathered is the result"),
        "sink": Key(ANY, "where what it gave is put, by a tool or into a table, before it goes on"),
    },
)
ITERATOR = Dialect(
    "iterator",
    {
        "collection": Key(ANY, "what the map runs over"),
        "element": Key(TEXT, "the item's name"),
        "mode": Key(ANY, "one item after the other (default), or all at once"),
        "concurrency": Key(ANY, "'max_parallel' of the map"),
        "limit": Key(ANY, "'max_items' of the map"),
        "task": Key(ANY, "what is done for each item", is_required=True),
    },
)
SAVE = Open(
    "save",
    {
        "tool": Key(ANY, "what puts it there: 'postgres', 'duckdb', or a tool with its own keys"),
        "storage": Key(ANY, "the same; 'event_log' needs no doing: results are in the log"),
        "table": Key(ANY, "the table"),
        "mode": Key(Choice(("insert", "append", "upsert", "replace")), "default insert"),
        "key": Key(ANY, "for 'upsert': the columns that identify a row"),
        "data": Key(ANY, "a row, or a list of them (default: the result)"),
        "args": Key(ANY, "the same"),
        "auth": Key(ANY, "the name of a credential"),
    },
)
OLDER_STEP = Dialect(
    "older_step",
    {
        "step": Key(NAME, "the step's name", is_required=True),
        "desc": DESCRIPTION,
        "args": Key(ANY, "what its tool is given"),
        "loop": Key(OLDER_LOOP, "a map over the items"),
        "tool": Key(ANY, "what it does"),
        "vars": Key(ANY, "is set after a success, read as 'vars.NAME'"),
        "case": Key(ListOf(CASE), "what follows, by what came of it"),
        "next": Key(ANY, "what follows where no case says so"),
        "retry": Key(ANY, "a retry policy"),
        "timeout": Key(ANY, "the step's 'timeout'"),
        "input": Key(ANY, "'args' by its newer name"),
        # Of the oldest dialect, which has the keys of the tool on the step.
        "type": Key(TEXT, "'kind' of the tool"),
        "data": Key(ANY, "'args' of the oldest dialect"),
        "assert": Key(ANY, "not honoured: a warning"),
        "save": Key(SAVE, "what the step gave is put into a table, or given to a tool, before it goes on"),
        "sink": Key(SAVE, "the same"),
        **{
            key: Key(ANY, "the tool's key of that name, in the oldest dialect")
            for key in (
                *("code", "method", "url", "endpoint", "headers", "params", "payload", "body", "auth"),
                *("command", "commands", "query", "path", "return_step", "database", "name"),
            )
        },
    },
    elsewhere={
        "set": "write it as 'vars'",
        "spec": "write 'timeout' and 'retry' without 'spec'",
        "when": "put the condition on what leads here",
    },
)
