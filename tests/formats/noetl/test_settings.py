"""What a playbook says of itself and of what it is given: where it ends, which secrets it reads, what names it has."""

from __future__ import annotations

import pytest

from mulligan.formats import convert

from .playbooks import newer, older, ran, translated, warned, written


def test_the_step_that_is_named_as_the_last_is_the_end():
    found = translated(
        newer("""
        executor: {spec: {entry_step: first, final_step: summary}}
        workflow:
          - {step: summary, tool: {kind: python, code: "result = 2"}}
          - {step: first, tool: {kind: noop}, next: {arcs: [{step: summary}]}}
        """)
    )

    assert [step["step"] for step in found["steps"]] == ["first"]
    assert found["end"] == {"noetl": {"name": "summary", "tool": {"kind": "python", "code": "result = 2"}}}


def test_a_secret_of_the_environment_is_read_by_who_names_its_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_TOKEN", "tulips-in-may")

    run = ran(
        older("""
        workflow:
          - {step: start, tool: {kind: secrets, provider: env, secret_name: SHOP_TOKEN}, next: use}
          - step: use
            tool: {kind: python, args: {token: "{{ start.secret_value }}"}, code: "result = len(token)"}
        """)
    )

    assert run["outputs"]["result"] == len("tulips-in-may")


def test_an_item_knows_whether_it_is_the_first_or_the_last():
    run = ran(
        newer("""
        workflow:
          - step: all
            loop: {in: [a, b, c], iterator: x, spec: {mode: parallel}}
            tool:
              kind: python
              input: {where: "{{ iter._index }} {{ iter._first }} {{ iter._last }} {{ loop.index }} {{ loop.length }}"}
              code: result = where
        """)
    )

    assert run["outputs"]["result"]["results"] == ["0 True False 0 3", "1 False False 1 3", "2 False True 2 3"]


def test_the_number_of_the_run_has_both_of_its_names():
    run = ran(
        newer("""
        workflow:
          - {step: a, tool: {kind: python, input: {i: "{{ execution_id == job.uuid }}"}, code: result = i}}
        """)
    )

    assert run["outputs"]["result"] is True


FOR_PEOPLE = newer("""
    executor: {requires: {features: [loops]}}
    keychain: [{name: shop, kind: oauth2, endpoint: "https://shop.example/token"}]
    workbook: [{name: shout, desc: Loudly, assert: {a: 1}, tool: {kind: noop}}]
    workflow: [{step: a, tool: {kind: workbook, name: shout, desc: Once}}]
    """).replace("{name: test}", "{name: test, path: shop/test, tags: [shop], owner: me}")


def test_what_is_there_for_people_and_for_noetl_alone_stays_as_comments():
    head, _, _ = convert(written(FOR_PEOPLE)).text.partition("\n\n")

    assert head.splitlines() == [
        "# Converted from playbook.yaml (NoETL) by `mulligan convert`.",
        "# line 6: 'assert' of the workbook is not honoured",
        '# path: "shop/test"',
        '# tags: ["shop"]',
        '# owner: "me"',
        "# requires of NoETL: loops",
        "# NoETL looks up the credential 'shop' as oauth2; here it is in the variable NOETL_SHOP",
        "# 'shout' of the workbook: Loudly",
        "# the tool of step 'a': Once",
    ]
    assert "'assert' of the workbook is not honoured" in warned(FOR_PEOPLE)
