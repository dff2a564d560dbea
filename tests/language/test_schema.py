"""The JSON Schema for editors: it takes what the reader takes, and refuses typos as the reader does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mulligan.errors import LanguageError
from mulligan.language import load_text
from mulligan.language.keys.workflow_keys import STEP, WORKFLOW
from mulligan.language.reference import records
from mulligan.language.schema import FILE, ID, schema, schema_text
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import plain

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
VALIDATOR = Draft202012Validator(schema())

RELEASE = """
name: release
inputs:
  target: {type: string, default: staging, enum: [staging, prod]}
defaults: {timeout: 10m, retry: {max_retries: 1, delay: 2s, factor: 2, max_delay: 30s, jitter: 0.2}}
retry_policies:
  flaky_io:
    rules:
      - {exit_codes: [10, 11], max_retries: 3, recovery_script: ./clear-cache.sh}
      - {codes: [OUT_OF_MEMORY], max_retries: 2, adjust: {memory: x1.5, max_memory: 16GiB}}
      - {any: true, max_retries: 1}
steps:
  - step: build
    shell: make -s -j4 TARGET=${inputs.target} list-packages
    capture: json
    retry: flaky_io
    on_failure: [make clean, make -s -j1 list-packages]
  - step: check
    needs: [build]
    map: {over: "${steps.build.output}", as: pkg, max_parallel: 4, on_item_failure: collect, failure_threshold: 0.2}
    do:
      - shell: ./check.sh ${pkg}
        on_failure: {agent: "/fix ${pkg}: ${error.message}", rerun: 1}
  - step: deploy
    needs: [check]
    shell: ./deploy.sh ${inputs.target}
    undo: {shell: ./undeploy.sh}
    next:
      - {to: announce}
      - {to: repair, on: failure, codes: [EXIT_NONZERO], then: rerun}
      - {to: page_someone, on: failure, handles: false}
  - {step: repair, agent: {provider: claude, prompt: "The deployment failed. Repair it."}}
  - {step: page_someone, shell: ./page.sh "$MULLIGAN_FAILURE_CONTEXT"}
  - step: announce
    http: {method: POST, url: "https://chat.example/hook", json: {text: deployed}}
    continue_on_error: true
