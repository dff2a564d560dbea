"""Handlers, undo, recovery scripts and the end as functions."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from tests.flows import functions
from tests.flows.functions import (
    announce,
    check_count,
    clear_cache,
    guarded,
    load,
    release,
    repair,
    report,
    reserve,
    summarise,
    use_cache,
)
from tests.flows.test_building import same

import mulligan
from mulligan import Failure, Retry, flow, step
from mulligan.core.model.workflow import encode
from mulligan.language import load_text
from mulligan.language.keys.retry_keys import POLICY
from mulligan.language.scope import FAILURE_FIELDS
from mulligan.values.decoding import convert_value

HERE = functions.__name__


def test_a_handler_is_a_function_that_gets_the_failure_and_the_arguments_of_its_step() -> None:
    @flow
    def handled(url: str):  # type: ignore[no-untyped-def]
        guarded(url)
        reserve("blue")

    same(
        handled,
        """
        name: handled
        inputs: {url: string}
        steps:
          - step: guarded
            python: {call: "CALL:guarded"}
            args: {url: "${inputs.url}"}
            retry: 1
            on_failure:
              python: {call: "CALL:use_cache"}
              args: {failure: "${error}", url: "${inputs.url}"}
              strategy: fallback
              timeout: 1m
          - step: reserve
            python: {call: "CALL:reserve"}
            args: {room: blue}
            undo: {python: {call: "CALL:release"}, args: {reservation: "${output}", room: blue}}
        """,
    )


def test_in_a_map_the_handler_belongs_to_the_item() -> None:
    @flow
    def mapped(urls: list[str]):  # type: ignore[no-untyped-def]
        guarded.map(urls, day="friday")

    same(
        mapped,
        """
        name: mapped
        inputs: {urls: array}
        steps:
          - step: guarded
            retry: 1
            map: {over: "${inputs.urls}"}
            do:
              - python: {call: "CALL:guarded"}
                args: {url: "${item}", day: friday}
                on_failure:
                  python: {call: "CALL:use_cache"}
                  args: {failure: "${error}", url: "${item}"}
                  strategy: fallback
                  timeout: 1m
        """,
    )


def test_a_map_is_undone_as_a_whole() -> None:
    taken = step(reserve.fn)
    taken.undo(announce)

    @flow
    def mapped():  # type: ignore[no-untyped-def]
        taken.map(["blue", "red"])

    same(
        mapped,
        """
        name: mapped
        steps:
          - step: reserve
            map: {over: [blue, red]}
            do: [{python: {call: "CALL:reserve"}, args: {room: "${item}"}}]
            undo: {python: {call: "CALL:announce"}, args: {output: "${output}"}}
        """,
    )


def test_the_functions_of_a_step_run_in_its_environment() -> None:
    elsewhere = step(python=".venv/bin/python", on_success=announce)(load.fn)
    elsewhere.handler(clear_cache)

    @flow
    def environments():  # type: ignore[no-untyped-def]
        elsewhere([])

    same(
        environments,
        """
        name: environments
        steps:
          - step: load
            python: {call: "CALL:load", python: .venv/bin/python}
            args: {rows: []}
            on_success: [{python: {call: "CALL:announce", python: .venv/bin/python}, args: {output: "${output}"}}]
            on_failure: {python: {call: "CALL:clear_cache", python: .venv/bin/python}, args: {failure: "${error}"}}
        """,
    )


def test_every_command_of_a_step_may_be_a_function() -> None:
    counted = load.options(
        retry=Retry(any=True, recovery_script=clear_cache),
        on_success=[announce, "echo loaded"],
        validate=check_count,
        on_failure={"commands": [clear_cache, "make clean"], "rerun": 1},
        triage=False,
    )

    @flow
    def commands():  # type: ignore[no-untyped-def]
        counted([])

    same(
        commands,
        """
        name: commands
        steps:
          - step: load
            python: {call: "CALL:load"}
            args: {rows: []}
            triage: false
            retry: {any: true, recovery_script: {python: {call: "CALL:clear_cache"}, args: {failure: "${error}"}}}
            on_success: [{python: {call: "CALL:announce"}, args: {output: "${output}"}}, echo loaded]
            validate: {python: {call: "CALL:check_count"}, args: {output: "${output}"}}
            on_failure:
              commands: [{python: {call: "CALL:clear_cache"}, args: {failure: "${error}"}}, make clean]
              rerun: 1
        """,
    )


def test_a_step_may_be_the_command_of_another_with_its_own_keys() -> None:
    mending = step(retry=2, timeout="1m")(repair.fn)
    deploying = step(on_failure=mending)(functions.deploy.fn)

    @flow
    def steps(image: str):  # type: ignore[no-untyped-def]
        deploying(image)

    same(
        steps,
        """
        name: steps
        inputs: {image: string}
        steps:
          - step: deploy
            python: {call: "CALL:deploy"}
            args: {image: "${inputs.image}"}
            on_failure:
              python: {call: "CALL:repair"}
              args: {failure: "${error}", image: "${inputs.image}"}
              retry: 2
              timeout: 1m
        """,
    )


def test_the_end_is_a_function_that_reads_the_run() -> None:
    @flow
    def ending(url: str):  # type: ignore[no-untyped-def]
        mulligan.shell("only", f"echo {url}")

    ending.end(timeout="1m")(summarise)

    same(
        ending,
        """
        name: ending
        inputs: {url: string}
        steps: [{step: only, shell: "echo ${inputs.url}"}]
        end:
          python: {call: "CALL:summarise"}
          args: {failures: "${run.failures}", steps: "${run.steps}", url: "${inputs.url}"}
          timeout: 1m
        """,
    )


def test_the_end_may_be_another_action() -> None:
    @flow
    def ending():  # type: ignore[no-untyped-def]
        mulligan.shell("only", "true")

    ending.end(shell="./report.sh", timeout="1m")

    written = load_text("name: ending\nsteps: [{step: only, shell: 'true'}]\nend: {shell: ./report.sh, timeout: 1m}")
    assert encode(ending.workflow().check()) == encode(written)


RECORDED = {
    "code": "CLOSED",
    "message": "shut",
    "exit_code": None,
    "step": "guarded",
    "attempt": 2,
    "timestamp": "2026-01-01T00:00:00Z",
    "at": "2026-01-01T00:00:00Z",
    "cause": [{"code": "TIMEOUT"}],
    "handler_failure": {"code": "HANDLER_FAILED"},
}


def test_a_failure_is_made_of_what_a_run_recorded() -> None:
    failure = convert_value(RECORDED, Failure)

    assert (failure.code, failure.attempt, failure.exit_code, failure.at) == ("CLOSED", 2, None, RECORDED["at"])
    assert failure.cause == [Failure(code="TIMEOUT")]
    assert failure.handler_failure == Failure(code="HANDLER_FAILED")


def test_a_failure_has_every_field_that_expressions_read() -> None:
    assert {one.name for one in fields(Failure)} == set(FAILURE_FIELDS)


def test_a_handler_is_called_like_the_plain_function_it_is() -> None:
    assert use_cache(Failure(code="X", attempt=1, step="s"), "u") == "X 1 s u"
    assert release("a", "b") == "a, released b"


@pytest.mark.parametrize("name", ["use_cache", "release", "guarded"])
def test_what_a_worker_imports_stands_for_a_plain_function(name: str) -> None:
    found = getattr(functions, name)

    assert found.__mulligan_function__ is found.fn
    assert found.fn.__name__ == name


def test_retry_has_a_keyword_for_every_key_of_a_file():
    assert set(Retry.__init__.__kwdefaults__ or ()) == set(POLICY.keys)
    assert Retry(host="other").keys == {"host": "other"}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (ConnectionError, ["ConnectionError"]),
        ([IOError, json.JSONDecodeError], ["OSError", "json.decoder.JSONDecodeError"]),
        ((KeyError, "httpx.ReadTimeout"), ["KeyError", "httpx.ReadTimeout"]),
        ("httpx.ReadTimeout", ["httpx.ReadTimeout"]),
    ],
)
def test_retry_takes_classes_of_exceptions_and_their_names(given: Any, names: list[str]) -> None:
    assert Retry(exceptions=given).keys == {"exceptions": names}


def test_a_rule_for_a_class_becomes_its_name_in_the_file() -> None:
    @flow
    def retried():  # type: ignore[no-untyped-def]
        report.options(retry=Retry(exceptions=[TimeoutError, Unsure], max_retries=1))(1)

    same(
        retried,
        f"""
        name: retried
        steps:
          - step: report
            python: {{call: "CALL:report"}}
            args: {{count: 1}}
            retry: {{exceptions: [TimeoutError, {__name__}.Unsure], max_retries: 1}}
        """,
    )


class Unsure(Exception):
    pass
