"""Fakes: the outcomes of faked steps, from a file, a command line or a test.

{output: 3}                       any step: its output
{fail: TIMEOUT, message: …}       any step: it fails with this code
{returns: 3}, {raises: "ConnectionError: …"}       python
{status: 503, body: …}            http: a response, judged like a real one
{rows: [{n: 1}]}, {rowcount: 3}   sql
[{fail: …}, {output: …}]          one outcome per attempt; the last one repeats
NAME.triager: {output: …}         the agent that decides about failures of step NAME: its answer, a verdict and so on
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from mulligan.core.deciding.fakes import FakeEnd, action_kind, triager_name
from mulligan.core.model.actions import PYTHON, traits
from mulligan.core.model.failure import (
    CODES,
    Failure,
    bounded_exceptions,
    builtin_exception,
    code_of_exception,
    failure,
    known_classes,
)
from mulligan.core.model.text.http_codes import status_code
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Action, Step, Workflow, triager_of
from mulligan.errors import InputInvalid, LanguageError, UnknownStep
from mulligan.language.checks.error_codes import suggest_code
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import Mapping as MappingNode
from mulligan.language.text.nodes import Refusal, plain
from mulligan.language.text.suggestions import did_you_mean

_CODE = lazy_regex(r"([A-Z][A-Z0-9_]*)(?::(.*))?")
# `ConnectionError: reset by peer`, `httpx.ReadTimeout`.
_CLASS = lazy_regex(r"([^\W\d][\w.]*)(?=:|$)")
_FAILURE = ("fail", "exit_code", "signal", "message", "retryable", "severity", "details")
_RETRY_AFTER = "retry-after"
# The kind of what decides about failures, here only.
TRIAGER = "triager"
_BODY_CHARS_MAX = 500


def read_fakes(workflow: Workflow, fake: Mapping[str, Any]) -> dict[str, tuple[FakeEnd, ...]]:
    """The outcomes of each faked step; the name of a matrix means all its steps. Invalid fakes are refused."""
    found: dict[str, tuple[FakeEnd, ...]] = {}
    for name, ends in fake.items():
        found.update((key, _ends(step, ends)) for key, step in _faked(workflow, name).items())
    return found


def read_call_fakes(fake: Mapping[str, Any]) -> dict[str, tuple[FakeEnd, ...]]:
    """The outcomes of calls of a program, by the names of steps or labels of calls, which only the program knows."""
    found = {}
    for name, ends in fake.items():
        kind = TRIAGER if name.endswith(f".{TRIAGER}") else PYTHON
        found[name] = _ends(Step(name=name, action=Action(kind)), ends)
    return found


def _faked(workflow: Workflow, name: str) -> dict[str, Step]:
    """What this name of a fake stands for: steps, or the triagers of steps."""
    step_name, dot, _ = name.partition(".")
    if dot:
        return {triager_name(one.name): one for one in _triagers(workflow, name, step_name)}
    return {step.name: step for step in _steps(workflow, name)}


def _triagers(workflow: Workflow, name: str, step_name: str) -> list[Step]:
    """The triagers of a step, or of all steps of a matrix, as steps that could be faked."""
    steps = _steps(workflow, step_name)
    agents = [(step, triager_of(step)) for step in steps]
    if name != triager_name(step_name) or None in (command for _, command in agents):
        hint = "only the triager of a step with 'triage: {by: agent}' can be faked: NAME.triager"
        raise UnknownStep(f"'{name}' is not a step of workflow '{workflow.name}'", hint=hint, step=name)
    return [Step(name=step.name, action=Action(TRIAGER)) for step, _ in agents]


def _steps(workflow: Workflow, name: str) -> list[Step]:
    found = [step for step in workflow.steps if name in (step.name, step.sweep)]
    if not found:
        names = [step.sweep or step.name for step in workflow.steps]
        hint = did_you_mean(name, names) or "list the steps: mulligan graph FILE"
        raise UnknownStep(f"'{name}' is not a step of workflow '{workflow.name}'", hint=hint, step=name)
    return found


def _ends(step: Step, fake: Any) -> tuple[FakeEnd, ...]:
    if not isinstance(fake, list | tuple):
        return (_end(step, fake),)
    if not fake:
        raise InputInvalid(
            f"the fake of step '{step.name}' is an empty list", hint="write at least one outcome: [{output: 3}]"
        )
    return tuple(_end(step, one) for one in fake)


def _end(step: Step, fake: Any) -> FakeEnd:
    if not isinstance(fake, Mapping):
        raise _refusal(step, f"is {_show(fake)}, a mapping is expected")
    kind = action_kind(step)
    for keys in (("output",), _FAILURE, *traits(kind, {}).fakes):
        if keys[0] in fake or (fake and keys[0] == "status" and set(fake) <= set(keys)):
            unknown = [key for key in fake if key not in keys]
            if unknown:
                raise _refusal(step, f"has '{unknown[0]}' next to '{keys[0]}'")
            return _READERS[keys[0]](step, fake)
    raise _refusal(step, f"is {_show(fake)}")


def _refusal(step: Step, problem: str) -> InputInvalid:
    own = ", ".join(f"{{{keys[0]}: …}}" for keys in traits(action_kind(step), {}).fakes)
    hint = f"write {{output: …}}, {{fail: CODE}}{f', {own}' if own else ''}, or a list of these"
    return InputInvalid(f"the fake of step '{step.name}' {problem}", hint=hint)


def _show(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)[:80]


# -- one form each ---------------------------------------------------------------------------------------------------


def _output(step: Step, fake: Mapping[str, Any]) -> FakeEnd:
    given = fake["output"]
    if action_kind(step) == TRIAGER:
        return FakeEnd({"content": "", "decision": None, "tokens": None, "json": given})
    if traits(action_kind(step), {}).is_agent:
        answer = given if isinstance(given, Mapping) else {"content": given}
        return FakeEnd({"content": "", "decision": None, "tokens": None, **answer})
    return FakeEnd(given)


def _fail(step: Step, fake: Mapping[str, Any]) -> FakeEnd:
    code = fake["fail"]
    if not isinstance(code, str) or not (found := _CODE.fullmatch(code)) or found[2] is not None:
        raise _refusal(step, f"fails with {_show(code)}, and a code such as TIMEOUT is expected")
    fields = {name: fake[name] for name in _FAILURE[1:] if name != "message" and fake.get(name) is not None}
    for name in ("exit_code", "signal"):
        if name in fields and type(fields[name]) is not int:
            raise _refusal(step, f"has the {name} {_show(fields[name])}, and a number is expected")
    if code == "EXIT_NONZERO":
        fields.setdefault("exit_code", 1)
    what = f"exit code {fields['exit_code']}" if code == "EXIT_NONZERO" else code
    if "signal" in fields and code != "EXIT_NONZERO":
        what = f"killed by signal {fields['signal']}"
    return FakeEnd(failure=failure(code, str(fake.get("message") or f"{what} (faked)"), **fields))


def _answer(step: Step, fake: Mapping[str, Any]) -> FakeEnd:
    """An HTTP response. A status that the step does not expect becomes the usual failure."""
    status = fake.get("status", 200)
    if type(status) is not int or not 100 <= status <= 599:
        raise _refusal(step, f"answers {_show(status)}, and a status such as 200 is expected")
    headers = fake.get("headers") or {}
    if not isinstance(headers, Mapping):
        raise _refusal(step, f"has the headers {_show(headers)}, and a mapping is expected")
    headers = {str(name).lower(): str(value) for name, value in headers.items()}
    params = step.action.params if step.action is not None else {}
    expected = params.get("expect") or ()
    if status in expected if expected else 200 <= status < 300:
        return FakeEnd({"status": status, "headers": headers, "body": fake.get("body")})
    return FakeEnd(failure=_unexpected_status(str(params.get("method", "GET")), status, headers, fake.get("body")))


def _unexpected_status(method: str, status: int, headers: Mapping[str, str], body: Any) -> Failure:
    details: dict[str, Any] = {"status": status}
    if headers.get(_RETRY_AFTER, "").isdigit():
        details["retry_after"] = float(headers[_RETRY_AFTER])
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body, ensure_ascii=False)
    shown_body = f": {text[:_BODY_CHARS_MAX]}" if text else ""
    code, retryable = status_code(status)
    fields: dict[str, Any] = {} if retryable is None else {"retryable": retryable}
    return failure(code, f"{method} (faked): answered {status}{shown_body}", details=details, **fields)


def _rows(step: Step, fake: Mapping[str, Any]) -> FakeEnd:
    rows = fake["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise _refusal(step, f"gives {_show(rows)}, and rows such as [{{n: 1}}] are expected")
    params = step.action.params if step.action is not None else {}
    return FakeEnd(rows if params.get("rows", "json") == "json" else {"rowcount": len(rows)})


def _rowcount(step: Step, fake: Mapping[str, Any]) -> FakeEnd:
    if type(fake["rowcount"]) is not int:
        raise _refusal(step, f"has changed {_show(fake['rowcount'])} rows, and a number is expected")
    return FakeEnd({"rowcount": fake["rowcount"]})


def _classes_of(raised: BaseException) -> tuple[str, ...]:
    """The class of an exception of a test and its bases, under the names that a worker reports."""
    kinds = (kind for kind in type(raised).__mro__ if issubclass(kind, Exception))
    named = ((kind.__module__, kind.__qualname__) for kind in kinds)
    return bounded_exceptions(name if module == "builtins" else f"{module}.{name}" for module, name in named)


def _raises(raised: Any, details: dict[str, Any]) -> FakeEnd:
    """An exception, or a message that begins with the name of its class, as a traceback ends."""
    classes: tuple[str, ...] = ()
    message = str(raised)
    if isinstance(raised, BaseException):
        classes = _classes_of(raised)
        message = f"{type(raised).__name__}: {message}" if message else type(raised).__name__
    elif found := _CLASS.match(message):
        name = found[1].removeprefix("builtins.")
        if "." in name or builtin_exception(name) is not None:
            classes, message = known_classes(name), name.rpartition(".")[2] + message[found.end() :]
    return FakeEnd(failure=failure(code_of_exception(classes), message, details=details, exceptions=classes))


_READERS: dict[str, Callable[[Step, Mapping[str, Any]], FakeEnd]] = {
    "output": _output,
    "fail": _fail,
    "returns": lambda step, fake: FakeEnd(fake["returns"]),
    "raises": lambda step, fake: _raises(fake["raises"], dict(fake.get("details") or {})),
    "status": _answer,
    "rows": _rows,
    "rowcount": _rowcount,
}


# -- on a command line, and in a file --------------------------------------------------------------------------------


def parse_fakes(workflow: Workflow, words: Iterable[str]) -> dict[str, Any]:
    """Parse words such as `fetch='{"rows": 3}'` and `load=EXIT_NONZERO:11` for `read_fakes`."""
    found: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or not name:
            raise InputInvalid(f"'{word}' is not a fake", hint="""write it like fetch='{"rows": 3}' or load=TIMEOUT""")
        if name in found:
            raise InputInvalid(f"step '{name}' is faked twice")
        found[name] = _parse_value(next(iter(_faked(workflow, name).values())), text)
    return found


def _parse_value(step: Step, text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _parse_failure(step, text)
    return _form_of(action_kind(step), value)


def _form_of(kind: str, value: Any) -> dict[str, Any]:
    """A plain value is the output (http: the body, sql: the rows); a form of this kind is used as it is."""
    forms = traits(kind, {}).fakes
    if isinstance(value, Mapping) and any(value and set(value) <= set(keys) for keys in forms):
        return dict(value)
    if ("rows",) in forms:
        return {"rows": value}
    return {"status": 200, "body": value} if any("body" in keys for keys in forms) else {"output": value}


def _parse_failure(step: Step, text: str) -> dict[str, Any]:
    """`TIMEOUT`, `EXIT_NONZERO:11`, `SIGNALED:9`, `QUOTA:no tokens left`."""
    found = _CODE.fullmatch(text)
    if found is None:
        message = f"the fake of step '{step.name}' is '{text[:80]}', which is neither JSON nor an error code"
        raise InputInvalid(message, hint=f"""a text is written {step.name}='"text"', a failure {step.name}=TIMEOUT""")
    code, rest = found.groups()
    if rest and rest.isdigit() and code in ("EXIT_NONZERO", "SIGNALED"):
        return {"fail": code, "exit_code" if code == "EXIT_NONZERO" else "signal": int(rest)}
    if code not in CODES and (meant := suggest_code(code)):
        raise InputInvalid(f"no failure has the code '{code}'", hint=f"did you mean '{meant}'?")
    return {"fail": code, **({"message": rest} if rest else {})}


def load_fakes(file: Path) -> dict[str, Any]:
    """The fakes in a YAML file, a mapping of steps. LanguageError if it is not valid."""
    try:
        source = decode(file.read_bytes(), str(file))
        root = parse(source, content="a file of fakes maps steps to outcomes, such as 'fetch: {output: 3}'")
        if not isinstance(root, MappingNode):
            raise source.refuse("type", "a mapping from steps to outcomes is expected", root)
    except OSError as error:
        raise InputInvalid(f"'{file}' cannot be read: {(error.strerror or str(error)).lower()}") from None
    except Refusal as refusal:
        raise LanguageError([refusal.problem]) from None
    found: dict[str, Any] = plain(root)
    return found
