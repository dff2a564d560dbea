"""`mulligan data`: small values that steps of a run set, and that later steps and people read."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

from mulligan.cli.output.tables import cut, show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_json, show_result
from mulligan.cli.words.given_value import read_value
from mulligan.cli.words.options import LATEST, AsJson, HomeFolder, service_at
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.rendering.formatting import format_input
from mulligan.service.runs.stored.run_data import DataEntry, choose, is_in_step, set_step_data, step_data

VALUE_CHARS_MAX = 60
_WORDS = ("get", "set", "list")


def data(
    word: Annotated[str, Argument("get|set|list", "What to do.")],
    name: Annotated[str | None, Argument("NAME", "The name of the value.")] = None,
    value: Annotated[
        str | None, Argument("VALUE", "JSON; anything that is not JSON is a text. '-' reads stdin.")
    ] = None,
    is_text: Annotated[bool, Flag("The value is a text, even if it looks like JSON.", "--text")] = False,
    run: Annotated[str | None, Option("RUN", "The run to read (default: that of this step, or 'latest').")] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Get, set or list the values that the steps of a run share.

    Inside a step, `set` sets a value in the name of the attempt: it counts when the result of the attempt is accepted,
    so that a failed, lost or superseded attempt sets nothing. `get` gives what was set when the attempt was scheduled,
    and what the attempt has set itself. Outside of a step, `get` and `list` read any run.
    """
    if word not in _WORDS:
        raise UsageRefused(f"unknown subcommand '{word[:40]}' of data", hint="write get NAME, set NAME VALUE or list")
    if (name is None) != (word == "list") or (value is None) == (word == "set"):
        raise UsageRefused(f"'data {word}' has other arguments", hint=_usage(word))
    if word == "set":
        assert name is not None and value is not None
        if run is not None or not is_in_step(os.environ):
            hint = "call it in a step of the run; values from outside are inputs: mulligan run -i NAME=VALUE"
            raise UsageRefused("only a step sets data", hint=hint)
        set_step_data(os.environ, name, read_value(value, is_text=is_text))
    elif run is None and is_in_step(os.environ):
        _show(step_data(os.environ), name, as_json=as_json)
    else:
        with service_at(home) as service:
            found = service.runs.data(service.runs.find(run or LATEST))
        if name is None:
            _list(found, as_json=as_json)
        else:
            _show({one.name: one.value for one in found}, name, as_json=as_json)


def _usage(word: str) -> str:
    return {
        "get": "write: mulligan data get NAME",
        "set": "write: mulligan data set NAME VALUE",
        "list": "write: mulligan data list",
    }[word]


def _show(values: dict[str, Any], name: str | None, *, as_json: bool) -> None:
    if name is None:
        show_json(values)
        return
    value = choose(values, name)
    if as_json:
        show_json(value)
    else:
        show(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _list(found: list[DataEntry], *, as_json: bool) -> None:
    if as_json:
        show_result(found)
    elif not found:
        complain("the run has no data")
    else:
        rows = [
            (
                one.name,
                str(one.version).rjust(len("VERSION")),
                _setter(one),
                cut(format_input(one.value), VALUE_CHARS_MAX),
            )
            for one in found
        ]
        show_table(("NAME", "VERSION", "SET BY", "VALUE"), rows)


def _setter(one: DataEntry) -> str:
    return f"{one.step}, attempt {one.attempt}" if one.step else "the file"
