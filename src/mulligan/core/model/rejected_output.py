"""The output that `validate` rejected: what of it a failure records, and how it is shown."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.artifacts import KEY, is_artifact
from mulligan.core.model.failure import Failure
from mulligan.core.model.failure_context import head_tail
from mulligan.core.model.text.artifact_words import describe_file

# Keys in the details of a failure: the output itself, or its head and tail and its size in bytes.
OUTPUT, EXCERPT, SIZE = "output", "output_excerpt", "output_size"
# A longer output does not go into a failure. The log has it with the attempt.
OUTPUT_CHARS_MAX = 2000


def rejected_details(output: Any) -> dict[str, Any]:
    """The details of a failure with this rejected output. A reference to an artifact stays a reference."""
    if output is None:
        return {}
    if is_artifact(output):
        return {OUTPUT: output}
    text = _text(output)
    if len(text) <= OUTPUT_CHARS_MAX:
        return {OUTPUT: output}
    return {EXCERPT: head_tail(text, OUTPUT_CHARS_MAX)[0], SIZE: len(text.encode(errors="surrogatepass"))}


def rejected_text(failure: Failure) -> str:
    """The rejected output as text; "" for other failures, or without output."""
    details = failure.details
    if failure.code != "VALIDATION_FAILED" or (details.get(OUTPUT) is None and EXCERPT not in details):
        return ""
    if EXCERPT in details:
        return str(details[EXCERPT])
    output = details[OUTPUT]
    return _text(output) if not is_artifact(output) else describe_file(output) or _describe_artifact(output[KEY])


def _describe_artifact(kept: Any) -> str:
    return f"an output of {kept['size']:,} bytes" if isinstance(kept, dict) and "size" in kept else "a large output"


def _text(output: Any) -> str:
    """A string as it is, anything else as JSON."""
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()
