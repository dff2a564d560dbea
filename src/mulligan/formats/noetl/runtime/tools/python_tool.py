"""`python`: run code of the playbook, in any of its four forms.

`result = …`, `def main(…)`, a `return` outside of functions, and all of these with `input_data`, which is the input.
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
from mulligan.formats.noetl.runtime import failures
from mulligan.formats.noetl.runtime.answers import to_json
from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.credentials import find_credential, invalid_input
from mulligan.formats.noetl.runtime.file_texts import without_marks
from mulligan.formats.noetl.runtime.python_text import Code, invalid_code, parse_code, parse_plain
from mulligan.formats.noetl.runtime.scripts import decode_base64, script_text
from mulligan.formats.noetl.runtime.templates import parse_literal, render_value
from mulligan.worker.child.step_errors import exit_status

_WRAPPER = "__step__"
_STUB = {"status": "success"}
# The statuses with which code reports a failure, and the keys that hold the reason.
_FAILED = frozenset({"error", "failed"})
_REASONS = ("error", "message", "reason")
_CLOUD_VARIABLES = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "region": "AWS_DEFAULT_REGION",
    "connection_string": "AZURE_STORAGE_CONNECTION_STRING",
}


def run(tool: dict[str, Any], call: Call) -> Any:
    """Run the code; its result as JSON. EXCEPTION where it raises, or returns a status 'error' or 'failed'."""
    given = {
        name: parse_literal(value) if isinstance(value, str) else _with_data(value)
        for name, value in without_marks(call.given).items()
    }
    filename = f"<step {call.step}>"
    code = _code(tool, call, filename)
    # Tracebacks show its lines, although there is no file.
    linecache.cache[filename] = (len(code.text), None, code.text.splitlines(keepends=True), filename)
    program, is_wrapped = _program(code.tree, filename, given)
    names = {**_known(call), **_libraries(tool), "input_data": given, **_identifiers(given), **code.values}
    os.environ.update(_variables(tool, call))
    try:
        return _refuse_failed_status(to_json(_result(program, is_wrapped, names, given, call)))
    except StepError:
        raise
    except SystemExit as error:
        if type(error) is not SystemExit:
            raise  # a subclass of ours: the step itself must end
        # `sys.exit()` ends the code, and with it the step: with success, or with a status.
        if status := exit_status(error.code):
            raise StepError("EXIT_NONZERO", f"exit code {status}", details={"exit_code": status}) from None
        return _STUB
    except Exception as error:  # whatever the code raises is its failure
        raise failures.of_exception(error, "python") from None


class QueryResult(dict[str, Any]):
    """The result of a query as code reads it: NoETL's is in `data`, so that means the result itself."""

    def __missing__(self, key: str) -> Any:
        if key == "data":
            return self
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, self if key == "data" else default)

    def __contains__(self, key: object) -> bool:
        return key == "data" or super().__contains__(key)


def _with_data(value: Any) -> Any:
    """The value, with every result of a query in it as a QueryResult."""
    if not isinstance(value, dict):
        return value
    if "command_0" in value and "row_count" in value:
        return QueryResult(value)
    return {name: _with_data(inner) for name, inner in value.items()}


def _result(program: CodeType, is_wrapped: bool, names: dict[str, Any], given: dict[str, Any], call: Call) -> Any:
    exec(program, names)  # noqa: S102
    if is_wrapped:
        return _await(names[_WRAPPER](**_identifiers(given)))
    main = names.get("main")
    if callable(main):
        return _await(main(**_keywords(main, given, call)))
    return names.get("result", _STUB)


def _await(value: Any) -> Any:
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def _refuse_failed_status(result: Any) -> Any:
    if not isinstance(result, dict) or str(result.get("status", "")).lower() not in _FAILED:
        return result
    reason = next((result[name] for name in _REASONS if result.get(name)), "")
    text = reason if isinstance(reason, str) else json.dumps(reason, ensure_ascii=False)
    raise StepError("EXCEPTION", text or f"the code returned the status '{result['status']}'", details={"data": result})


# -- the code


def _code(tool: dict[str, Any], call: Call, filename: str) -> Code:
    """The code of the tool. Only code that is in the playbook as it is has templates."""
    for key in ("code_b64", "code_base64"):
        if key in tool:
            return parse_plain(decode_base64(tool[key], key), filename)
    if "script" in tool:
        return parse_plain(script_text(tool["script"], call), filename)
    code = tool.get("code")
    if not isinstance(code, str) or not code.strip():
        raise invalid_input("the tool 'python' has no code")
    return parse_code(code, call, filename)


