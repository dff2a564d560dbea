"""`python`: code of the playbook, in any of the four ways in which it is written.

`result = …`, `def main(…)`, a `return` outside of any function, and all of these with `input_data`, which is the input.
"""

from __future__ import annotations

import ast
import asyncio
import datetime
import importlib
import inspect
import json
import linecache
import os
import uuid
from collections.abc import Iterator
from keyword import iskeyword
from types import CodeType
from typing import Any

from mulligan import StepError
from mulligan.worker.actions.noetl import failures
from mulligan.worker.actions.noetl.answers import plain
from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.credentials import named, refused
from mulligan.worker.actions.noetl.file_texts import unmarked
from mulligan.worker.actions.noetl.scripts import decoded, script_text
from mulligan.worker.actions.noetl.templates import filled, parsed
from mulligan.worker.step_errors import exit_status

_WRAPPER = "__step__"
_STUB = {"status": "success"}
# NoETL's word for a failure that is returned, and where its reason stands.
_FAILED = frozenset({"error", "failed"})
_REASONS = ("error", "message", "reason")
_OF_CLOUDS = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "region": "AWS_DEFAULT_REGION",
    "connection_string": "AZURE_STORAGE_CONNECTION_STRING",
}


def run(tool: dict[str, Any], call: Call) -> Any:
    """What the code gives, as JSON. EXCEPTION where it raises, or returns a status 'error' or 'failed'."""
    given = {name: parsed(value) if isinstance(value, str) else value for name, value in unmarked(call.given).items()}
    code = _code(tool, call)
    program, is_wrapped = _program(code, _filename(call, code), given)
    names = {**_known(call), **_libraries(tool), "input_data": given, **_identifiers(given)}
    os.environ.update(_variables(tool, call))
    try:
        return _checked(plain(_result(program, is_wrapped, names, given, call)))
    except StepError:
        raise
    except SystemExit as error:
        if type(error) is not SystemExit:
            raise  # it is the step that is to end
        return _left(error)
    except Exception as error:  # whatever the code raises is its failure
        raise failures.of_exception(error, "python") from None


def _result(program: CodeType, is_wrapped: bool, names: dict[str, Any], given: dict[str, Any], call: Call) -> Any:
    exec(program, names)
    if is_wrapped:
        return _awaited(names[_WRAPPER](**_identifiers(given)))
    main = names.get("main")
    if callable(main):
        return _awaited(main(**_keywords(main, given, call)))
    return names.get("result", _STUB)


def _awaited(value: Any) -> Any:
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def _left(error: SystemExit) -> Any:
    """`sys.exit()` ends the code, and with it the step: well, or with a status."""
    status = exit_status(error.code)
    if not status:
        return _STUB
    raise StepError("EXIT_NONZERO", f"exit code {status}", details={"exit_code": status})


def _checked(result: Any) -> Any:
    if not isinstance(result, dict) or str(result.get("status", "")).lower() not in _FAILED:
        return result
    reason = next((result[name] for name in _REASONS if result.get(name)), "")
    text = reason if isinstance(reason, str) else json.dumps(reason, ensure_ascii=False)
    raise StepError("EXCEPTION", text or f"the code returned the status '{result['status']}'", details={"data": result})


# -- the code


def _code(tool: dict[str, Any], call: Call) -> str:
    for key in ("code_b64", "code_base64"):
        if key in tool:
            return decoded(tool[key], key)
    if "script" in tool:
        return script_text(tool["script"], call)
    code = tool.get("code")
    if not isinstance(code, str) or not code.strip():
        raise refused("the tool 'python' has no code")
    return code


def _filename(call: Call, code: str) -> str:
    """What it is called in a traceback, which shows its lines although they are in no file."""
    name = f"<step {call.step}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    return name


