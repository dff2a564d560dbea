"""Steps that are no functions: commands, requests, queries, agents, waits, approvals, workflows in files."""

from __future__ import annotations

from mulligan.flows.context import call_site, current, given, refuse, running_program
from mulligan.flows.recording import Group
from mulligan.flows.references import Reference
from mulligan.flows.static_types import overload
from mulligan.flows.step_keys import apply_keys, located

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any, Literal, Unpack

    from mulligan.flows.retries import Duration
    from mulligan.flows.step_keys import StepKeys


def _add(function: str, name: str, action: dict[str, Any], keys: Mapping[str, Any]) -> Any:
    """Add a step with that action, and return a reference to its output."""
    recorder, site = current(f"mulligan.{function}"), call_site()
    if isinstance(name, Reference) or not isinstance(name, str):
        refuse("name", f"the name of a step is a text that is known when the flow is built, not {name!r}", site=site)
    record = recorder.add(name, is_chosen=True, site=site, keys_site=site)
    record.action = recorder.value({key: value for key, value in action.items() if value is not None}, record.reads)
    apply_keys(recorder, record, located(keys, site))
    return recorder.result(record)


def shell(
    name: str, command: str, *, stdin: object = None, strict: bool | None = None, **keys: Unpack[StepKeys]
) -> Any:
    """A shell command: `shell("build", f"make TARGET={target}")`. It returns what the command prints.

    A reference in the text reaches the shell as a variable, never as text. `capture="json"` parses the output.
    """
    return _add("shell", name, {"shell": command, "stdin": stdin, "strict": strict}, keys)


def http(
    name: str,
    url: str,
    *,
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] | None = None,
    headers: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    json: object = None,
    form: Mapping[str, Any] | None = None,
    body: object = None,
    auth: Mapping[str, Any] | None = None,
    expect: Sequence[int] | int | None = None,
    follow_redirects: bool | None = None,
    connect_timeout: Duration | None = None,
    read_timeout: Duration | None = None,
    max_body: str | int | None = None,
    verify: bool | None = None,
    **keys: Unpack[StepKeys],
) -> Any:
    """An HTTP request. It returns `{status, headers, body}`."""
    request = given({"method": method, **locals()}, "name", "keys")
    return _add("http", name, {"http": request}, keys)


def sql(
    name: str,
    connection: str,
    query: str,
    *,
    params: Mapping[str, Any] | Sequence[Any] | None = None,
    read_only: bool | None = None,
    rows: Literal["json", "none"] | None = None,
    **keys: Unpack[StepKeys],
) -> Any:
    """A query. It returns the list of rows. A reference in the query is bound as a parameter."""
    return _add("sql", name, {"sql": given(locals(), "name", "keys")}, keys)


def agent(
    name: str,
    prompt: str,
    *,
    provider: str | None = None,
    model: str | None = None,
    context: object = None,
    upstream: bool | None = None,
    answer: Literal["text", "json"] | Mapping[str, object] | None = None,
    skip_permissions: bool | None = None,
    **keys: Unpack[StepKeys],
) -> Any:
    """A prompt for an AI agent. It returns `{content, decision, tokens}`, and `json` if `answer` asks for it."""
    more = given(locals(), "name", "prompt", "keys")
    return _add("agent", name, {"agent": {"prompt": prompt, **more} if more else prompt}, keys)


def wait(
    name: str,
    duration: object = None,
    *,
    until: object = None,
    event: object = None,
    schema: Mapping[str, Any] | None = None,
    **keys: Any,
) -> Any:
    """A pause that survives a restart: a duration such as `"30s"`, `until=` a time with a zone, or `event=` its name.

    A wait for an event returns the value of the event that `mulligan send` or `run.send` sends. If none has come within
    its `timeout=`, it fails with TIMEOUT, or returns its `default=`.
    """
    if sum(one is not None for one in (duration, until, event)) != 1:
        refuse("arguments", f"'{name}' needs a duration, until= a time, or event= its name", word=name)
    if event is None:
        if schema is not None:
            refuse("arguments", f"'schema' of '{name}' is for a wait for an event", word=name)
        return _add("wait", name, {"wait": duration if until is None else {"until": until}}, keys)
    default = {"default": keys.pop("default")} if "default" in keys else {}
    awaited = {"event": event, **default, **({} if schema is None else {"schema": schema})}
    return _add("wait", name, {"wait": awaited}, keys)


