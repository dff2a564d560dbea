"""What a face may import: `Service`, the types of its answers, and a few functions that put them into words.

`mulligan.service.rendering.formatting` (numbers and names in words) and `mulligan.service.authoring.suggestions`
(completion) are public too; everything else in this package is not. A name is imported when it is first asked for.
"""
# mypy: implicit-reexport
# ruff: noqa: F401

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    # The same names once more, for the type checker; a test compares the two lists.
    from typing import Any

    from mulligan.analysis.coverage.figures import Figures, count_figures, describe_figures
    from mulligan.analysis.coverage.results import Coverage, FailureKind, Finding, Times
    from mulligan.analysis.coverage.summary import CoverageSummary, summarize
    from mulligan.analysis.coverage.table import CoverageRow, CoverageTable, arrange_table
    from mulligan.analysis.coverage.words import describe_failure_of, played_text
    from mulligan.analysis.whatif.results import Estimate, RunWhatIf, UndecidedRun, WhatIf
    from mulligan.core.deciding.rounds.child_rounds import PlannedChild
    from mulligan.core.effects.run_lists import QueuedShape
    from mulligan.core.model.agents.guard_rails import VERDICTS, agent_user, is_agent
    from mulligan.core.model.event_types import HostCapacity
    from mulligan.core.model.failure import Failure
    from mulligan.core.model.scopes import MEANINGS, SCOPES, allows
    from mulligan.core.model.text.credential_patterns import hide_credentials, is_credential_name
    from mulligan.core.model.workflow import Workflow
    from mulligan.core.state.state import StepPause, Suggestion
    from mulligan.core.state.transitions import RUN_ENDED
    from mulligan.dask_executor.address import read_cluster_address
    from mulligan.engine.timings import Histogram
    from mulligan.formats import FORMATS, OURS, Converted, is_system, systems_with_logs, title_of
    from mulligan.history.route_outcomes import Fate
    from mulligan.history.views import Wait
    from mulligan.language.readers.workspace_steps import with_default_workspace
    from mulligan.language.text.suggestions import did_you_mean
    from mulligan.lazy_modules import import_lazy_modules
    from mulligan.ports.records import WaitingPlace
    from mulligan.ports.server_records import (
        AuditRecord,
        Document,
        LogKey,
        NoticeRecord,
        NoticeStatus,
        Scope,
        TokenLimits,
        TokenRecord,
        WorkflowVersion,
    )
    from mulligan.service.authoring.coverage import CaseStory
    from mulligan.service.authoring.format_options import read_format_options
    from mulligan.service.authoring.handler_trial import HandlerResult, HandlerTrial, describe_result, parse_failure
    from mulligan.service.authoring.named_files import FileUnreadable, FileUnwritable, read_file, write_file
    from mulligan.service.authoring.step_trial import Fakes
    from mulligan.service.authoring.suggest import (
        DraftedChanges,
        LookedAt,
        SuggestedChange,
        Suggestions,
        WhatIfFigures,
        WrittenChanges,
    )
    from mulligan.service.authoring.values import parse_duration, parse_end, parse_size, parse_time, read_budgets
    from mulligan.service.authoring.whatif import WhatIfSelection
    from mulligan.service.authoring.whatif_text import (
        describe_assumptions,
        describe_end,
        describe_estimate,
        whatif_summary,
    )
    from mulligan.service.authoring.workflow_files import Validation
    from mulligan.service.decisions.decisions import (
        Decision,
        DecisionPreview,
        DecisionResult,
        make_decision,
        read_decisions,
    )
    from mulligan.service.decisions.earlier_decisions import EarlierDecision
    from mulligan.service.decisions.inbox import GivenAnswer, Inbox, LogTail, PendingDetails
    from mulligan.service.decisions.pending import PendingEntry, PendingPage, commands_for_pending, describe_earlier_run
    from mulligan.service.driving.driver import (
        GPUS_VARIABLE,
        Capacity,
        Driver,
        Ending,
        WorkerLimits,
        capacity_for,
        machine,
    )
    from mulligan.service.driving.import_order import import_in_order
    from mulligan.service.driving.outcome import MatrixFailures, Outcome, exit_code
    from mulligan.service.driving.run_progress import Activity, Announcement, AnnouncementWriter, RunProgress
    from mulligan.service.driving.shown_runs import RunDisplay
    from mulligan.service.driving.waiting import Until, WaitEvent
    from mulligan.service.driving.workers import WorkerLine, WorkerTask
    from mulligan.service.home import Home
    from mulligan.service.home_names import CONFIG_VARIABLE, server_url
    from mulligan.service.host.breakers import Breaker
    from mulligan.service.host.doctor import Check, Diagnosis
    from mulligan.service.host.gc import Garbage, GarbageReport, RunRetention
    from mulligan.service.host.private_postgres import PostgresStatus, postgres_status, start_postgres, stop_postgres
    from mulligan.service.host.slurm.draining import Drained
    from mulligan.service.host.slurm.overview import PilotLine, SlurmStatus
    from mulligan.service.host.slurm.profiles import Profiles
    from mulligan.service.host.slurm.submission import Submitted
    from mulligan.service.logs.log_following import LogPiece, LogSelection
    from mulligan.service.logs.log_lines import LogIndex, LogLines, LogMatches
    from mulligan.service.logs.log_pages import LogLine, LogPage
    from mulligan.service.logs.logs import UnknownAttempt
    from mulligan.service.rendering.console.coverage_text import case_story_lines, coverage_lines
    from mulligan.service.rendering.console.display import Display
    from mulligan.service.rendering.console.printer import Printer, printer
    from mulligan.service.rendering.console.summary import show_outcome
    from mulligan.service.rendering.console.terminal_text import (
        ANY_COLOURS,
        NO_COLOURS,
        OWN_COLOURS,
        kinds_text,
        length,
        visible,
        wants_colour,
    )
    from mulligan.service.rendering.descriptions import (
        describe_artifact,
        describe_budget,
        describe_spending,
        describe_value,
        failure_tail,
        message_lines,
        summarize_failure,
    )
    from mulligan.service.rendering.documentation import Documentation, FoundSection, PageText, UnknownPage, read_pages
    from mulligan.service.rendering.drawing.picture import Node
    from mulligan.service.rendering.json_output import error_to_json, log_lines_to_json, to_json
    from mulligan.service.rendering.next_commands import (
        command_for_request,
        commands_for_wait,
        suggest_commands,
    )
    from mulligan.service.rendering.page.coverage import (
        render_figures,
        render_findings,
        render_heat_map,
        render_legend,
        render_pairs,
        render_story,
    )
    from mulligan.service.rendering.page.failures import render_visit
    from mulligan.service.rendering.page.markup import Html, element, join_html
    from mulligan.service.rendering.page.styles import (
        chart_styles,
        coverage_styles,
        format_elapsed,
        status_label,
        status_tone,
        time_element,
    )
    from mulligan.service.rendering.story_text import describe_question, format_story, format_wait, when_default_applies
    from mulligan.service.runs.changes.change_verbs import (
        ChangeResult,
        ChangeVerbs,
        DecidedStep,
        DecisionsResult,
        ForkResult,
        Given,
        RetryResult,
        StartedRun,
    )
    from mulligan.service.runs.changes.corrections import ChangedSteps, CorrectedWorkflow, Correction
    from mulligan.service.runs.changes.fork_at import EventFork
    from mulligan.service.runs.changes.preflight import SERVER_LABELS, refuse_reserved_labels
    from mulligan.service.runs.changes.preview import Preview, StepPreview
    from mulligan.service.runs.changes.round_plans import ForkPlan, RoundPlan
    from mulligan.service.runs.changes.run_control import Prepared
    from mulligan.service.runs.changes.starting import DetachedRun, ExistingRun, check_key
    from mulligan.service.runs.changes.unattended_runs import UnattendedRuns, WorkflowSource
    from mulligan.service.runs.statistics.forecast import Forecast
    from mulligan.service.runs.statistics.recent_runs import (
        Day,
        Failing,
        FailingGroup,
        RecentRuns,
        WaitingRuns,
        WorkflowDays,
    )
    from mulligan.service.runs.statistics.stats import AgentStats, RungStats, describe_rung
    from mulligan.service.runs.statistics.trends import (
        CodeStats,
        RecoveryTrend,
        Spending,
        WeekStats,
        WorkflowSpending,
        WorkflowUsage,
        monday,
    )
    from mulligan.service.runs.statistics.usage import ResourceProposal, StepUsage, UsedResources
    from mulligan.service.runs.stored.artifacts import KeptFile
    from mulligan.service.runs.stored.attempts import AttemptRecord, Cost
    from mulligan.service.runs.stored.damaged_runs import RemovedRuns, may_be_damage
    from mulligan.service.runs.stored.run_data import DataEntry
    from mulligan.service.runs.stored.run_reader import LATEST, AttemptLog, StepOutput
    from mulligan.service.runs.stored.run_workflows import RunWorkflow
    from mulligan.service.runs.views.attempt_progress import describe_progress
    from mulligan.service.runs.views.failure_details import FailureDetails
    from mulligan.service.runs.views.failure_summary import FailureGroup, FailureOutcome, group_failures, spent_budget
    from mulligan.service.runs.views.items import Item, SomeItems
    from mulligan.service.runs.views.report import Report
    from mulligan.service.runs.views.report.attempts import part_of
    from mulligan.service.runs.views.run_comparison import ComparedRun, ComparedStep, RunComparison, ValuePair
    from mulligan.service.runs.views.run_details import (
        ArtifactContent,
        EventPage,
        FailureHandlers,
        RunDetails,
        StoryPage,
    )
    from mulligan.service.runs.views.run_events import EventFeed, EventLine
    from mulligan.service.runs.views.run_graph import RunGraph
    from mulligan.service.runs.views.run_grid import GridPage, GridQuery, GridRow
    from mulligan.service.runs.views.run_list import (
        STATUSES,
        FailedStep,
        RunLine,
        RunPage,
        RunQuery,
        WaitReason,
        parse_statuses,
    )
    from mulligan.service.runs.views.run_pages import ItemPage, ItemQuery, RunChanges, StepLine, StepPage, StepQuery
    from mulligan.service.runs.views.run_reasons import (
        FailureOverview,
        RunReason,
        explain_line,
        explain_run,
        waits_only_for_a_person,
    )
    from mulligan.service.runs.views.run_snapshot import FailedVisit, RunSnapshot, RunStatus, StepSnapshot
    from mulligan.service.runs.views.run_story import LocatedLine, LocatedWait, StoryLine
    from mulligan.service.runs.views.run_timeline import Mosaic, Timeline
    from mulligan.service.runs.views.run_view import (
        RUN_HEAD,
        WHOLE_RUN,
        CalledRunView,
        FailureView,
        MatrixView,
        RunDriver,
        RunView,
        SpentView,
        StepView,
        part,
        part_type,
    )
    from mulligan.service.runs.views.step_history import AttemptLine, RuleLine, StepHistories, StepHistory, VisitLadder
    from mulligan.service.runs.views.time_travel import (
        MomentPicture,
        RunDifference,
        RunMoment,
        StepPoints,
        TimeTravel,
        TurnEvents,
    )
    from mulligan.service.server.audit import ACCEPTED, AuditLog, AuditPage, AuditWithRun
    from mulligan.service.server.background_jobs import JOBS, BackgroundJobs, Job, run_jobs
    from mulligan.service.server.catalogue.catalogue import (
        Draft,
        Proposal,
        Publication,
        PublishedWorkflow,
        WorkflowList,
    )
    from mulligan.service.server.catalogue.drawn_texts import DrawnText, ExaminedText, StepPosition
    from mulligan.service.server.catalogue.text_additions import NewEdge, NewRule, NewStep
    from mulligan.service.server.catalogue.text_diff import DiffLine, diff_texts
    from mulligan.service.server.catalogue.text_edits import StepEdit
    from mulligan.service.server.catalogue.text_reading import TextReader
    from mulligan.service.server.catalogue.texts import published_reference
    from mulligan.service.server.catalogue.workflow_lines import WorkflowLine, list_workflow_lines
    from mulligan.service.server.live_feed import LiveEvent, LiveFeed, Watch, parse_watches
    from mulligan.service.server.logins import (
        LINK_MINUTES,
        SESSION_HOURS,
        Logins,
        Session,
        digest_of,
        new_secret,
        owner_of,
        start_token,
    )
    from mulligan.service.server.notices.notices import (
        HookRule,
        Hooks,
        NoticeLine,
        NoticePage,
        SentNotices,
        TestResult,
        parse_notify,
        read_rules,
        unknown_target_note,
    )
    from mulligan.service.server.schedules.forms import ScheduleForm, instant_text
    from mulligan.service.server.schedules.past_instants import PastInstant, PastInstants
    from mulligan.service.server.schedules.schedules import Backfill, ScheduleView
    from mulligan.service.server.schedules.timing_words import describe_timing
    from mulligan.service.server.server_client import is_login_link, log_in, log_out, start_published
    from mulligan.service.server.server_config import (
        ServerConfig,
        ServerSection,
        TrustedProxy,
        find_config,
        parse_config,
    )
    from mulligan.service.server.store_calls import (
        CALL_HEADER,
        PROCESS,
        PROCESS_HEADER,
        PROTOCOL_HEADER,
        UPLOAD_BYTES_MAX,
        WAIT_SECONDS,
        ChangeCounter,
        ChangeCounts,
        UploadedFile,
        gives_bytes,
    )
    from mulligan.service.server.telemetry.log_lines import log_line
    from mulligan.service.server.telemetry.telemetry import (
        ENDPOINT_VARIABLES,
        METRICS_TYPE,
        merge_metrics,
        request_metrics,
    )
    from mulligan.service.server.telemetry.worker_metrics import MetricsServer, WorkerMetrics
    from mulligan.service.server.tokens.decision_ledger import TOOL_DECISIONS, DecisionLedger
    from mulligan.service.server.tokens.tokens import NewToken, TokenForm, TokenList, TokenView, read_limits
    from mulligan.service.service import Service, open_service, open_temporary_service, open_worker_service
    from mulligan.worker.logs.progress_records import Progress

