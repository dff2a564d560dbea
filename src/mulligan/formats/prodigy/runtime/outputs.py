"""What becomes of a step's output: written to a file, judged by a check, captured in variables."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from mulligan import StepError
from mulligan.core.model.text import paths
from mulligan.core.model.text.paths import folder_of, path_problem
from mulligan.formats.prodigy.queries import parse_path

# -- files -----------------------------------------------------------------------------------------------------------


def write_file(
    path: str,
    content: Any,
    format: str = "text",
    mode: str = "0644",
    create_dirs: bool = False,
    below: str | None = None,
) -> str:
    """Write `content` to `path` and return the path. Invalid JSON or YAML is an error if `format` asks for it.

    `below`: see `refuse_outside`.
    """
    if below is not None:
        refuse_outside(path, below)
    target = Path(path)
    if ".." in target.parts:
        raise StepError("INPUT_INVALID", f"'{path}' contains '..'", retryable=False)
    body = _format_content(content, format, path)
    if create_dirs:
        target.parent.mkdir(parents=True, exist_ok=True)
    elif not target.parent.is_dir():
        message = f"'{target.parent}' is not a folder: write 'create_dirs: true' to create it"
        raise StepError("INPUT_INVALID", message, retryable=False)
    _replace_file(target, body, int(mode, 8))
    return path


def refuse_outside(path: str, below: str) -> None:
    """Raise StepError if a path leads out of the folder in `below`, the text before its first value.

    If that names no folder, the path must stay in the working folder of the step.
    """
    folder = folder_of(below)
    fault = path_problem(paths.TemplatedPath(path, folder))
    root = os.path.realpath(folder or ".")
    if not fault and os.path.commonpath([os.path.realpath(path), root]) != root:
        fault = f"it leads out of '{folder or root}'"
    if fault:
        raise StepError("INPUT_INVALID", f"'{path[:200]}': {fault}", retryable=False)


def _format_content(content: Any, format: str, path: str) -> str:
    """Plain text as it is; JSON and YAML checked and formatted."""
    try:
        if format == "json":
            value = json.loads(content) if isinstance(content, str) else content
            return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        if format == "yaml":
            return _format_yaml(content)
    except ValueError as error:
        message = f"the content for '{path}' is not {format.upper()}: {error}"
        raise StepError("INPUT_INVALID", message, retryable=False) from None
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _format_yaml(content: Any) -> str:
    """Format YAML. ValueError if it is invalid. The library is loaded on demand, since most files are not YAML."""
    import yaml

    try:
        value = yaml.safe_load(content) if isinstance(content, str) else content
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return text


def _replace_file(target: Path, body: str, mode: int) -> None:
    """Replace a file atomically: readers see the old or the new content, even after a crash."""
    with NamedTemporaryFile("w", encoding="utf-8", newline="", dir=target.parent, delete=False) as new:
        try:
            new.write(body)
            new.flush()
            os.fsync(new.fileno())
            os.chmod(new.name, mode)
            os.replace(new.name, target)
        except BaseException:
            os.unlink(new.name)
            raise


# -- validation ------------------------------------------------------------------------------------------------------


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
_COMPLETE_STATUSES = ("complete", "completed", "success", "passed")


def judge_completion(
    output: Any, threshold: float = 100, result_file: str = "", expected_schema: Any = None, below: str | None = None
) -> Any:
    """Return the result of a check. Raise StepError if the work is less complete than `threshold`.

    A result that is not JSON counts as passed, since its command succeeded. `below`: see `refuse_outside`.
    """
    if below is not None:
        refuse_outside(result_file, below)
    result = _read_result(output, result_file)
    if expected_schema is not None:
        _check_schema(result, expected_schema)
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
        message = f"the work is {completion:g} % complete, but {threshold:g} % are required"
        if details["missing"]:
            message += f"; missing: {details['missing']}"
        raise StepError(INCOMPLETE, message, details=details)
    return result


def _read_result(output: Any, result_file: str) -> Any:
    """The result of a check: from its file, or from its output."""
    if result_file:
        try:
            return json.loads(Path(result_file).read_text(encoding="utf-8"))
        except OSError:
            raise StepError(INCOMPLETE, f"the check did not write '{result_file}'") from None
        except ValueError as error:
            raise StepError(INCOMPLETE, f"the check wrote invalid JSON to '{result_file}': {error}") from None
    if not isinstance(output, str):
        return output
    # Agents often put JSON into a code block.
    fenced = _FENCED.search(output)
    try:
        return json.loads(fenced[1] if fenced else output)
    except ValueError:
        return output


def _completion(result: dict[str, Any]) -> float:
    percent = result.get("completion_percentage", result.get("completion"))
    if isinstance(percent, int | float) and not isinstance(percent, bool):
        return int(percent) if percent == int(percent) else percent
    is_done = result.get("status", "complete") in _COMPLETE_STATUSES and not result.get("missing")
    return 100.0 if is_done else 0.0


def _check_schema(value: Any, schema: Any, path: str = "the result") -> None:
    """Refuse a result that does not match the schema: its type, required keys, and those of its parts."""
    if not isinstance(schema, dict):
        return
    expected = schema.get("type")
    if isinstance(expected, str) and expected in _TYPES and not _has_type(value, expected):
        raise StepError(INCOMPLETE, f"{path} of the check is not of type {expected}, which 'expected_schema' requires")
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                raise StepError(INCOMPLETE, f"{path} of the check has no '{name}', which 'expected_schema' requires")
        for name, inner in (schema.get("properties") or {}).items():
            if name in value:
                _check_schema(value[name], inner, f"'{name}' in {path}")
    if isinstance(value, list):
        for each in value:
            _check_schema(each, schema.get("items"), f"an entry of {path}")


def _has_type(value: Any, expected: str) -> bool:
    return isinstance(value, _TYPES[expected]) and not (isinstance(value, bool) and expected in ("integer", "number"))


def run_checks(checks: list[dict[str, Any]], needed: int) -> list[str]:
    """Run the checks and return the problems of those that failed. Raise StepError if too few passed."""
    wrong = [problem for problem in map(_run_check, checks) if problem]
    passed = len(checks) - len(wrong)
    if passed < needed:
        raise StepError(INCOMPLETE, f"{passed} of {len(checks)} checks passed, {needed} required: " + "; ".join(wrong))
    return wrong


def _run_check(check: dict[str, Any]) -> str:
    """Run a check and return its problem; "" if it passed."""
    command = check["command"]
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, errors="replace")
    expected = check.get("expect_exit_code", 0)
    if ended.returncode != expected:
        return f"'{command}' exited with {ended.returncode}, expected {expected}"
    pattern = check.get("expect_output")
    if pattern is not None and not re.search(pattern, ended.stdout + ended.stderr):
        return f"the output of '{command}' does not match '{pattern}'"
    return ""


# -- streams ---------------------------------------------------------------------------------------------------------


def read_streams(key: str, item: int | None = None) -> dict[str, Any]:
    """What a step printed to each stream, its exit code and how many seconds it took; nothing if it did not run.

    The files are written by the step itself: see `keep_streams`.
    """
    stem = Path(os.environ["MULLIGAN_OUTPUT_DIR"], key if item is None else f"{key}-{item}")
    start, code = stem.with_name(f"{stem.name}.start"), stem.with_name(f"{stem.name}.code")
    if not start.is_file() or not code.is_file():
        return {"stdout": "", "stderr": "", "exit_code": None, "duration": None}
    text = {
        name: stem.with_name(f"{stem.name}.{ending}").read_text(encoding="utf-8", errors="replace").rstrip("\n")
        for name, ending in (("stdout", "out"), ("stderr", "err"))
    }
    seconds = round(code.stat().st_mtime - start.stat().st_mtime, 3)
    return {**text, "exit_code": int(code.read_text() or 1), "duration": seconds}


# -- capture_outputs -------------------------------------------------------------------------------------------------


MAX_SIZE_DEFAULT = 1024 * 1024


def capture_variables(outputs: dict[str, Any], rules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Extract each variable from the output of its command by its rule, or use its default."""
    return {name: _capture(name, outputs.get(name), rule) for name, rule in rules.items()}


