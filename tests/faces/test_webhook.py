"""`mulligan webhook`: what it shows, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan

ORDER = "name: order\ninputs: {number: {default: none}}\nsteps: [{step: a, shell: 'true'}]\n"
HOOK = """\
secret: shop
filter: body.type == "new"
start:
  workflow: order
  inputs: {number: "${body.number}"}
"""


@pytest.fixture
def hook(folder: Path) -> Path:
    """A webhook that is put, and its file."""
    (folder / "order.yaml").write_text(ORDER)
    (folder / "hook.yaml").write_text(HOOK)
    assert mulligan("publish", "order.yaml").code == 0
    assert mulligan("webhook", "put", "shop", "hook.yaml", "--by", "ada").code == 0
    return folder / "hook.yaml"


def test_without_a_home_there_is_nothing_and_none_is_made(folder: Path) -> None:
    assert mulligan("webhook").err == "there is no webhook; write: mulligan webhook put NAME FILE\n"
    assert mulligan("webhook", "list", "--json").json == {"webhooks": [], "next": None}
    assert mulligan("webhook", "show", "a").code == 2
    assert not (folder / ".mulligan").exists()


def test_a_webhook_is_shown_with_what_is_missing(hook: Path) -> None:
    shown = mulligan("webhook", "show", "shop").out

    assert "POST /hooks/shop of the server" in shown
    assert "starts order" in shown
    assert "[webhook_secrets] of the configuration of the server has no 'shop'" in shown
    assert mulligan("webhook", "show", "shop", "--json").json["updated_by"] == "ada"


def test_a_dry_run_changes_nothing_and_delete_removes(hook: Path) -> None:
    hook.write_text(HOOK.replace('"new"', '"old"'))

    assert "(not written: a dry run)" in mulligan("webhook", "put", "shop", "hook.yaml", "--dry-run").out
    assert mulligan("webhook", "show", "shop", "--json").json["filter"] == 'body.type == "new"'
    assert mulligan("webhook", "delete", "shop").err == "webhook 'shop' is deleted; its runs stay\n"
    assert mulligan("webhook", "list", "--json").json["webhooks"] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "a mapping from names to values is expected"),
        (HOOK + "surprise: 1\n", "unknown field 'surprise'"),
        (HOOK.replace("body.type", "boddy.type"), "did you mean 'body'?"),
        (HOOK.replace("number:", "numbr:"), "did you mean 'number'?"),
        ("secret: shop\n", "neither 'send' nor 'start'"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(hook: Path, text: str, said: str) -> None:
    hook.write_text(text)

    answer = mulligan("webhook", "put", "shop", "hook.yaml")

    assert answer.code == 2
    assert said in answer.err


def test_other_arguments_are_refused(hook: Path) -> None:
    for words in (("put", "shop"), ("put",), ("list", "shop"), ("show",), ("drop", "shop"), ("show", "a", "b")):
        assert mulligan("webhook", *words).code == 2, words
    assert "cannot be read" in mulligan("webhook", "put", "shop", "nothing.yaml").err
