"""The items of a map: from a file or printed by a command, then selected, filtered and sorted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mulligan import StepError
from mulligan.formats.prodigy.queries import field_getter, parse_filter, parse_order, parse_path


def list_items(
    input: str, origin: str = "", json_path: str = "", filter: str = "", sort_by: str = "", distinct: str = ""
) -> list[Any]:
    """The items of a map. A file is looked for in the current folder, then in `origin`."""
    value = _read_input(input, origin, is_listing=not json_path.strip())
    found = parse_path(json_path)(value) if json_path.strip() else value if isinstance(value, list) else [value]
    if not found and isinstance(value, _Lines) and value:
        message = f"'{input[:200]}' gives no JSON, so '{json_path}' finds nothing in it"
        raise StepError("INPUT_INVALID", message, retryable=False)
    if filter:
        holds = parse_filter(filter)
        found = [item for item in found if holds(item)]
    if sort_by:
        found = parse_order(sort_by)(found)
    return _remove_duplicates(found, distinct) if distinct else found


def _read_input(input: str, origin: str, *, is_listing: bool) -> Any:
    for folder in ("", origin):
        path = Path(folder, os.path.expanduser(input.strip()))
        if _is_file(path):
            return _read_file(path, is_listing=is_listing)
    return _run_lister(input)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a command may be longer than any path
        return False


def _read_file(path: Path, *, is_listing: bool) -> Any:
    """The content of a file. In a `listing`, a file may be named .json and still have lines, as in Prodigy's README."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix.lower() != ".json":
        return _parse_output(text)
    try:
        return json.loads(text)
    except ValueError as error:
        if is_listing and not text.lstrip().startswith(("[", "{", '"')):
            return _parse_output(text)
        raise StepError("INPUT_INVALID", f"'{path}' is not JSON: {error}", retryable=False) from None


def _run_lister(command: str) -> Any:
    done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True)
    sys.stderr.write(done.stderr.decode(errors="replace"))
    if done.returncode:
        message_tail = done.stderr.decode(errors="replace").strip()[-2000:]
        message = f"'{command[:200]}' is not a file, and as a command it exited with {done.returncode}: {message_tail}"
        raise StepError("INPUT_FAILED", message.rstrip(": "), details={"exit_code": done.returncode})
    return _parse_output(done.stdout.decode(errors="replace"))


class _Lines(list[str]):
    """The lines of a text that is not JSON."""


def _parse_output(text: str) -> Any:
    """JSON, or otherwise lines. In Prodigy a line is `{"item": …}`; here it is the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return _Lines(line for line in text.splitlines() if line.strip())


# -- results ---------------------------------------------------------------------------------------------------------


def map_results(results: list[Any], failures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Prodigy's `map.results`: an object for each item in order, those of failed items made from their failures."""
    by_index = {failure["index"]: failure for failure in failures}
    return [
        _failed_result(index, by_index[index]) if index in by_index else result for index, result in enumerate(results)
    ]


def _failed_result(index: int, failure: dict[str, Any]) -> dict[str, Any]:
    message = failure["message"]
    status = "Timeout" if failure["code"] == "TIMEOUT" else {"Failed": message}
    return {"item_id": f"item_{index}", "status": status, "output": None, "commits": [], "error": message}


def item_result(item_id: str, outputs: list[Any], changes: dict[str, list[str]]) -> dict[str, Any]:
    """The entry of an item that succeeded. Its output is what its commands printed, one after the other."""
    texts = [text for text in map(_printed, outputs) if text]
    return {"item_id": item_id, "status": "Success", "output": "\n".join(texts), **changes}


def _printed(output: Any) -> str:
    """What a command printed; of an agent its answer."""
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        output = output["content"]
    return output if isinstance(output, str) else "" if output is None else json.dumps(output, ensure_ascii=False)


def _remove_duplicates(found: list[Any], path: str) -> list[Any]:
    value = field_getter(path)
    seen: dict[str, Any] = {}
    for item in found:
        seen.setdefault(json.dumps(value(item), sort_keys=True), item)
    return list(seen.values())
