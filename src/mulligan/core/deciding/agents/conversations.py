"""An agent with tools or a session: its model is asked, the tools it asks for are called, and it is asked again.

Each question (`ask.model@1.0`) and each call (`ask.tool@1.0`) is a place below the agent, an ordinary task. So what has
ended is in the log and is not done again, whenever a worker or the engine is lost. Calls run one after the other, in
the order of the answer. The failure of a question is a failure of the agent's attempt; the next attempt goes on with
the same turns.
"""

from __future__ import annotations

from typing import Any

from mulligan.core.deciding.agents.budgets import tool_budget_refusal
from mulligan.core.deciding.lifecycle import Facts, add_location, command_key, enter_command, make_failure
from mulligan.core.model import events as e
from mulligan.core.model.agents.agent_messages import (
    CALLS_PER_ANSWER_MAX,
    AskedCall,
    OfferedTool,
    asked_calls,
    check_arguments,
    doubled_name,
    missing_tools,
    offered_tools,
)
from mulligan.core.model.artifacts import describe_dropped, find_dropped
from mulligan.core.model.failure import Failure
from mulligan.core.model.workflow import AgentTools
from mulligan.core.state.conversation_records import NO_CONVERSATION, CalledTool, Conversation
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Place
from mulligan.errors import ExpressionFailed

_NO_TOOLS = AgentTools()


def start_conversation(now: DecisionContext, place: Place) -> Facts:
    """Start an attempt: list the tools of its servers, then go on with the turns that the visit has."""
    return enter_command(now, place, "tool_list", 0) if _tools(place).servers else _continue(now, place)


def _tools(place: Place) -> AgentTools:
    return place.spec.tools or _NO_TOOLS


def _talk(place: Place) -> Conversation:
    return place.conversation or NO_CONVERSATION


def after_turn_command(now: DecisionContext, place: Place, fact: Any) -> Facts:
    """A list, a question or a call has ended: go on, or end the attempt."""
    if place.phase in ("timeout", "deadline"):
        return iter((_too_late(now, place),))
    if isinstance(fact, e.CommandCancelled) or not now.may_start(place):
        return iter((e.AttemptCancelled(place.key, place.attempt),))
    if fact.role == "tool":
        return _after_tool(now, place, fact)
    if isinstance(fact, e.CommandFailed):
        return _fail(place, add_location(now, place, fact.failure))
    if fact.role == "tool_list" and fact.index + 1 < len(_tools(place).servers):
        return enter_command(now, place, "tool_list", fact.index + 1)
    return _check_tools(now, place) if fact.role == "tool_list" else _continue(now, place)


def _fail(place: Place, found: Failure) -> Facts:
    return iter((e.AttemptFailed(place.key, place.attempt, found),))


def _too_late(now: DecisionContext, place: Place) -> e.AttemptFailed:
    limit = place.phase
    details: dict[str, Any] = {"limit": limit}
    if limit == "timeout":
        adjusted = place.climb.adjusted.timeout if place.climb.adjusted else None
        details["timeout"] = adjusted or place.spec.timeout
    message = f"the agent took longer than its {limit}, with its tools"
    return e.AttemptFailed(place.key, place.attempt, make_failure(now, place, "TIMEOUT", message, details=details))


def _check_tools(now: DecisionContext, place: Place) -> Facts:
    """Go on, if the servers have every tool that the agent may call, and no two tools have the same name."""
    tools = _tools(place)
    try:
        lists = _lists(now, place)
    except ExpressionFailed as error:
        return _fail(place, make_failure(now, place, error.failure_code, error.message))
    message = ""
    if missing := missing_tools(tools, lists):
        names = ", ".join(f"'{name}'" for name in missing)
        message = f"the MCP server has no tool {names}"
    elif name := doubled_name(offered_tools(tools, lists)):
        message = f"two tools of the agent are called '{name}': give one of their servers a 'prefix'"
    if message:
        return _fail(place, make_failure(now, place, "INPUT_INVALID", message))
    return _continue(now, place)


def _lists(now: DecisionContext, place: Place) -> list[Any]:
    return [now.fetch(listed) for listed in _talk(place).lists]


# -- turns -----------------------------------------------------------------------------------------------------------


def _continue(now: DecisionContext, place: Place) -> Facts:
    """Call the next tool that the model asked for, ask the model again, or end the attempt with its answer."""
    talk = _talk(place)
    if not talk.turns:
        return _ask(now, place)
    last = talk.turns[-1]
    try:
        calls = asked_calls(now.fetch(last.answer))
    except ExpressionFailed as error:
        return _fail(place, make_failure(now, place, error.failure_code, error.message))
    if len(calls) > CALLS_PER_ANSWER_MAX:
        message = f"the model asked for {len(calls)} tools at once, more than {CALLS_PER_ANSWER_MAX}"
        return _fail(place, make_failure(now, place, "OUTPUT_INVALID", message))
    if len(last.results) < len(calls):
        return _call(now, place, calls[len(last.results)])
    # An answer of an earlier attempt was not accepted.
    if calls or len(talk.turns) == talk.begun:
        return _ask(now, place)
    return iter((e.AttemptSucceeded(place.key, place.attempt, last.answer),))


