"""The limits that pages mention are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.cli.running.items import LIMIT as ITEMS_SHOWN
from mulligan.core.model import failure_context
from mulligan.core.model.artifacts import INLINE_BYTES_MAX
from mulligan.history import consumption
from mulligan.language.matrices.matrix import COMBINATIONS_MAX
from mulligan.language.shell.shell import VALUE_BYTES_MAX as VARIABLE_BYTES_MAX
from mulligan.service.rendering.page.timeline import BARS_MAX
from mulligan.service.runs.views.overview import WHOLE_EVENTS_MAX
from mulligan.service.runs.views.report import build as report
from mulligan.worker.actions import http, http_response
from mulligan.worker.child.json_encoding import OUTPUT_BYTES_MAX
from mulligan.worker.logs import log_limit
from mulligan.worker.secrets import secret_commands, secret_encodings, secrets
from mulligan.worker.supervisor import supervisor

DOCS = Path(__file__).parent.parent / "docs"
KIB, MIB = 1 << 10, 1 << 20

# What a page says, with the number that the code has in it.
SAID = [
    ("how-to/agents", "At most {:,} characters together", failure_context.FAILURE_CHARS_MAX),
    ("how-to/agents", "{:,}\n   characters each", failure_context.UPSTREAM_CHARS_MAX),
    ("how-to/agents", "person decided. At most {:,} characters.", failure_context.SUMMARY_CHARS_MAX),
    ("how-to/agents", "1, 3 and 4 have {:,} characters together", failure_context.CONTEXT_CHARS_MAX),
    ("how-to/agents", "printed more than {} MiB", OUTPUT_BYTES_MAX // MIB),
    ("reference/actions", "| `connect_timeout` | {:.0f}s |", http.CONNECT_SECONDS),
    ("reference/actions", "may be silent, {:.0f}s;", http.SILENCE_SECONDS),
    ("reference/actions", "true by default, at most {};", http.REDIRECTS_MAX),
    ("reference/actions", "| `max_body` | {}MiB,", http_response.BODY_BYTES_MAX // MIB),
    ("reference/actions", "the status and the first {}\ncharacters of the body", http_response.EXCERPT_CHARS),
    ("reference/actions", "More than {} MiB of JSON are OUTPUT_INVALID", OUTPUT_BYTES_MAX // MIB),
    ("reference/actions", "a variable (over {} KiB, or with a NUL)", VARIABLE_BYTES_MAX // KIB),
    ("concepts/data", "- An output has at most {} MiB.", OUTPUT_BYTES_MAX // MIB),
    ("concepts/data", "An output of more than {} KiB (as JSON)", INLINE_BYTES_MAX // KIB),
    ("concepts/data", "an environment variable, at most {} KiB", VARIABLE_BYTES_MAX // KIB),
    ("how-to/secrets", "A command has {:.0f} seconds", secret_commands.LOOKUP_SECONDS_MAX),
    ("how-to/secrets", "A value has {} characters at least", secrets.VALUE_CHARS_MIN),
    ("how-to/secrets", "and {} KiB at most", secrets.VALUE_BYTES_MAX // KIB),
    ("how-to/secrets", "lines of {} or more characters", secret_encodings.LINE_CHARS_MIN),
    ("concepts/resources", "At most {:,} steps.", COMBINATIONS_MAX),
    ("concepts/resources", "{}MiB at least", consumption.MEMORY_BYTES_MIN // MIB),
    ("how-to/reports", "| failed visits shown in full | {},", report.VISITS_MAX),
    ("how-to/reports", "| logs | of {} failed attempts,", report.LOGS_MAX),
    ("how-to/reports", "{} a visit:", report.LOGS_PER_VISIT_MAX),
    ("how-to/reports", "the last {} KB of stderr", report.STDERR_BYTES_MAX // 1000),
    ("how-to/reports", "the last {} KB of stdout", report.STDOUT_BYTES_MAX // 1000),
    ("how-to/reports", "| bars drawn one by one | {:,};", BARS_MAX),
    ("how-to/reports", "| steps in a drawing | {:,} |", report.DRAWN_STEPS_MAX),
    ("how-to/reports", "| an input or output | {:,} characters |", report.VALUE_CHARS_MAX),
    ("how-to/reports", "| events | the last {} |", report.EVENTS_MAX),
    ("reference/command-line", "of a run with more than {:,} events", WHOLE_EVENTS_MAX),
    ("reference/command-line", "(a page; {} by default)", ITEMS_SHOWN),
    ("reference/command-line", "before it is ended (default `{}GiB`)", log_limit.LOG_BYTES_MAX >> 30),
]


@pytest.mark.parametrize(("page", "said", "number"), SAID)
def test_a_number_on_a_page_is_that_of_the_code(page: str, said: str, number: float) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")

    assert said.format(number) in text


def test_numbers_that_pages_say_in_words() -> None:
    """Five minutes in secrets.md, ten times a second in resources.md, at most four outputs in agents.md."""
    said = (secret_commands.FRESH_SECONDS, supervisor.MEMORY_SECONDS, failure_context.UPSTREAM_OUTPUTS_MAX)

    assert said == (300.0, 0.1, 4)