@overload
def approve(
    message: str, /, *, timeout: Duration | None = None, evidence: Mapping[str, Any] | None = None, key: str = ""
) -> Any: ...
@overload
def approve(
    name: str,
    message: str,
    *,
    default: Literal["approve", "refuse"] | None = None,
    evidence: Mapping[str, Any] | None = None,
    **keys: Unpack[StepKeys],
) -> Any: ...


def approve(
    name: str,
    message: str = "",
    *,
    default: Literal["approve", "refuse"] | None = None,
    evidence: Mapping[str, Any] | None = None,
    **keys: Any,
) -> Any:
    """Wait until a person approves. A refusal is the failure APPROVAL_REFUSED. `timeout=` limits the wait.

    `evidence={"rows": summary}` is shown with the question: texts, rows, diffs, files.

    In a program: `approve("publish 40 rows?", evidence={"rows": rows}, timeout="8h")`, which raises `Rejected`.
    """
    program = running_program()
    if program is not None:
        return program.approve(
            *filter(None, (name, message)), **given({"default": default, "evidence": evidence, **keys})
        )
    if not message:
        refuse("arguments", "mulligan.approve needs a name and a message", hint='approve("publish", "publish it?")')
    more = given({"default": default, "evidence": None if evidence is None else dict(evidence)})
    asked = {"message": message, **more} if more else message
    return _add("approve", name, {"approve": asked}, keys)


def action(name: str, **keys: Any) -> Any:
    """A step as a file has it: `action("page", slack={"channel": "#ops"}, retry=3)`. For actions of packages."""
    return _add("action", name, {}, keys)


def call_file(name: str, file: str, inputs: Mapping[str, Any] | None = None, **keys: Unpack[StepKeys]) -> Any:
    """Run a workflow file as a child run; its path is relative to the file of the flow. It returns its outputs."""
    action = {"workflow": {"file": file, "inputs": inputs} if inputs else file}
    return _add("call_file", name, action, keys)


def secret(name: str, *, env: str | None = None, file: str | None = None, command: str | None = None) -> str:
    """A secret, looked up by the worker and hidden in all output: `secret("token", env="API_TOKEN")`.

    Without a source it names a secret that the flow declares: `@flow(secrets={"token": {"env": "API_TOKEN"}})`.
    A program declares its secrets so, and its steps read them: `@step(env={"TOKEN": "${secrets.token}"})`.
    """
    source = given(locals(), "name")
    in_program = (
        f"""declare it with @program(secrets={{"{name}": …}}), for @step(env={{"TOKEN": "${{secrets.{name}}}"}})"""
    )
    recorder, site = current("mulligan.secret", in_program=in_program), call_site()
    if source:
        recorder.declare("secrets", name, source, site)
    return Reference(f"secrets.{name}", {})  # type: ignore[return-value]


def file(name: str, path: str) -> str:
    """Name a file, for `reads=` and `writes=` of steps. The reference is its path."""
    recorder, site = current("mulligan.file"), call_site()
    recorder.declare("files", name, path, site)
    return Reference(f"files.{name}", {})  # type: ignore[return-value]


def env(name: str) -> str:
    """An environment variable of the process that starts the step. Use `secret` for what must not be recorded."""
    return Reference(f"env.{name}", {})  # type: ignore[return-value]


class group:  # noqa: N801 - it is written like the other functions
    """Steps that are retried together: if one fails for good, all of them start again.

        with mulligan.group("publish", retry=2) as publish:
            load(stage(rows))
        notify(publish["load"])

    Its output has the output of each step inside, by name. Steps inside read steps outside as usual.
    """

    def __init__(
        self, name: str, *, order: Literal["data", "sequential"] | None = None, **keys: Unpack[StepKeys]
    ) -> None:
        self._recorder, site = current("mulligan.group"), call_site()
        record = self._recorder.add(name, is_chosen=True, site=site, keys_site=site)
        apply_keys(self._recorder, record, located(keys, site))
        self._group = Group(record, order or "")
        if order is not None and order != "data":
            self._group.keys["order"] = order

    def __enter__(self) -> Any:
        if self._recorder.groups:
            refuse("group", "a group stands inside another one", hint="put the steps into one of them")
        # The condition of a branch around it is a condition of the group, not of each step inside.
        self._conditions, self._recorder.conditions = self._recorder.conditions, []
        self._recorder.groups.append(self._group)
        self._recorder.group_of[self._group.record.name] = self._group
        return self._recorder.result(self._group.record)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.conditions = self._conditions
        self._recorder.groups.remove(self._group)