def _ask(now: DecisionContext, place: Place) -> Facts:
    asked, turns_max = _talk(place).asked, _tools(place).max_turns
    if asked >= turns_max:
        message = f"the agent gave no final answer in {turns_max} turns (max_turns)"
        return _fail(place, make_failure(now, place, "TURN_LIMIT", message, details={"max_turns": turns_max}))
    return enter_command(now, place, "model", asked)


# -- calls -----------------------------------------------------------------------------------------------------------


def _call(now: DecisionContext, place: Place, asked: AskedCall) -> Facts:
    """Record the call and make it; a call that cannot be made is answered with the reason."""
    refused = tool_budget_refusal(now.state, place)
    if refused is not None:
        yield e.AttemptFailed(place.key, place.attempt, add_location(now, place, refused))
        return
    number = _talk(place).called
    try:
        tool, arguments, problem = _examine(now, place, asked)
    except ExpressionFailed as error:
        yield e.AttemptFailed(place.key, place.attempt, make_failure(now, place, error.failure_code, error.message))
        return
    kept = {
        name: now.keep(place, f"argument-{number}-{index}", arguments[name]) for index, name in enumerate(arguments)
    }
    called = e.ToolCalled(
        place.key,
        place.attempt,
        number=number,
        tool=asked.name,
        id=asked.id,
        position=-1 if tool is None else tool.position,
        arguments=kept,
        target="" if tool is None else tool.target,
    )
    yield called
    if tool is None:
        yield e.ToolAnswered(place.key, place.attempt, number, asked.name, id=asked.id, error=problem)
        yield from _continue(now, place)
    else:
        yield from enter_command(now, place, "tool", tool.position, command_key(place, "tool", number))


def _examine(now: DecisionContext, place: Place, asked: AskedCall) -> tuple[OfferedTool | None, dict[str, Any], str]:
    """The tool to call with its arguments; None, and why, if it cannot be called."""
    tools = _tools(place)
    offered = {tool.name: tool for tool in offered_tools(tools, _lists(now, place))}
    tool = offered.get(asked.name)
    if tool is None:
        known = ", ".join(offered) or "none"
        return None, asked.arguments, f"there is no tool '{asked.name}'; the tools are: {known}"
    if tools.max_calls is not None and _talk(place).called >= tools.max_calls:
        problem = f"no further tool can be called: the limit is {tools.max_calls} calls; answer with what you have"
        return None, asked.arguments, problem
    if asked.problem:
        return None, asked.arguments, asked.problem
    if tool.target:
        return tool, asked.arguments, ""
    arguments, problem = check_arguments(tools.steps[tool.position].inputs, asked.arguments)
    return (None, asked.arguments, problem) if problem else (tool, arguments, "")


def _after_tool(now: DecisionContext, place: Place, fact: e.CommandCompleted | e.CommandFailed) -> Facts:
    """Answer the call with the output or the failure of the tool; with `on_tool_failure: fail` that fails the agent."""
    call = _talk(place).open or CalledTool(0, "")
    if isinstance(fact, e.CommandFailed) and _tools(place).on_failure == "fail" and not fact.is_allowed:
        message = f"tool '{call.tool}' failed with {fact.failure.code}: {fact.failure.message}"
        yield e.AttemptFailed(
            place.key, place.attempt, make_failure(now, place, "TOOL_FAILED", message, cause=(fact.failure,))
        )
        return
    yield e.ToolAnswered(
        place.key,
        place.attempt,
        number=call.number,
        tool=call.tool,
        id=call.id,
        output=fact.output if isinstance(fact, e.CommandCompleted) and find_dropped(fact.output) is None else None,
        error=_answer_error(fact),
    )
    yield from _continue(now, place)


def _answer_error(fact: e.CommandCompleted | e.CommandFailed) -> str:
    """Why a call has no answer: the tool failed, or its output was not kept. The model may ask for less."""
    if isinstance(fact, e.CommandFailed):
        return _error_text(fact.failure)
    dropped = find_dropped(fact.output)
    return "" if dropped is None else f"OUTPUT_TOO_LARGE: {describe_dropped(dropped)}"


def _error_text(found: Failure) -> str:
    return f"{found.code}: {found.message}" if found.message else found.code
