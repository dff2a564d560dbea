"""The output that `validate` refused: what of it a failure carries, and how it is shown in a line."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.artifacts import KEY, is_artifact
from mulligan.core.model.failure import Failure
from mulligan.core.model.failure_context import head_tail

# Keys among the details of a failure: the output itself, or the head and tail of it and its size in bytes.
OUTPUT, EXCERPT, SIZE = "output", "output_excerpt", "output_size"
# An output that is longer as text does not go into a failure. The log has it, with the attempt that gave it.
OUTPUT_CHARS_MAX = 2000


def rejected_details(output: Any) -> dict[str, Any]:
    """The details of a failure because of this output. A large output that is an artifact stays a reference."""
    if output is None:
        return {}
    if is_artifact(output):
        return {OUTPUT: output}
    text = _text(output)
    if len(text) <= OUTPUT_CHARS_MAX:
        return {OUTPUT: output}
    return {EXCERPT: head_tail(text, OUTPUT_CHARS_MAX)[0], SIZE: len(text.encode(errors="surrogatepass"))}


def rejected_text(failure: Failure) -> str:
    """What was refused, as text; nothing where the failure is of another kind or there was no output."""
    details = failure.details
    if failure.code != "VALIDATION_FAILED" or (details.get(OUTPUT) is None and EXCERPT not in details):
        return ""
    if EXCERPT in details:
        return str(details[EXCERPT])
    output = details[OUTPUT]
    return _text(output) if not is_artifact(output) else _describe_artifact(output[KEY])


def _describe_artifact(kept: Any) -> str:
    return f"an output of {kept['size']:,} bytes" if isinstance(kept, dict) and "size" in kept else "a large output"


def _text(output: Any) -> str:
    """A text as it is, anything else as JSON."""
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()