def _program(tree: ast.Module, filename: str, given: dict[str, Any]) -> tuple[CodeType, bool]:
    """The compiled code, and whether it was made a function because it has a `return` outside of functions."""
    is_wrapped = any(_returns(tree.body))
    try:
        return compile(_wrap(tree, given) if is_wrapped else tree, filename, "exec", dont_inherit=True), is_wrapped
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise invalid_code(error) from None


def _wrap(tree: ast.Module, given: dict[str, Any]) -> ast.Module:
    """A function with the code. Its input are parameters, so that code may read a name before it sets it."""
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


# -- the names that code may use


def _known(call: Call) -> dict[str, Any]:
    return {
        "__name__": "__noetl__",
        "context": call.known,
        "datetime": datetime,
        "json": json,
        "os": os,
        "uuid": uuid,
        "deep_merge": _deep_merge,
        "format_iso8601": lambda moment: moment.isoformat(),
        "get_val": _get_val,
        "make_serializable": to_json,
        "now_utc": lambda: datetime.datetime.now(datetime.UTC),
    }


def _identifiers(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name.isidentifier() and not iskeyword(name)}


def _libraries(tool: dict[str, Any]) -> dict[str, Any]:
    """The modules, or names in modules, that `libs` asks for, by their aliases."""
    found = {}
    for alias, library in _aliases(tool.get("libs") or {}):
        module, name = (
            (library.get("from", ""), library.get("import", "")) if isinstance(library, dict) else (library, "")
        )
        found[alias] = _import(str(module), str(name))
    return found


def _aliases(libs: Any) -> Iterator[tuple[str, Any]]:
    """Each alias with its library. A list names modules, which have their own names in the code."""
    if isinstance(libs, dict):
        yield from libs.items()
        return
    for one in libs if isinstance(libs, list) else [libs]:
        if isinstance(one, dict):
            yield from one.items()
        elif isinstance(one, str) and one:
            # As `import a.b`: the code says `a.b`.
            _import(one)
            yield one.partition(".")[0], one.partition(".")[0]
        else:
            raise invalid_input(f"'libs' has {one!r}, the name of a module is expected")


def _import(module: str, name: str = "") -> Any:
    """The module, or the name in it. INPUT_INVALID where this worker does not have it."""
    try:
        found = importlib.import_module(module)
        if not name:
            return found
        return getattr(found, name) if hasattr(found, name) else importlib.import_module(f"{module}.{name}")
    except (ImportError, AttributeError, ValueError):
        where = f"'{name}' of '{module}'" if name else f"'{module}'"
        raise invalid_input(f"the code needs {where}, which this worker does not have") from None


def _variables(tool: dict[str, Any], call: Call) -> dict[str, str]:
    """The environment variables for `auth` that cloud libraries read. The child restores them when the step ends."""
    auth = render_value(tool.get("auth"), call.names)
    if not auth:
        return {}
    found = find_credential(auth, call.credentials)
    fields = found if isinstance(found, dict) else {}
    variables = {variable: str(fields[name]) for name, variable in _CLOUD_VARIABLES.items() if fields.get(name)}
    if not variables:
        reason = "the credential of a 'python' tool has no field that becomes an environment variable"
        raise invalid_input(f"{reason}: pass it in 'input', as {{{{ keychain.NAME }}}}")
    return variables


def _keywords(main: Any, given: dict[str, Any], call: Call) -> dict[str, Any]:
    """The arguments of `main` by name: from the input, otherwise from the names that templates read."""
    known = call.known
    special = {"context": known, "input_data": given}
    found: dict[str, Any] = {}
    parameters = inspect.signature(main).parameters.values()
    for parameter in parameters:
        name = parameter.name
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise invalid_input(f"main(…) has '*{name}', but values are passed by name")
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        source = next((source for source in (given, special, known) if name in source), None)
        if source is not None:
            found[name] = _with_data(source[name])
        elif parameter.default is inspect.Parameter.empty:
            raise invalid_input(f"main(…) has a parameter '{name}' that is neither in its input nor in the context")
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