def _capture(name: str, output: Any, rule: dict[str, Any]) -> Any:
    whole = output if isinstance(output, str) else json.dumps(output)
    text = whole.encode()[: rule.get("max_size", MAX_SIZE_DEFAULT)].decode(errors="ignore")
    found = None if output is None else _extract(text, rule)
    if found is None and "default" in rule:
        return rule["default"]
    if found is None:
        message = f"'{name}' was not found in the output of command {rule.get('command_index', 0)}"
        raise StepError("OUTPUT_INVALID", message, retryable=False)
    return _fold_lines(found, rule.get("multiline", "preserve")) if isinstance(found, str) else found


def _extract(text: str, rule: dict[str, Any]) -> Any:
    if "json_path" in rule:
        return _extract_path(text, rule["json_path"])
    if "pattern" not in rule:
        return text
    match = re.search(rule["pattern"], text, re.M)
    if match is None:
        return None
    return match[1] if match.re.groups else match[0]


def _extract_path(text: str, path: str) -> Any:
    """What the path finds: one value by itself, several as a list."""
    try:
        found = parse_path(path)(json.loads(text))
    except ValueError:
        return None
    return found[0] if len(found) == 1 else found or None


def _fold_lines(text: str, multiline: str) -> Any:
    lines = text.splitlines()
    if multiline == "array":
        return lines
    if multiline == "join":
        return " ".join(lines)
    if multiline in ("first_line", "last_line"):
        return lines[0 if multiline == "first_line" else -1] if lines else ""
    return text
