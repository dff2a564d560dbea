"""`agent`: a coding or language agent, as a process. Its answer is what it prints or writes to $MULLIGAN_OUTPUT.

The worker's environment defines the command of an agent: a workflow only names the agent. The prompt and the context
are passed as files and on standard input, never on the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.agents.spending import parse_count, plain_cost
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import InputInvalid
from mulligan.language.expressions import as_text
from mulligan.language.keys.value_schemas import NAME
from mulligan.language.shell.shell import environment_value
from mulligan.language.text.nodes import shorten
from mulligan.ports import Lease
from mulligan.worker.actions import shell
from mulligan.worker.actions.agent_answer import AnswerRejected, decision, read_structure, shown_usage
from mulligan.worker.actions.agent_output import FORMS, MODEL_CHARS_MAX, Reading, priced, read
from mulligan.worker.actions.agent_prompt import hide_credentials, make_prompt, prompt_params
from mulligan.worker.actions.agent_providers import VARIABLE, Provider, command_variable, provider
from mulligan.worker.actions.default_agents import DEFAULT_PROVIDER, SKIP_PERMISSIONS
from mulligan.worker.environment import task_environment, working_folder_of
from mulligan.worker.folders import Folders, Logs, ScratchFiles, file_size, write_private_file
from mulligan.worker.outputs import outputs
from mulligan.worker.outputs.artifact_inputs import InputPreparation, has_large_input, invalid_input
from mulligan.worker.programs import Programs
from mulligan.worker.slots.deadlines import seconds_left
from mulligan.worker.slots.loop_limits import LOOP_BYTES_MAX_CHECKED
from mulligan.worker.task_reports import ExitedTask, ProgramNotFound, report_refusal

# The default commands. The model is passed as a variable, not as part of the text.
COMMANDS = {
    "claude": (
        'claude -p --output-format json ${MULLIGAN_MODEL:+--model "$MULLIGAN_MODEL"} '
        f"${{MULLIGAN_SKIP_PERMISSIONS:+{SKIP_PERMISSIONS['claude']}}}"
    ),
    "codex": (
        'codex exec --json ${MULLIGAN_MODEL:+--model "$MULLIGAN_MODEL"} '
        f"${{MULLIGAN_SKIP_PERMISSIONS:+{SKIP_PERMISSIONS['codex']}}} -"
    ),
}
# The exit codes of a shell that cannot run the command.
_NOT_RUN_CODES = (126, 127)
_NO_FILE = ""
# The code for an agent that reports a failure but exits with 0.
FAILED = "AGENT_FAILED"


# -- starting --------------------------------------------------------------------------------------------------------


def build_command(
    lease: Lease, scratch: ScratchFiles, folders: Folders, programs: Programs
) -> tuple[tuple[Any, ...], bool]:
    """Return what the supervisor has to start: the provider's command, in bash. InputInvalid if there is none."""
    task = lease.task
    command = _command(task, programs)
    if task.conversation:
        name = provider_of(task)
        hint = "name a provider of kind openai or anthropic, or give the command its own tools"
        raise InputInvalid(f"agent '{name}' is a command, which has neither 'tools' nor a 'session': {hint}")
    environment = task_environment(lease, scratch, folders.outputs(task.run_id))
    environment |= {
        "MULLIGAN_PROMPT_FILE": scratch.prompt,
        "MULLIGAN_CONTEXT_FILE": scratch.agent_context,
        "MULLIGAN_MODEL": environment_value("model", task.params.get("model")),
        "MULLIGAN_SKIP_PERMISSIONS": "true" if task.params.get("skip_permissions") else "",
        **_budget_variables(task),
    }
    if not has_large_input(task):
        _write_prompt(task, scratch.prompt, scratch.agent_context, scratch.stdin)
    bash = programs.find_interpreter(shell.INTERPRETER, environment)
    if bash is None:
        raise ProgramNotFound(shell.INTERPRETER)
    # The variable's name becomes $0, which shows whether bash itself printed an error.
    argv = [shell.INTERPRETER, "-c", command, variable_of(task)]
    folder, left = working_folder_of(task), seconds_left(task)
    return (bash, argv, environment, folder, scratch.stdin, scratch.out, scratch.err, left, task.memory), False


def _budget_variables(task: Task) -> dict[str, str]:
    """Return what it may spend, for an agent that can limit itself."""
    left = task.budget.limits if task.budget is not None else {}
    return {f"MULLIGAN_BUDGET_{what.upper()}": _format_figure(value) for what, value in left.items()}


def _format_figure(value: Any) -> str:
    return str(value) if isinstance(value, int) else plain_cost(value)