def _program(code: str, filename: str, given: dict[str, Any]) -> tuple[CodeType, bool]:
    """The code compiled, and whether it became a function, since it has a `return` of its own."""
    try:
        tree = ast.parse(code, filename)
        is_wrapped = any(_returns(tree.body))
        if is_wrapped:
            tree = _wrapped(tree, given)
        return compile(tree, filename, "exec", dont_inherit=True), is_wrapped
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise refused(f"the code is no Python{line}: {reason}") from None


def _wrapped(tree: ast.Module, given: dict[str, Any]) -> ast.Module:
    """Its input as parameters: a name that the code sets anew may be read before."""
    wrapper = ast.parse(f"def {_WRAPPER}({', '.join(_identifiers(given))}): pass")
    function = wrapper.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = tree.body
    return wrapper


def _returns(body: list[ast.stmt]) -> Iterator[bool]:
    for statement in body:
        if isinstance(statement, ast.Return):
            yield True
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _returns(getattr(statement, field, []))
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                yield from _returns(part.body)


# -- what it finds


def _known(call: Call) -> dict[str, Any]:
    return {
        "__name__": "__noetl__",
        "context": call.known,
        "datetime": datetime,
        "json": json,
        "os": os,
        "uuid": uuid,
        "deep_merge": _deep_merge,
        "format_iso8601": _format_iso8601,
        "get_val": _get_val,
        "make_serializable": plain,
        "now_utc": _now_utc,
    }


def _identifiers(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name.isidentifier() and not iskeyword(name)}


def _libraries(tool: dict[str, Any]) -> dict[str, Any]:
    """`libs`: an alias for a module, or for a name that is in one."""
    found = {}
    for alias, said in (tool.get("libs") or {}).items():
        module, name = (said.get("from", ""), said.get("import", "")) if isinstance(said, dict) else (said, "")
        try:
            found[alias] = _imported(str(module), str(name))
        except (ImportError, AttributeError, ValueError):
            where = f"'{name}' of '{module}'" if name else f"'{module}'"
            raise refused(f"the code needs {where}, and this worker does not have it") from None
    return found


def _imported(module: str, name: str) -> Any:
    found = importlib.import_module(module)
    if not name:
        return found
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(f"{module}.{name}")


def _variables(tool: dict[str, Any], call: Call) -> dict[str, str]:
    """`auth`: what the libraries of clouds look for in the environment. The child puts it back when the step ends."""
    auth = filled(tool.get("auth"), call.names)
    if not auth:
        return {}
    found = named(auth, call.credentials)
    fields = found if isinstance(found, dict) else {}
    variables = {variable: str(fields[name]) for name, variable in _OF_CLOUDS.items() if fields.get(name)}
    if not variables:
        reason = "the credential of a 'python' tool has nothing that becomes an environment variable"
        raise refused(f"{reason}: hand it over under 'input', as {{{{ keychain.NAME }}}}")
    return variables


def _keywords(main: Any, given: dict[str, Any], call: Call) -> dict[str, Any]:
    """What its parameters get, by their names: of the input, else of what templates read."""
    known = call.known
    special = {"context": known, "input_data": given}
    found: dict[str, Any] = {}
    parameters = inspect.signature(main).parameters.values()
    for parameter in parameters:
        name = parameter.name
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise refused(f"main(…) has '*{name}', and values come by name here")
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        source = next((source for source in (given, special, known) if name in source), None)
        if source is not None:
            found[name] = source[name]
        elif parameter.default is inspect.Parameter.empty:
            raise refused(f"main(…) asks for '{name}', and neither its input nor the context has it")
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        found |= {name: value for name, value in given.items() if name not in found}
    return found


def _get_val(value: Any, path: str, default: Any = None) -> Any:
    for part in str(path).split("."):
        if not isinstance(value, dict) or part not in value:
            return default
        value = value[part]
    return value


def _deep_merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    found = dict(below)
    for key, value in above.items():
        are_both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _deep_merge(found[key], value) if are_both else value
    return found


def _now_utc() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _format_iso8601(moment: datetime.datetime) -> str:
    return moment.isoformat()
