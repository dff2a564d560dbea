"""Checks of Prodigy's, in a worker: is the work complete, and do enough of the commands say what they should?"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from mulligan import StepError
from mulligan.formats.prodigy.files import refuse_outside

INCOMPLETE = "INCOMPLETE"
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
_FENCED = re.compile(r"```(?:json)?\n(.*?)\n```", re.DOTALL)
_DONE = ("complete", "completed", "success", "passed")


def judge(
    output: Any, threshold: float = 100, result_file: str = "", expected_schema: Any = None, below: str | None = None
) -> Any:
    """The result of a check; StepError where the work is less complete than it must be.

    What is no JSON is a check that passed: had it not, its command would have failed. `below`: see `refuse_outside`.
    """
    if below is not None:
        refuse_outside(result_file, below)
    result = _result(output, result_file)
    if expected_schema is not None:
        _require(result, expected_schema)
    if not isinstance(result, dict):
        return result
    completion = _completion(result)
    if completion < threshold:
        missing = result.get("missing") or []
        details = {
            "completion": completion,
            "status": result.get("status", "incomplete"),
            "missing": ", ".join(map(str, missing)) if isinstance(missing, list) else str(missing),
            "gaps": result.get("gaps") or {},
        }
        said = f"the work is complete to {completion:g} %, and {threshold:g} % are asked for"
        if details["missing"]:
            said += f"; missing: {details['missing']}"
        raise StepError(INCOMPLETE, said, details=details)
    return result


def _result(output: Any, result_file: str) -> Any:
    """What the check says: in its file, else in what it printed."""
    if result_file:
        try:
            return json.loads(Path(result_file).read_text(encoding="utf-8"))
        except OSError:
            raise StepError(INCOMPLETE, f"the check has not written '{result_file}'") from None
        except ValueError as error:
            raise StepError(INCOMPLETE, f"what the check wrote to '{result_file}' is no JSON: {error}") from None
    if not isinstance(output, str):
        return output
    # As agents like to hand over JSON.
    fenced = _FENCED.search(output)
    try:
        return json.loads(fenced[1] if fenced else output)
    except ValueError:
        return output


def _completion(result: dict[str, Any]) -> float:
    said = result.get("completion_percentage", result.get("completion"))
    if isinstance(said, int | float) and not isinstance(said, bool):
        return int(said) if said == int(said) else said
    is_done = result.get("status", "complete") in _DONE and not result.get("missing")
    return 100.0 if is_done else 0.0


def _require(value: Any, schema: Any, path: str = "the result") -> None:
    """Refuse a result that does not fit what is said about it: types, required keys, and those of its parts."""
    if not isinstance(schema, dict):
        return
    expected = schema.get("type")
    if isinstance(expected, str) and expected in _TYPES and not _is_a(value, expected):
        raise StepError(INCOMPLETE, f"{path} of the check is no {expected}, which 'expected_schema' asks for")
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                raise StepError(INCOMPLETE, f"{path} of the check has no '{name}', which 'expected_schema' asks for")
        for name, inner in (schema.get("properties") or {}).items():
            if name in value:
                _require(value[name], inner, f"'{name}' in {path}")
    if isinstance(value, list):
        for each in value:
            _require(each, schema.get("items"), f"an entry of {path}")


def _is_a(value: Any, expected: str) -> bool:
    return isinstance(value, _TYPES[expected]) and not (isinstance(value, bool) and expected in ("integer", "number"))


def check(checks: list[dict[str, Any]], needed: int) -> list[str]:
    """What is wrong with those checks that did not pass; StepError where too few did."""
    wrong = [problem for problem in map(_problem, checks) if problem]
    passed = len(checks) - len(wrong)
    if passed < needed:
        raise StepError(INCOMPLETE, f"{passed} of {len(checks)} checks passed, {needed} must: " + "; ".join(wrong))
    return wrong


def _problem(check: dict[str, Any]) -> str:
    """What is wrong with a check; "" where it passed."""
    command = check["command"]
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, errors="replace")
    expected = check.get("expect_exit_code", 0)
    if ended.returncode != expected:
        return f"'{command}' ended with {ended.returncode}, {expected} is expected"
    pattern = check.get("expect_output")
    if pattern is not None and not re.search(pattern, ended.stdout + ended.stderr):
        return f"the output of '{command}' does not match '{pattern}'"
    return ""