def provider_of(task: Task) -> str:
    """Return the name of the agent. InputInvalid if an expression returned something else."""
    named = as_text(task.params.get("provider", DEFAULT_PROVIDER))
    if not NAME.fullmatch(named):
        raise InputInvalid(f"provider '{shorten(named)}' is not a name of letters, digits, '_' and '-'")
    return named


def variable_of(task: Task) -> str:
    """Return the variable of the worker's environment that contains the provider's command."""
    return command_variable(provider_of(task))


def _command(task: Task, programs: Programs) -> str:
    """Return the command from the environment, or our default if its program exists; otherwise InputInvalid."""
    named, name = programs.variable(variable_of(task)), provider_of(task)
    described = provider(name, programs)
    if named.strip() or described.command:
        return named if named.strip() else described.command
    reason = f"{variable_of(task)} is not set where the worker runs"
    if name not in COMMANDS:
        raise InputInvalid(_no_agent(name, reason))
    if programs.find_interpreter(name, task.env) is None:
        raise InputInvalid(_no_agent(name, f"there is no program '{name}', and {reason}"))
    return COMMANDS[name]


def _no_agent(provider: str, reason: str) -> str:
    return f"agent '{provider}' is not available: {reason}"


def prepare_input(task: Task, scratch: ScratchFiles, new_path: Callable[[], str]) -> InputPreparation:
    """Return how to write its files if they are large."""
    paths = [new_path() for _ in range(3)]
    # Only what the text is made of, not the task's other values.
    texts, references = prompt_params(task)
    parts = msgspec.structs.replace(task, params={**texts, "answer": task.params.get("answer")}, env={}, late={})
    args = {"task": msgspec.to_builtins(parts), "paths": paths, "references": references}
    moves = dict(zip(paths, (scratch.prompt, scratch.agent_context, scratch.stdin), strict=True))
    return InputPreparation("mulligan.worker.actions.agent:write_files", args, moves)


def write_files(task: dict[str, Any], paths: list[str], references: str) -> dict[str, str] | None:
    """Write the files. Called in a child. `references` are the texts before artifacts were put into them."""
    try:
        _write_prompt(hide_credentials(msgspec.convert(task, Task), references), *paths)
    except InputInvalid as error:
        return invalid_input(error.message)
    return None


def _write_prompt(task: Task, prompt_file: str, context_file: str, stdin: str) -> None:
    """Write prompt and context to two files and, together, to its standard input, which is a file too."""
    text = make_prompt(task)
    write_private_file(prompt_file, text.prompt)
    write_private_file(context_file, text.context)
    write_private_file(stdin, text.whole)


# -- reading the result ----------------------------------------------------------------------------------------------


def read_exit(exited: ExitedTask) -> TaskEnded:
    """Return the report: as for shell, but the output is always an object, and usage is included."""
    task, process_exit = exited.task, exited.process_exit
    if (
        process_exit.exit_code in _NOT_RUN_CODES
        and not process_exit.stop_reason
        and (reason := _not_run_reason(task, exited.logs))
    ):
        return report_refusal(task, reason)
    answer = _AgentAnswer(exited)
    result = shell.read_exit(exited, read=lambda _: answer.read_output())
    if answer.reading is None and result.output is None:
        # Usage counts even if the agent failed.
        answer.read_usage()
    result = _with_error(result, answer.error)
    if answer.rejected is not None:
        result = _with_rejection(result, answer.rejected)
    return msgspec.structs.replace(result, usage={**result.usage, **answer.used})


def _with_error(result: TaskEnded, error: str) -> TaskEnded:
    """Make a failure of an agent that reports one, whatever its exit code is."""
    outcome = result.outcome
    if not error:
        return result
    if outcome.exit_code == 0 and not outcome.reported:
        outcome = msgspec.structs.replace(outcome, reported=({"code": FAILED, "message": error},), output_error="")
        return msgspec.structs.replace(result, outcome=outcome, output=None)
    said = outcome.stderr_tail.strip()
    return msgspec.structs.replace(result, outcome=msgspec.structs.replace(outcome, stderr_tail=said or error))


def _with_rejection(result: TaskEnded, problem: AnswerRejected) -> TaskEnded:
    """Make a failure of an answer that does not match its schema, unless there is another failure."""
    outcome = result.outcome
    if outcome.exit_code != 0 or outcome.reported or outcome.code:
        return result
    reported = {"code": "VALIDATION_FAILED", "message": str(problem), "details": problem.details}
    outcome = msgspec.structs.replace(outcome, reported=(reported,))
    return msgspec.structs.replace(result, outcome=outcome, output=None)


