"""The action `checksum`: is this the file that it should be?"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from mulligan import ActionPlugin, StepError

checksum = ActionPlugin(
    "mulligan_checksum:run",
    about="computes the checksum of a file, and compares it",
    keys={
        "file": "the file, from the folder that the step runs in",
        "expect": "the checksum that it should have",
        "algorithm": "such as md5 (default sha256)",
    },
    required=["file"],
    text_key="file",
)


def run(file: str, expect: str | None = None, algorithm: str = "sha256") -> dict[str, Any]:
    """The checksum and the size. What is printed here is in the step's log."""
    if algorithm not in hashlib.algorithms_guaranteed:
        raise StepError("INPUT_INVALID", f"there is no algorithm '{algorithm}'", retryable=False)
    content = Path(file).read_bytes()
    found = hashlib.new(algorithm, content).hexdigest()
    print(f"{found}  {file}")
    if expect not in (None, found):
        details = {"found": found, "expected": expect}
        raise StepError("CHECKSUM_WRONG", f"'{file}' is not what it should be", details=details)
    return {"checksum": found, "bytes": len(content)}
