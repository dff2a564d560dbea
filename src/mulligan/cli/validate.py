"""`mulligan validate`: is this a workflow, and if not, why not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from mulligan.cli.options import System, TrustTemplates
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.terminal import complain, show, show_json
from mulligan.errors import LanguageError, Problem
from mulligan.service.definitions import FORMATS, OURS, LoadResult, Workflow, edges_count, examine

_SHOWN = ("message", "file", "line", "column", "hint")


def validate(
    files: Annotated[list[Path], Argument(metavar="FILE...", help="Workflow files.")],
    system: System = None,
    trust_templates: TrustTemplates = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object, or an array for several files.")] = False,
) -> int:
    """Check workflow files, and show what is wrong and where.

    Nothing is run. Files of Torc, Prodigy, NoETL and Alphred are checked as they are.
    The exit code is 0 if all files are good, warnings or not, and 2 if any is refused.
    """
    verdicts = [_verdict(path, system, trust_templates) for path in files]
    if as_json:
        answers = [_as_json(path, verdict) for path, verdict in zip(files, verdicts, strict=True)]
        show_json(answers[0] if len(answers) == 1 else answers)
    else:
        for path, verdict in zip(files, verdicts, strict=True):
            _tell(path, verdict)
    return 2 if any(isinstance(verdict, LanguageError) for verdict in verdicts) else 0


def _verdict(path: Path, system: str | None, trust_templates: bool) -> LoadResult | LanguageError:
    try:
        return examine(path, named=system, trust_templates=trust_templates)
    except LanguageError as refused:
        return refused


def _tell(path: Path, verdict: LoadResult | LanguageError) -> None:
    if isinstance(verdict, LanguageError):
        complain(verdict.render())
        return
    for warning in verdict.warnings:
        complain(warning.render())
    show(f"{path}: ok, {_whose(verdict.workflow)}{_size(verdict.workflow)}")


def _whose(workflow: Workflow) -> str:
    """Which system the file is of, where it is not ours."""
    name = FORMATS.get(workflow.origin, "")
    return f"{'an' if name.startswith('A') else 'a'} {name} file: " if name else ""


def _size(workflow: Workflow) -> str:
    counts = (("step", len(workflow.steps)), ("edge", edges_count(workflow)), ("input", len(workflow.inputs)))
    return ", ".join(_counted(word, count) for word, count in counts if count or word == "step")


def _counted(word: str, count: int) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _as_json(path: Path, verdict: LoadResult | LanguageError) -> dict[str, Any]:
    if isinstance(verdict, LanguageError):
        found = {"ok": False, "file": str(path), "format": None, "name": None, "steps": None}
        return {**found, "problems": list(map(problem_as_json, verdict.problems)), "warnings": []}
    workflow, warnings = verdict
    whose = {"file": str(path), "format": workflow.origin or OURS}
    found = {"ok": True, **whose, "name": workflow.name, "steps": len(workflow.steps)}
    return {**found, "problems": [], "warnings": list(map(problem_as_json, warnings))}


def problem_as_json(problem: Problem) -> dict[str, Any]:
    """A problem or a warning as `--json` has it."""
    return {"code": problem.shown_code, **{field: getattr(problem, field) for field in _SHOWN}}
