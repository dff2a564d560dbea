"""Ids of traces and spans: the same wherever they are computed, and never zero."""

from __future__ import annotations

import re

from mulligan.core.effects.child_runs import child_uid
from mulligan.core.model import trace_ids
from mulligan.core.state.state import Run


def test_an_attempt_has_the_context_that_the_standard_asks_for():
    context = trace_ids.traceparent("7f3a", "check[3].0", 2)

    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", context)
    assert context == trace_ids.traceparent("7f3a", "check[3].0", 2)


def test_other_attempts_and_other_runs_have_other_spans():
    spans = {
        trace_ids.attempt_span_id(identity, place, attempt)
        for identity in ("7f3a", "7f3b")
        for place in ("a", "b")
        for attempt in (1, 2)
    } | {
        trace_ids.round_span_id("7f3a", 1),
        trace_ids.round_span_id("7f3a", 2),
        trace_ids.visit_span_id("7f3a", "a", 1),
    }

    assert len(spans) == 8 + 3


def test_a_child_run_is_below_the_attempt_that_called_it_in_the_same_trace():
    child = child_uid(Run(uid="7f3a"), "b.on_failure@2.0", 3)
    grandchild = child_uid(Run(uid=child), "c", 1)

    assert trace_ids.trace_id(child) == trace_ids.trace_id(grandchild) == trace_ids.trace_id("7f3a")
    assert trace_ids.calling_span_id(child) == trace_ids.attempt_span_id("7f3a", "b.on_failure@2.0", 3)
    assert trace_ids.calling_span_id(grandchild) == trace_ids.attempt_span_id(child, "c", 1)
    assert trace_ids.calling_span_id("7f3a") == ""


def test_a_run_without_a_uid_is_named_by_its_number():
    assert trace_ids.run_identity("", 7) == "run 7"
    assert trace_ids.run_identity("7f3a", 7) == "7f3a"