_NAMES = {
    "mulligan.analysis.coverage.figures": "Figures count_figures describe_figures",
    "mulligan.analysis.coverage.results": "Coverage FailureKind Finding Times",
    "mulligan.analysis.coverage.summary": "CoverageSummary summarize",
    "mulligan.analysis.coverage.table": "CoverageRow CoverageTable arrange_table",
    "mulligan.analysis.coverage.words": "describe_failure_of played_text",
    "mulligan.analysis.whatif.results": "Estimate RunWhatIf UndecidedRun WhatIf",
    "mulligan.core.deciding.rounds.child_rounds": "PlannedChild",
    "mulligan.core.effects.run_lists": "QueuedShape",
    "mulligan.core.model.text.credential_patterns": "hide_credentials is_credential_name",
    "mulligan.core.model.event_types": "HostCapacity",
    "mulligan.core.model.failure": "Failure",
    "mulligan.core.model.agents.guard_rails": "VERDICTS agent_user is_agent",
    "mulligan.core.model.scopes": "MEANINGS SCOPES allows",
    "mulligan.core.model.workflow": "Workflow",
    "mulligan.core.state.state": "StepPause Suggestion",
    "mulligan.core.state.transitions": "RUN_ENDED",
    "mulligan.dask_executor.address": "read_cluster_address",
    "mulligan.engine.timings": "Histogram",
    "mulligan.formats": "FORMATS OURS Converted is_system systems_with_logs title_of",
    "mulligan.history.route_outcomes": "Fate",
    "mulligan.history.views": "Wait",
    "mulligan.language.text.suggestions": "did_you_mean",
    "mulligan.language.readers.workspace_steps": "with_default_workspace",
    "mulligan.lazy_modules": "import_lazy_modules",
    "mulligan.ports.records": "WaitingPlace",
    "mulligan.ports.server_records": "AuditRecord Document LogKey NoticeRecord NoticeStatus Scope TokenLimits "
    "TokenRecord WorkflowVersion",
    "mulligan.service.authoring.coverage": "CaseStory",
    "mulligan.service.authoring.format_options": "read_format_options",
    "mulligan.service.authoring.handler_trial": "HandlerResult HandlerTrial describe_result parse_failure",
    "mulligan.service.authoring.named_files": "FileUnreadable FileUnwritable read_file write_file",
    "mulligan.service.authoring.step_trial": "Fakes",
    "mulligan.service.authoring.suggest": "DraftedChanges LookedAt SuggestedChange Suggestions WhatIfFigures "
    "WrittenChanges",
    "mulligan.service.authoring.values": "parse_duration parse_end parse_size parse_time read_budgets",
    "mulligan.service.authoring.whatif": "WhatIfSelection",
    "mulligan.service.authoring.whatif_text": "describe_assumptions describe_end describe_estimate whatif_summary",
    "mulligan.service.authoring.workflow_files": "Validation",
    "mulligan.service.decisions.decisions": "Decision DecisionPreview DecisionResult make_decision read_decisions",
    "mulligan.service.decisions.earlier_decisions": "EarlierDecision",
    "mulligan.service.decisions.inbox": "GivenAnswer Inbox LogTail PendingDetails",
    "mulligan.service.decisions.pending": "PendingEntry PendingPage commands_for_pending describe_earlier_run",
    "mulligan.service.driving.driver": "GPUS_VARIABLE Capacity Driver Ending WorkerLimits capacity_for machine",
    "mulligan.service.driving.import_order": "import_in_order",
    "mulligan.service.driving.outcome": "MatrixFailures Outcome exit_code",
    "mulligan.service.driving.run_progress": "RunProgress Activity AnnouncementWriter Announcement",
    "mulligan.service.driving.shown_runs": "RunDisplay",
    "mulligan.service.driving.waiting": "Until WaitEvent",
    "mulligan.service.driving.workers": "WorkerLine WorkerTask",
    "mulligan.service.home": "Home",
    "mulligan.service.home_names": "CONFIG_VARIABLE server_url",
    "mulligan.service.host.breakers": "Breaker",
    "mulligan.service.host.doctor": "Check Diagnosis",
    "mulligan.service.host.gc": "Garbage GarbageReport RunRetention",
    "mulligan.service.host.private_postgres": "PostgresStatus postgres_status start_postgres stop_postgres",
    "mulligan.service.host.slurm.draining": "Drained",
    "mulligan.service.host.slurm.overview": "PilotLine SlurmStatus",
    "mulligan.service.host.slurm.profiles": "Profiles",
    "mulligan.service.host.slurm.submission": "Submitted",
    "mulligan.service.logs.log_following": "LogPiece LogSelection",
    "mulligan.service.logs.log_lines": "LogIndex LogLines LogMatches",
    "mulligan.service.logs.log_pages": "LogLine LogPage",
    "mulligan.service.logs.logs": "UnknownAttempt",
    "mulligan.service.rendering.console.coverage_text": "case_story_lines coverage_lines",
    "mulligan.service.rendering.console.display": "Display",
    "mulligan.service.rendering.console.printer": "Printer printer",
    "mulligan.service.rendering.console.summary": "show_outcome",
    "mulligan.service.rendering.console.terminal_text": "ANY_COLOURS NO_COLOURS OWN_COLOURS kinds_text length "
    "visible wants_colour",
    "mulligan.service.rendering.descriptions": "describe_artifact describe_value describe_budget describe_spending "
    "failure_tail message_lines summarize_failure",
    "mulligan.service.rendering.documentation": "Documentation FoundSection PageText UnknownPage read_pages",
    "mulligan.service.rendering.drawing.picture": "Node",
    "mulligan.service.rendering.json_output": "error_to_json log_lines_to_json to_json",
    "mulligan.service.rendering.next_commands": "command_for_request commands_for_wait suggest_commands",
    "mulligan.service.rendering.page.coverage": "render_figures render_findings render_heat_map render_legend "
    "render_pairs render_story",
    "mulligan.service.rendering.page.failures": "render_visit",
    "mulligan.service.rendering.page.markup": "Html element join_html",
    "mulligan.service.rendering.page.styles": "chart_styles coverage_styles format_elapsed status_label status_tone "
    "time_element",
    "mulligan.service.rendering.story_text": "describe_question format_story format_wait when_default_applies",
    "mulligan.service.runs.changes.change_verbs": "ChangeResult ChangeVerbs DecidedStep DecisionsResult ForkResult "
    "Given RetryResult StartedRun",
    "mulligan.service.runs.changes.corrections": "ChangedSteps CorrectedWorkflow Correction",
    "mulligan.service.runs.changes.fork_at": "EventFork",
    "mulligan.service.runs.changes.preflight": "SERVER_LABELS refuse_reserved_labels",
    "mulligan.service.runs.changes.preview": "Preview StepPreview",
    "mulligan.service.runs.changes.round_plans": "ForkPlan RoundPlan",
    "mulligan.service.runs.changes.run_control": "Prepared",
    "mulligan.service.runs.changes.starting": "DetachedRun ExistingRun check_key",
    "mulligan.service.runs.changes.unattended_runs": "UnattendedRuns WorkflowSource",
    "mulligan.service.runs.statistics.forecast": "Forecast",
    "mulligan.service.runs.statistics.recent_runs": "Day Failing FailingGroup RecentRuns WaitingRuns WorkflowDays",
    "mulligan.service.runs.statistics.stats": "AgentStats RungStats describe_rung",
    "mulligan.service.runs.statistics.trends": "CodeStats RecoveryTrend Spending WeekStats WorkflowSpending "
    "WorkflowUsage monday",
    "mulligan.service.runs.statistics.usage": "ResourceProposal StepUsage UsedResources",
    "mulligan.service.runs.stored.artifacts": "KeptFile",
    "mulligan.service.runs.stored.attempts": "AttemptRecord Cost",
    "mulligan.service.runs.stored.damaged_runs": "RemovedRuns may_be_damage",
    "mulligan.service.runs.stored.run_data": "DataEntry",
    "mulligan.service.runs.stored.run_reader": "LATEST AttemptLog StepOutput",
    "mulligan.service.runs.stored.run_workflows": "RunWorkflow",
    "mulligan.service.runs.views.attempt_progress": "describe_progress",
    "mulligan.service.runs.views.failure_details": "FailureDetails",
    "mulligan.service.runs.views.failure_summary": "FailureOutcome FailureGroup group_failures spent_budget",
    "mulligan.service.runs.views.items": "Item SomeItems",
    "mulligan.service.runs.views.report": "Report",
    "mulligan.service.runs.views.report.attempts": "part_of",
    "mulligan.service.runs.views.run_comparison": "ComparedRun ComparedStep RunComparison ValuePair",
    "mulligan.service.runs.views.run_details": "ArtifactContent EventPage FailureHandlers RunDetails StoryPage",
    "mulligan.service.runs.views.run_events": "EventFeed EventLine",
    "mulligan.service.runs.views.run_graph": "RunGraph",
    "mulligan.service.runs.views.run_grid": "GridPage GridQuery GridRow",
    "mulligan.service.runs.views.run_list": "FailedStep RunLine RunPage RunQuery STATUSES WaitReason parse_statuses",
    "mulligan.service.runs.views.run_pages": "ItemPage ItemQuery RunChanges StepLine StepPage StepQuery",
    "mulligan.service.runs.views.run_reasons": "FailureOverview RunReason explain_line explain_run "
    "waits_only_for_a_person",
    "mulligan.service.runs.views.run_snapshot": "FailedVisit RunSnapshot RunStatus StepSnapshot",
    "mulligan.service.runs.views.run_story": "LocatedWait StoryLine LocatedLine",
    "mulligan.service.runs.views.run_timeline": "Mosaic Timeline",
    "mulligan.service.runs.views.run_view": "RUN_HEAD WHOLE_RUN CalledRunView FailureView MatrixView RunDriver RunView "
    "SpentView StepView part part_type",
    "mulligan.service.runs.views.step_history": "AttemptLine RuleLine StepHistories StepHistory VisitLadder",
    "mulligan.service.runs.views.time_travel": "MomentPicture RunDifference RunMoment StepPoints TimeTravel TurnEvents",
    "mulligan.service.server.audit": "ACCEPTED AuditLog AuditPage AuditWithRun",
    "mulligan.service.server.background_jobs": "JOBS BackgroundJobs Job run_jobs",
    "mulligan.service.server.catalogue.catalogue": "Draft Proposal Publication PublishedWorkflow WorkflowList",
    "mulligan.service.server.catalogue.drawn_texts": "DrawnText ExaminedText StepPosition",
    "mulligan.service.server.catalogue.text_additions": "NewEdge NewRule NewStep",
    "mulligan.service.server.catalogue.text_diff": "DiffLine diff_texts",
    "mulligan.service.server.catalogue.text_edits": "StepEdit",
    "mulligan.service.server.catalogue.text_reading": "TextReader",
    "mulligan.service.server.catalogue.texts": "published_reference",
    "mulligan.service.server.catalogue.workflow_lines": "WorkflowLine list_workflow_lines",
    "mulligan.service.server.live_feed": "LiveEvent LiveFeed Watch parse_watches",
    "mulligan.service.server.logins": "LINK_MINUTES SESSION_HOURS Logins Session digest_of new_secret owner_of "
    "start_token",
    "mulligan.service.server.notices.notices": "HookRule Hooks NoticeLine NoticePage SentNotices TestResult "
    "parse_notify read_rules unknown_target_note",
    "mulligan.service.server.schedules.forms": "ScheduleForm instant_text",
    "mulligan.service.server.schedules.past_instants": "PastInstant PastInstants",
    "mulligan.service.server.schedules.schedules": "Backfill ScheduleView",
    "mulligan.service.server.schedules.timing_words": "describe_timing",
    "mulligan.service.server.server_client": "is_login_link log_in log_out start_published",
    "mulligan.service.server.server_config": "ServerConfig ServerSection TrustedProxy find_config parse_config",
    "mulligan.service.server.store_calls": "CALL_HEADER PROCESS PROCESS_HEADER PROTOCOL_HEADER UPLOAD_BYTES_MAX "
    "WAIT_SECONDS ChangeCounter ChangeCounts UploadedFile gives_bytes",
    "mulligan.service.server.telemetry.log_lines": "log_line",
    "mulligan.service.server.telemetry.telemetry": "ENDPOINT_VARIABLES METRICS_TYPE merge_metrics request_metrics",
    "mulligan.service.server.telemetry.worker_metrics": "MetricsServer WorkerMetrics",
    "mulligan.service.server.tokens.decision_ledger": "DecisionLedger TOOL_DECISIONS",
    "mulligan.service.server.tokens.tokens": "NewToken TokenForm TokenList TokenView read_limits",
    "mulligan.service.service": "Service open_service open_temporary_service open_worker_service",
    "mulligan.worker.logs.progress_records": "Progress",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mulligan.service' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