class _AgentAnswer:
    """The answer of an agent."""

    def __init__(self, exited: ExitedTask) -> None:
        self.task, self._logs, self._scratch = exited.task, exited.logs, exited.scratch
        self.name = provider_of(exited.task)
        try:
            self.provider = provider(self.name, exited.programs)
        except InputInvalid:
            # The file was valid when the agent was started.
            self.provider = Provider()
        self.reading: Reading | None = None
        self.used: dict[str, Any] = {}
        self.error = ""
        self.rejected: AnswerRejected | None = None

    def read_output(self) -> dict[str, Any]:
        """Return `content`, `decision`, `tokens`, and what else it wrote. OutputInvalid if it wrote no object."""
        written = self._read_written() or self._read_printed()
        if self.error:
            return written
        try:
            return read_structure(written, self.task.params.get("answer"), LOOP_BYTES_MAX_CHECKED)
        except AnswerRejected as problem:
            # It is remembered, and fails the step.
            self.rejected = problem
            return written

    def read_usage(self) -> None:
        """Read only its usage and error, as far as possible."""
        with suppress(outputs.OutputInvalid, outputs.OutputNotKept):
            self._read_written() or self._read_printed()

    def _read_written(self) -> dict[str, Any] | None:
        """Return what it wrote to $MULLIGAN_OUTPUT; None if that does not exist."""
        if not outputs.exists(self._scratch.output):
            return None
        written = outputs.read_output(self._logs.out, self._scratch.output, "json")
        if not isinstance(written, dict):
            raise outputs.OutputInvalid('$MULLIGAN_OUTPUT is not a JSON object such as {"content": …}')
        self.used = self._usage_in(written)
        content = {} if "content" in written else {"content": _read_printed(self._logs)}
        return {**content, "decision": None, "tokens": None, **written}

    def _read_printed(self) -> dict[str, Any]:
        """Return what it printed: by the provider's form, otherwise all of it."""
        printed = _read_printed(self._logs)
        form = self.provider.form or FORMS.get(self.name)
        model = as_text(self.task.params.get("model") or "")
        self.reading = read(form, printed, model, self.provider.prices) if form is not None else None
        if self.reading is None:
            if self.provider.form is not None:
                raise outputs.OutputInvalid(f"the answer of agent '{self.name}' is not where {VARIABLE} says")
            return {"content": printed, "decision": decision(printed), "tokens": None}
        self.used, self.error = self.reading.used, self.reading.error
        content = self.reading.content
        return {"content": content, "decision": decision(content), "tokens": None, **shown_usage(self.used)}

    def _usage_in(self, written: dict[str, Any]) -> dict[str, Any]:
        """Return the usage that it reports itself, with the cost by the price list."""
        said: dict[str, Any] = {name: parse_count(written.get(name)) for name in ("calls", "turns")}
        model = written.get("model") or self.task.params.get("model")
        said["model"] = model[:MODEL_CHARS_MAX] if isinstance(model, str) else None
        known = {name: value for name, value in said.items() if value is not None}
        return priced({**known, **tokens(written.get("tokens")), "cost": written.get("cost")}, self.provider.prices)


def _not_run_reason(task: Task, logs: Logs | ScratchFiles) -> str:
    """Return why the command could not be run, if bash printed that before anything else; otherwise ""."""
    variable = variable_of(task)
    name, _, said = outputs.read_tail(logs.err).partition(": ")
    if name != variable or file_size(logs.out):
        return ""
    # `line 1: nosuch: command not found`, in any language.
    reason = said.partition("\n")[0].partition(": ")[2]
    return _no_agent(provider_of(task), f"the command in {variable} cannot be run: {reason}")


def _read_printed(logs: Logs | ScratchFiles) -> str:
    """Return what it printed. It is the answer, so it is invalid if it is too large."""
    try:
        printed: str = outputs.read_output(logs.out, _NO_FILE, "text")
    except outputs.OutputNotKept as problem:
        raise outputs.OutputInvalid(str(problem)) from None
    return printed


def tokens(said: Any) -> dict[str, int]:
    """Return the usage from a number or from `{input, output}`; nothing if it is neither."""
    if isinstance(said, dict):
        counts = {f"{name}_tokens": parse_count(said.get(name)) for name in ("input", "output")}
        parts = {name: number for name, number in counts.items() if number is not None}
        return {**parts, "tokens": sum(parts.values())} if parts else {}
    whole = parse_count(said)
    return {} if whole is None else {"tokens": whole}
