"""Everything worth knowing of one run, gathered from its events, its state and its logs, bounded, as plain data.

What a report looks like is `page`'s part. Nothing is read that was not redacted when it was written.
"""

from __future__ import annotations

from mulligan.service.runs.views.report.build import Report, build_report, draw_graph, report_json

__all__ = ["Report", "build_report", "draw_graph", "report_json"]
