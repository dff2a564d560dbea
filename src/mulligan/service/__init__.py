"""What a face may import: `Service`, the types of its answers, and a few functions that put them into words.

`mulligan.service.formatting` (numbers and names in words) and `mulligan.service.suggestions` (completion) are public
too; everything else in this package is not. A name is imported from its module when it is first asked for.
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
    from mulligan.core.deciding.child_rounds import PlannedChild
    from mulligan.core.effects.run_lists import QueuedShape
    from mulligan.core.model.credential_patterns import hide_credentials, is_credential_name
    from mulligan.core.model.event_types import HostCapacity
    from mulligan.core.model.failure import Failure
    from mulligan.core.model.guard_rails import VERDICTS, agent_user, is_agent
    from mulligan.core.model.scopes import MEANINGS, SCOPES, allows
    from mulligan.core.model.workflow import Workflow
    from mulligan.core.state.state import Suggestion
    from mulligan.core.state.transitions import RUN_ENDED
    from mulligan.dask_executor.address import read_cluster_address
    from mulligan.engine.timings import Histogram
    from mulligan.formats import FORMATS, OURS, Converted, is_system, systems_with_logs, title_of
    from mulligan.history.route_outcomes import Fate
    from mulligan.language.suggestions import did_you_mean
    from mulligan.language.workspace_steps import with_default_workspace
    from mulligan.lazy_modules import import_lazy_modules
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
    from mulligan.service.artifacts import KeptFile
    from mulligan.service.attempt_progress import describe_progress
    from mulligan.service.attempts import AttemptRecord
    from mulligan.service.audit import ACCEPTED, AuditLog, AuditPage, AuditWithRun
    from mulligan.service.background_jobs import JOBS, BackgroundJobs, Job, run_jobs
    from mulligan.service.breakers import Breaker
    from mulligan.service.brief_overview import unlisted_counts
    from mulligan.service.catalogue.catalogue import Draft, Proposal, Publication, PublishedWorkflow, WorkflowList
    from mulligan.service.catalogue.drawn_texts import DrawnText, ExaminedText, StepPosition
    from mulligan.service.catalogue.text_additions import NewEdge, NewRule, NewStep
    from mulligan.service.catalogue.text_diff import DiffLine, diff_texts
    from mulligan.service.catalogue.text_edits import StepEdit
    from mulligan.service.catalogue.text_reading import TextReader
    from mulligan.service.catalogue.texts import published_reference
    from mulligan.service.catalogue.workflow_lines import WorkflowLine, list_workflow_lines
    from mulligan.service.change_verbs import (
        ChangeResult,
        ChangeVerbs,
        DecidedStep,
        DecisionsResult,
        ForkResult,
        Given,
        RetryResult,
        StartedRun,
    )
    from mulligan.service.console.coverage_text import case_story_lines, coverage_lines
    from mulligan.service.console.display import Display
    from mulligan.service.console.printer import Printer, printer
    from mulligan.service.console.summary import show_outcome
    from mulligan.service.console.terminal_text import (
        ANY_COLOURS,
        NO_COLOURS,
        OWN_COLOURS,
        kinds_text,
        length,
        visible,
        wants_colour,
    )
    from mulligan.service.corrections import ChangedSteps, CorrectedWorkflow, Correction
    from mulligan.service.coverage import CaseStory
    from mulligan.service.damaged_runs import RemovedRuns, may_be_damage
    from mulligan.service.decisions import Decision, DecisionPreview, DecisionResult, make_decision, read_decisions
    from mulligan.service.descriptions import (
        describe_artifact,
        describe_budget,
        describe_spending,
        describe_value,
        failure_tail,
        message_lines,
        summarize_failure,
    )
    from mulligan.service.doctor import Check, Diagnosis
    from mulligan.service.documentation import Documentation, FoundSection, PageText, UnknownPage, read_pages
    from mulligan.service.drawing.picture import Node
    from mulligan.service.driver import GPUS_VARIABLE, Capacity, Driver, Ending, WorkerLimits, capacity_for, machine
    from mulligan.service.earlier_decisions import EarlierDecision
    from mulligan.service.failure_details import FailureDetails
    from mulligan.service.failure_summary import FailureGroup, FailureOutcome, group_failures, spent_budget
    from mulligan.service.forecast import Forecast
    from mulligan.service.fork_at import EventFork
    from mulligan.service.format_options import read_format_options
    from mulligan.service.gc import Garbage, GarbageReport, RunRetention
    from mulligan.service.handler_trial import HandlerResult, HandlerTrial, describe_result, parse_failure
    from mulligan.service.home import Home
    from mulligan.service.home_names import CONFIG_VARIABLE, server_url
    from mulligan.service.import_order import import_in_order
    from mulligan.service.inbox import GivenAnswer, Inbox, LogTail, PendingDetails
    from mulligan.service.items import Item, SomeItems
    from mulligan.service.json_output import error_to_json, log_lines_to_json, to_json
    from mulligan.service.live_feed import LiveEvent, LiveFeed, Watch, parse_watches
    from mulligan.service.log_following import LogPiece, LogSelection
    from mulligan.service.log_lines import LogIndex, LogLines, LogMatches
    from mulligan.service.log_pages import LogLine, LogPage
    from mulligan.service.logins import (
        LINK_MINUTES,
        SESSION_HOURS,
        Logins,
        Session,
        digest_of,
        new_secret,
        owner_of,
        start_token,
    )
    from mulligan.service.logs import UnknownAttempt
    from mulligan.service.named_files import FileUnreadable, FileUnwritable, read_file, write_file
    from mulligan.service.next_commands import (
        command_for_request,
        commands_for_wait,
        suggest_commands,
    )
    from mulligan.service.notices.notices import (
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
    from mulligan.service.outcome import MatrixFailures, Outcome, exit_code
    from mulligan.service.page.coverage import (
        render_figures,
        render_findings,
        render_heat_map,
        render_legend,
        render_pairs,
        render_story,
    )
    from mulligan.service.page.failures import render_visit
    from mulligan.service.page.markup import Html, element, join_html
    from mulligan.service.page.styles import (
        chart_styles,
        coverage_styles,
        format_elapsed,
        status_label,
        status_tone,
        time_element,
    )
    from mulligan.service.pending import PendingEntry, PendingPage, commands_for_pending, describe_earlier_run
    from mulligan.service.preflight import SERVER_LABELS, refuse_reserved_labels
    from mulligan.service.preview import Preview, StepPreview
    from mulligan.service.private_postgres import PostgresStatus, postgres_status, start_postgres, stop_postgres
    from mulligan.service.recent_runs import Day, Failing, FailingGroup, RecentRuns, WaitingRuns, WorkflowDays
    from mulligan.service.report import Report
    from mulligan.service.round_plans import ForkPlan, RoundPlan
    from mulligan.service.run_comparison import ComparedRun, ComparedStep, RunComparison, ValuePair
    from mulligan.service.run_control import Prepared
    from mulligan.service.run_data import DataEntry
    from mulligan.service.run_details import (
        ArtifactContent,
        EventPage,
        FailureHandlers,
        RunDetails,
        StoryPage,
    )
    from mulligan.service.run_events import EventFeed, EventLine
    from mulligan.service.run_graph import RunGraph
    from mulligan.service.run_grid import GridAttempt, GridPage, GridQuery, GridRow
    from mulligan.service.run_list import (
        STATUSES,
        FailedStep,
        RunLine,
        RunPage,
        RunQuery,
        WaitReason,
        parse_statuses,
    )
    from mulligan.service.run_pages import ItemPage, ItemQuery, RunChanges, StepLine, StepPage, StepQuery
    from mulligan.service.run_progress import Activity, Announcement, AnnouncementWriter, RunProgress
    from mulligan.service.run_reader import LATEST, AttemptLog, StepOutput
    from mulligan.service.run_reasons import RunFailures, RunReason, explain_line, explain_run, waits_only_for_a_person
    from mulligan.service.run_snapshot import FailedVisit, RunSnapshot, RunStatus, StepSnapshot
    from mulligan.service.run_story import LocatedLine, LocatedWait, StoryLine, shown_place
    from mulligan.service.run_timeline import Mosaic, Timeline
    from mulligan.service.run_workflows import RunWorkflow
    from mulligan.service.schedules.forms import ScheduleForm, instant_text
    from mulligan.service.schedules.past_instants import PastInstant, PastInstants
    from mulligan.service.schedules.schedules import Backfill, ScheduleView
    from mulligan.service.schedules.timing_words import describe_timing
    from mulligan.service.server_client import is_login_link, log_in, log_out, start_published
    from mulligan.service.server_config import ServerConfig, ServerSection, TrustedProxy, find_config, parse_config
    from mulligan.service.service import Service, open_service, open_temporary_service, open_worker_service
    from mulligan.service.shown_runs import RunDisplay
    from mulligan.service.slurm.draining import Drained
    from mulligan.service.slurm.overview import PilotLine, SlurmStatus
    from mulligan.service.slurm.profiles import Profiles
    from mulligan.service.slurm.submission import Submitted
    from mulligan.service.starting import DetachedRun, ExistingRun, check_key
    from mulligan.service.stats import AgentStats, RungStats, describe_rung
    from mulligan.service.step_history import AttemptLine, RuleLine, StepHistories, StepHistory, VisitLadder
    from mulligan.service.step_trial import Fakes
    from mulligan.service.store_calls import (
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
    from mulligan.service.story_text import describe_question, format_story, format_wait, when_default_applies
    from mulligan.service.suggest import (
        DraftedChanges,
        LookedAt,
        SuggestedChange,
        Suggestions,
        WhatIfFigures,
        WrittenChanges,
    )
    from mulligan.service.telemetry.log_lines import log_line
    from mulligan.service.telemetry.telemetry import ENDPOINT_VARIABLES, METRICS_TYPE, merge_metrics, request_metrics
    from mulligan.service.telemetry.worker_metrics import MetricsServer, WorkerMetrics
    from mulligan.service.time_travel import (
        MomentPicture,
        RunDifference,
        RunMoment,
        StepPoints,
        TimeTravel,
        TurnEvents,
    )
    from mulligan.service.tokens.decision_ledger import TOOL_DECISIONS, DecisionLedger
    from mulligan.service.tokens.tokens import NewToken, TokenForm, TokenList, TokenView, read_limits
    from mulligan.service.trends import (
        CodeStats,
        RecoveryTrend,
        Spending,
        WeekStats,
        WorkflowSpending,
        WorkflowUsage,
        monday,
    )
    from mulligan.service.unattended_runs import UnattendedRuns, WorkflowSource
    from mulligan.service.usage import ResourceProposal, StepUsage, UsedResources
    from mulligan.service.values import parse_duration, parse_end, parse_size, parse_time, read_budgets
    from mulligan.service.waiting import Until, WaitEvent
    from mulligan.service.whatif import WhatIfSelection
    from mulligan.service.whatif_text import describe_assumptions, describe_end, describe_estimate, whatif_summary
    from mulligan.service.workers import WorkerLine, WorkerTask
    from mulligan.service.workflow_files import Validation
    from mulligan.worker.progress_records import Progress

_NAMES = {
    "mulligan.analysis.coverage.figures": "Figures count_figures describe_figures",
    "mulligan.analysis.coverage.results": "Coverage FailureKind Finding Times",
    "mulligan.analysis.coverage.summary": "CoverageSummary summarize",
    "mulligan.analysis.coverage.table": "CoverageRow CoverageTable arrange_table",
    "mulligan.analysis.coverage.words": "describe_failure_of played_text",
    "mulligan.analysis.whatif.results": "Estimate RunWhatIf UndecidedRun WhatIf",
    "mulligan.core.model.event_types": "HostCapacity",
    "mulligan.core.deciding.child_rounds": "PlannedChild",
    "mulligan.core.effects.run_lists": "QueuedShape",
    "mulligan.core.model.failure": "Failure",
    "mulligan.core.model.credential_patterns": "hide_credentials is_credential_name",
    "mulligan.core.model.guard_rails": "VERDICTS agent_user is_agent",
    "mulligan.core.model.scopes": "MEANINGS SCOPES allows",
    "mulligan.core.model.workflow": "Workflow",
    "mulligan.core.state.state": "Suggestion",
    "mulligan.core.state.transitions": "RUN_ENDED",
    "mulligan.dask_executor.address": "read_cluster_address",
    "mulligan.engine.timings": "Histogram",
    "mulligan.formats": "FORMATS OURS Converted is_system systems_with_logs title_of",
    "mulligan.history.route_outcomes": "Fate",
    "mulligan.language.suggestions": "did_you_mean",
    "mulligan.language.workspace_steps": "with_default_workspace",
    "mulligan.ports.server_records": "AuditRecord Document LogKey NoticeRecord NoticeStatus Scope TokenLimits "
    "TokenRecord WorkflowVersion",
    "mulligan.service.artifacts": "KeptFile",
    "mulligan.service.attempt_progress": "describe_progress",
    "mulligan.service.attempts": "AttemptRecord",
    "mulligan.service.audit": "ACCEPTED AuditLog AuditPage AuditWithRun",
    "mulligan.service.background_jobs": "JOBS BackgroundJobs Job run_jobs",
    "mulligan.service.import_order": "import_in_order",
    "mulligan.service.breakers": "Breaker",
    "mulligan.service.brief_overview": "unlisted_counts",
    "mulligan.service.change_verbs": "ChangeResult ChangeVerbs DecidedStep DecisionsResult ForkResult Given "
    "RetryResult StartedRun",
    "mulligan.service.catalogue.catalogue": "Draft Proposal Publication PublishedWorkflow WorkflowList",
    "mulligan.service.catalogue.drawn_texts": "DrawnText ExaminedText StepPosition",
    "mulligan.service.catalogue.text_additions": "NewEdge NewRule NewStep",
    "mulligan.service.catalogue.text_diff": "DiffLine diff_texts",
    "mulligan.service.catalogue.text_edits": "StepEdit",
    "mulligan.service.catalogue.text_reading": "TextReader",
    "mulligan.service.catalogue.texts": "published_reference",
    "mulligan.service.catalogue.workflow_lines": "WorkflowLine list_workflow_lines",
    "mulligan.service.console.coverage_text": "case_story_lines coverage_lines",
    "mulligan.service.console.display": "Display",
    "mulligan.service.console.printer": "Printer printer",
    "mulligan.service.console.summary": "show_outcome",
    "mulligan.service.console.terminal_text": "ANY_COLOURS NO_COLOURS OWN_COLOURS kinds_text length visible "
    "wants_colour",
    "mulligan.service.corrections": "ChangedSteps CorrectedWorkflow Correction",
    "mulligan.service.coverage": "CaseStory",
    "mulligan.service.decisions": "Decision DecisionPreview DecisionResult make_decision read_decisions",
    "mulligan.service.descriptions": "describe_artifact describe_value describe_budget describe_spending "
    "failure_tail message_lines summarize_failure",
    "mulligan.service.doctor": "Check Diagnosis",
    "mulligan.service.documentation": "Documentation FoundSection PageText UnknownPage read_pages",
    "mulligan.service.drawing.picture": "Node",
    "mulligan.service.earlier_decisions": "EarlierDecision",
    "mulligan.service.driver": "GPUS_VARIABLE Capacity Driver Ending WorkerLimits capacity_for machine",
    "mulligan.service.failure_details": "FailureDetails",
    "mulligan.service.failure_summary": "FailureOutcome FailureGroup group_failures spent_budget",
    "mulligan.service.forecast": "Forecast",
    "mulligan.service.fork_at": "EventFork",
    "mulligan.service.format_options": "read_format_options",
    "mulligan.service.damaged_runs": "RemovedRuns may_be_damage",
    "mulligan.service.gc": "Garbage GarbageReport RunRetention",
    "mulligan.service.handler_trial": "HandlerResult HandlerTrial describe_result parse_failure",
    "mulligan.service.home": "Home",
    "mulligan.service.home_names": "CONFIG_VARIABLE server_url",
    "mulligan.service.inbox": "GivenAnswer Inbox LogTail PendingDetails",
    "mulligan.service.items": "Item SomeItems",
    "mulligan.service.json_output": "error_to_json log_lines_to_json to_json",
    "mulligan.lazy_modules": "import_lazy_modules",
    "mulligan.service.live_feed": "LiveEvent LiveFeed Watch parse_watches",
    "mulligan.service.log_following": "LogPiece LogSelection",
    "mulligan.service.log_lines": "LogIndex LogLines LogMatches",
    "mulligan.service.log_pages": "LogLine LogPage",
    "mulligan.service.logins": "LINK_MINUTES SESSION_HOURS Logins Session digest_of new_secret owner_of start_token",
    "mulligan.service.logs": "UnknownAttempt",
    "mulligan.service.named_files": "FileUnreadable FileUnwritable read_file write_file",
    "mulligan.service.next_commands": "command_for_request commands_for_wait suggest_commands",
    "mulligan.service.notices.notices": "HookRule Hooks NoticeLine NoticePage SentNotices TestResult parse_notify "
    "read_rules unknown_target_note",
    "mulligan.service.outcome": "MatrixFailures Outcome exit_code",
    "mulligan.service.page.coverage": "render_figures render_findings render_heat_map render_legend render_pairs "
    "render_story",
    "mulligan.service.page.failures": "render_visit",
    "mulligan.service.page.markup": "Html element join_html",
    "mulligan.service.page.styles": "chart_styles coverage_styles format_elapsed status_label status_tone time_element",
    "mulligan.service.pending": "PendingEntry PendingPage commands_for_pending describe_earlier_run",
    "mulligan.service.preview": "Preview StepPreview",
    "mulligan.service.recent_runs": "Day Failing FailingGroup RecentRuns WaitingRuns WorkflowDays",
    "mulligan.service.report": "Report",
    "mulligan.service.preflight": "SERVER_LABELS refuse_reserved_labels",
    "mulligan.service.private_postgres": "PostgresStatus postgres_status start_postgres stop_postgres",
    "mulligan.service.round_plans": "ForkPlan RoundPlan",
    "mulligan.service.run_comparison": "ComparedRun ComparedStep RunComparison ValuePair",
    "mulligan.service.run_control": "Prepared",
    "mulligan.service.run_data": "DataEntry",
    "mulligan.service.run_details": "ArtifactContent EventPage FailureHandlers RunDetails StoryPage",
    "mulligan.service.run_events": "EventFeed EventLine",
    "mulligan.service.run_graph": "RunGraph",
    "mulligan.service.run_grid": "GridAttempt GridPage GridQuery GridRow",
    "mulligan.service.run_list": "FailedStep RunLine RunPage RunQuery STATUSES WaitReason parse_statuses",
    "mulligan.service.run_pages": "ItemPage ItemQuery RunChanges StepLine StepPage StepQuery",
    "mulligan.service.run_progress": "RunProgress Activity AnnouncementWriter Announcement",
    "mulligan.service.run_reader": "LATEST AttemptLog StepOutput",
    "mulligan.service.run_reasons": "RunFailures RunReason explain_line explain_run waits_only_for_a_person",
    "mulligan.service.run_snapshot": "FailedVisit RunSnapshot RunStatus StepSnapshot",
    "mulligan.service.run_story": "LocatedWait StoryLine LocatedLine shown_place",
    "mulligan.service.run_timeline": "Mosaic Timeline",
    "mulligan.service.run_workflows": "RunWorkflow",
    "mulligan.service.schedules.forms": "ScheduleForm instant_text",
    "mulligan.service.schedules.past_instants": "PastInstant PastInstants",
    "mulligan.service.schedules.schedules": "Backfill ScheduleView",
    "mulligan.service.schedules.timing_words": "describe_timing",
    "mulligan.service.server_config": "ServerConfig ServerSection TrustedProxy find_config parse_config",
    "mulligan.service.server_client": "is_login_link log_in log_out start_published",
    "mulligan.service.service": "Service open_service open_temporary_service open_worker_service",
    "mulligan.service.shown_runs": "RunDisplay",
    "mulligan.service.slurm.draining": "Drained",
    "mulligan.service.slurm.overview": "PilotLine SlurmStatus",
    "mulligan.service.slurm.profiles": "Profiles",
    "mulligan.service.slurm.submission": "Submitted",
    "mulligan.service.starting": "DetachedRun ExistingRun check_key",
    "mulligan.service.stats": "AgentStats RungStats describe_rung",
    "mulligan.service.step_history": "AttemptLine RuleLine StepHistories StepHistory VisitLadder",
    "mulligan.service.step_trial": "Fakes",
    "mulligan.service.store_calls": "CALL_HEADER PROCESS PROCESS_HEADER PROTOCOL_HEADER UPLOAD_BYTES_MAX "
    "WAIT_SECONDS ChangeCounter ChangeCounts UploadedFile gives_bytes",
    "mulligan.service.story_text": "describe_question format_story format_wait when_default_applies",
    "mulligan.service.suggest": "DraftedChanges LookedAt SuggestedChange Suggestions WhatIfFigures WrittenChanges",
    "mulligan.service.telemetry.log_lines": "log_line",
    "mulligan.service.telemetry.telemetry": "ENDPOINT_VARIABLES METRICS_TYPE merge_metrics request_metrics",
    "mulligan.service.telemetry.worker_metrics": "MetricsServer WorkerMetrics",
    "mulligan.service.time_travel": "MomentPicture RunDifference RunMoment StepPoints TimeTravel TurnEvents",
    "mulligan.service.tokens.decision_ledger": "DecisionLedger TOOL_DECISIONS",
    "mulligan.service.tokens.tokens": "NewToken TokenForm TokenList TokenView read_limits",
    "mulligan.service.trends": "CodeStats RecoveryTrend Spending WeekStats WorkflowSpending WorkflowUsage monday",
    "mulligan.service.unattended_runs": "UnattendedRuns WorkflowSource",
    "mulligan.service.usage": "ResourceProposal StepUsage UsedResources",
    "mulligan.service.values": "parse_duration parse_end parse_size parse_time read_budgets",
    "mulligan.service.waiting": "Until WaitEvent",
    "mulligan.service.whatif": "WhatIfSelection",
    "mulligan.service.whatif_text": "describe_assumptions describe_end describe_estimate whatif_summary",
    "mulligan.service.workers": "WorkerLine WorkerTask",
    "mulligan.service.workflow_files": "Validation",
    "mulligan.worker.progress_records": "Progress",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mulligan.service' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
