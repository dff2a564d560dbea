"""What a tool is, who calls it, and what its arguments look like to a model.

`tool_table` has the one table of tools. The server, the reference in docs/agents and the checks of scopes are made from
it. Nothing here needs the library `mcp`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

from mulligan.api.http.decoding import parse_refusal, refuse_nul
from mulligan.api.http.problems import as_known_error
from mulligan.core.model.scopes import allows
from mulligan.errors import InputInvalid, MulliganError, ScopeMissing
from mulligan.language.text.suggestions import did_you_mean
from mulligan.mcp_server.guarded_calls import Caller, guarded
from mulligan.service.service import Service

Result = TypeVar("Result")
# What is done in a thread of the service: each has its own.
Kind = Literal["read", "change", "compute"]
ToolScope = Literal["read", "send", "run", "decide", "propose", "write"]


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The arguments of a tool. One that it does not have is refused, at any depth."""


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool, after its arguments and its scope were checked."""

    # In the name of the caller, for the caller's project.
    service: Service
    access: Access


# Gets the arguments too, and gives a struct of the service, or plain data. It runs in a thread, and may wait for the
# store.
Handler = Callable[[ToolCall, Any], Any]
Declared = TypeVar("Declared", bound=Handler)


@dataclass(frozen=True)
class Tool:
    """One line of the table."""

    name: str
    scope: ToolScope
    # What it does and when to use it, for the model that chooses.
    describe: str
    arguments: type[Arguments]
    handler: Handler
    # Whether it may end something that cannot be had back, so that a client asks its user first.
    is_destructive: bool = False
    # Whether it may compute for seconds: then it holds up nobody else. A change that
    # brings the text of a workflow may in any case.
    is_slow: bool = False
    # Whether nothing in its answer was written by a step, a file or a person, so that nothing in it is marked.
    is_ours: bool = False
    # The `ui://` page that shows its answer in clients that can.
    page: str = ""
    # Other names for it, of programs that people come from.
    also: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return self.scope != "read"

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return schema_of(self.arguments)

    def decode(self, given: Mapping[str, Any] | None) -> Any:
        """The arguments as the struct. `InputInvalid` names the argument.

        A number that is given as a text counts: models write both.
        """
        try:
            arguments = msgspec.convert(dict(given or {}), self.arguments, strict=False)
        except msgspec.ValidationError as error:
            raise self._refusal(error) from None
        _refuse_nul(given)
        return arguments

    def _refusal(self, error: msgspec.ValidationError) -> InputInvalid:
        found = parse_refusal(error)
        inside = f" in '{found.where}'" if found.where else ""
        known = [one.encode_name for one in msgspec.structs.fields(self.arguments)]
        if found.kind == "unknown":
            choice = f"it takes: {', '.join(known)}" if known else "it takes none"
            hint = "" if inside else did_you_mean(found.name, known) or choice
            message = f"'{self.name}' has no argument '{found.name}'{inside}"
            return InputInvalid(message, hint=hint, argument=found.name)
        if found.kind == "missing":
            message = f"'{self.name}' needs the argument '{found.name}'{inside}"
            return InputInvalid(message, hint="add it", argument=found.name)
        about = f"argument '{found.where}' of '{self.name}'" if found.where else f"the arguments of '{self.name}'"
        return InputInvalid(f"{about}: {found.reason}", argument=found.where)


class Tools(list[Tool]):
    """Tools, each declared at its handler: it has the name of that function, and takes the `asked` that it takes."""

    def add(self, scope: ToolScope, describe: str, **others: Any) -> Callable[[Declared], Declared]:
        """Make a handler a tool. `others`: what else there is to say, by the names of the fields of `Tool`."""

        def declare(handler: Declared) -> Declared:
            self.append(Tool(handler.__name__, scope, describe, get_type_hints(handler)["asked"], handler, **others))
            return handler

        return declare


class Access(ABC):
    """What one caller may do. A server makes one for each connection, or for each request."""

    # Of the token; a local caller is given them by the command that starts the server.
    scopes: Collection[str]
    # Whether the caller is on this machine, so that a tool may be given a file by name.
    has_files: bool = False

    def may(self, tool: Tool) -> bool:
        """Whether the scopes allow this tool."""
        return allows(self.scopes, tool.scope)

    async def call(self, tool: Tool, arguments: object) -> object:
        """What the tool gives. `ScopeMissing`, and what the service raises."""
        kind: Kind = "change" if tool.changes else "read"
        if tool.is_slow or (tool.changes and bool(getattr(arguments, "text", None))):
            kind = "compute"
        return await self.in_thread(kind, lambda service: self._perform(tool, arguments, service))

    def _perform(self, tool: Tool, arguments: object, service: Service) -> object:
        def check() -> None:
            self.refuse_without(tool.scope, f"the tool '{tool.name}' needs it")

        with guarded(service, self.caller(service), tool.name, tool.scope, arguments, check) as allowed:
            try:
                return tool.handler(ToolCall(allowed, self), arguments)
            except Exception as error:
                run_id = getattr(arguments, "run_id", None)
                if isinstance(run_id, int) and (damaged := allowed.runs.explain_damage([run_id], error)) is not None:
                    raise damaged from error
                raise

    def refuse_without(self, scope: str, why: str) -> None:
        """`ScopeMissing` if the caller lacks a scope."""
        if not allows(self.scopes, scope):
            raise ScopeMissing(
                f"this caller has no scope '{scope}': {why}", hint="use a token that has it", scope=scope
            )

    def refuse_files(self) -> None:
        """`InputInvalid` if this caller may not name files of this machine."""
        if not self.has_files:
            raise InputInvalid(
                "a file cannot be named here: the server does not have your files",
                hint="send its text",
                argument="file",
            )

    def known_error(self, error: Exception, where: str) -> MulliganError:
        """The error that the caller sees. What is not ours is written into the log, and nowhere else."""
        return as_known_error(error, where)

    @abstractmethod
    def caller(self, service: Service) -> Caller:
        """In whose name the tools are called."""

    @abstractmethod
    async def in_thread(self, kind: Kind, work: Callable[[Service], Result]) -> Result:
        """Call `work` in a thread of the service for what it does. To compute may take seconds."""


def _refuse_nul(value: Any) -> None:
    """`InputInvalid` for a NUL anywhere in the arguments, which no database keeps in a text."""
    if isinstance(value, str):
        refuse_nul(value, "an argument")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse_nul(key)
            _refuse_nul(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_nul(inner)


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a struct, with an object at its root, as clients expect it."""
    (root,), definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    found: dict[str, Any] = definitions.pop(root["$ref"].rpartition("/")[2])
    # The tool has a description and a name of its own.
    plain = {key: value for key, value in found.items() if key not in ("title", "description")}
    plain["properties"] = {name: _without_null(one) for name, one in found["properties"].items()}
    return {**plain, "additionalProperties": False, **({"$defs": definitions} if definitions else {})}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """An argument that may be left out: clients leave it out, and none has to send null."""
    options = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(options) != 1:
        return schema
    return {**{key: value for key, value in schema.items() if key not in ("anyOf", "default")}, **options[0]}