"""

# One of everything that has several forms.
GOOD = [
    RELEASE,
    "steps: [{step: a, shell: make, retry: 3, timeout: 5, triage: true, needs: [], next: [b]}, {step: b, wait: 1h30m}]",
    "steps: [{step: a, shell: make, retry: true, triage: {when: always}, on_failure: make, undo: make}]",
    "steps: [{step: 's_{i}', shell: make, matrix: {i: 1..3}}, {step: b, wait: 1, needs: [{matrix: s}, {match: s_1}]}]",
    "steps: [{step: s, shell: make, matrix: {zip: {a: [1], b: {from: 1, to: 1}}}}]",
    "steps: [{step: s, map: {over: {file: x}, distinct: true, sort_by: {by: item}}, do: make}]",
    "steps: [{step: s, map: {over: {shell: ls}}, do: [make, {python: {call: 'a:b'}, args: {x: 1}}]}]",
    "steps: [{step: s, shell: make, validate: 'true', on_success: make}, {step: t, shell: make, validate: {shell: b}}]",
    "handlers: {h: [ls], i: make, j: {shell: make, capture: json}}\nsteps: [{step: s, wait: 1, on_failure: {use: h}}]",
    "fail_fast: true\ncancel_grace: finish\nx-more: [1]\ninputs: {a: , b: integer}\nsteps: [{step: s, approve: 'ok?'}]",
    "end: {shell: make, timeout: PT5M}\norder: sequential\n"
    "steps: [{step: s, sql: {connection: 'sqlite://', query: select 1}}]",
    "steps: [{step: 1, shell: make, next: [2]}, {step: 2, shell: make, needs: [{step: 1}]}]",
    "outputs: {a: 1, b: {c: []}}\nsteps: [{step: s, wait: {until: '2030-01-01T00:00:00Z'}, resources: {memory: 4GB}}]",
]


def problems(text: str) -> list[str]:
    found = plain(parse(decode(text.encode(), "w.yaml")))
    return [error.message for error in VALIDATOR.iter_errors(found)]


def test_the_schema_is_a_schema_and_plain_json() -> None:
    Draft202012Validator.check_schema(schema())

    assert json.loads(json.dumps(schema())) == schema()


@pytest.mark.parametrize("text", GOOD, ids=range(len(GOOD)))
def test_what_the_reader_takes_the_schema_takes(text: str) -> None:
    load_text(text)

    assert problems(text) == []


def test_every_example_fits_the_schema() -> None:
    found = {path.name: problems(path.read_text("utf-8")) for path in EXAMPLES}

    assert found == {name: [] for name in found}


BAD = [
    # a typo at the top, in a step, in an edge, in a rule, in a handler
    "stepps: []\nsteps: [{step: a, shell: make}]",
    "steps: [{step: a, shell: make, tiemout: 3s}]",
    "steps: [{step: a, shell: make, next: [{too: b}]}, {step: b, shell: make}]",
    "steps: [{step: a, shell: make, retry: {max_retry: 3}}]",
    "steps: [{step: a, shell: make, on_failure: {shell: make, reruns: 1}}]",
    # no action, two actions, a map without do
    "steps: [{step: a}]",
    "steps: [{step: a, shell: make, agent: fix}]",
    "steps: [{step: a, map: {over: [1]}}]",
    # values of the wrong kind
    "steps: [{step: a, shell: make, timeout: soon}]",
    "steps: [{step: a, shell: make, capture: jsn}]",
    "steps: [{step: a, shell: make, resources: {memory: big}}]",
    "steps: {a: {shell: make}}",
    "name: x",
    # what is neither a list nor any other form of the place
    "steps: [{step: a, map: {over: 3}, do: make}]",
    "steps: [{step: a, map: {over: {step: x}}, do: make}]",
    "steps: [{step: a, matrix: {i: {to: 3}}, shell: make}]",
    "steps: [{step: 1.5, shell: make}]",
    "steps: [{step: a, shell: make, timeout: 5s1h}]",
    "steps: [{step: a, shell: make, timeout: 0s}]",
    "steps: [{step: a, shell: make, deadline: 0}]",
    "name: ' '\nsteps: [{step: a, shell: make}]",
    "cancel_grace: later\nsteps: [{step: a, shell: make}]",
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_the_reader_refuses_for_its_shape_the_schema_refuses(text: str) -> None:
    with pytest.raises(LanguageError):
        load_text(text)

    assert problems(text) != []


def test_every_key_of_a_step_and_of_a_workflow_is_in_the_schema() -> None:
    definitions: dict[str, Any] = schema()["$defs"]

    assert set(definitions["step"]["properties"]) == set(STEP.keys) | {"noetl"}  # what translated files have
    assert set(schema()["properties"]) == set(WORKFLOW.keys)


def test_every_key_has_its_sentence() -> None:
    keys = ((record.name, word, key) for record in records(WORKFLOW) for word, key in record.keys.items())

    assert [f"{record}.{word}" for record, word, key in keys if not key.about] == []


def test_a_delay_is_described_by_what_it_is_before() -> None:
    definitions = schema()["$defs"]

    assert definitions["rule"]["properties"]["delay"]["description"] == "how long to wait before the first retry"
    assert definitions["edge"]["properties"]["delay"]["description"] == (
        "for edges that close a loop: how long to wait before the first round"
    )


def test_the_schema_is_called_by_a_name_that_never_changes() -> None:
    assert schema()["$id"] == ID == "urn:uuid:ee02fa88-65df-4d6f-bed9-b06409c8d0ac"


def test_the_page_on_editors_says_what_the_schema_is_called() -> None:
    page = Path(__file__).parents[2] / "docs" / "start" / "editors.md"

    assert f"`{ID}`" in page.read_text(encoding="utf-8")


def test_the_file_that_is_installed_is_the_schema() -> None:
    assert FILE.read_text(encoding="utf-8") == schema_text(), "write it anew with: make generated"


def test_the_schema_holds_no_keyword_that_language_servers_of_draft_7_do_not_know() -> None:
    newer = {
        *("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$vocabulary", "dependentRequired"),
        *("dependentSchemas", "maxContains", "minContains", "prefixItems", "unevaluatedItems", "unevaluatedProperties"),
    }

    used = {word for mapping in mappings(schema()) for word in mapping}

    # Draft 7 passes over what stands beside a '$ref': only notes may be lost.
    beside = {word for mapping in mappings(schema()) if "$ref" in mapping for word in mapping} - {"$ref"}
    assert used & newer == set()
    assert beside <= {"description", "default", "title"}


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """All mappings in it, itself with them."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(part)
