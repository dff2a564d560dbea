"""What is refused in a list of Prodigy's steps, with the whole text; and that nothing in one is a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mulligan.errors import LanguageError
from mulligan.formats.prodigy.keys import (
    COMMIT_CONFIG,
    FOREACH,
    HANDLER,
    METADATA,
    ON_INCOMPLETE,
    RETRY,
    STEP,
    STEP_VALIDATE,
    VALIDATE,
    WRITE_FILE,
)
from mulligan.language.keys.value_schemas import Record

from .reading import item_commands, steps

IN_ITEM = " (in an item)"


def rows() -> Iterator[tuple[str, str, str]]:
    """The cases of the file beside this one: a name, the steps, and what is said about them."""
    for case in (Path(__file__).parent / "refusals.txt").read_text(encoding="utf-8").split("=== ")[1:]:
        name, _, rest = case.partition("\n")
        text, _, said = rest.partition("\n--- refused\n")
        yield name, text, said.rstrip("\n")


@pytest.mark.parametrize(("name", "text", "said"), list(rows()))
def test_a_refusal_says_where_what_and_what_to_do(name: str, text: str, said: str) -> None:
    read = item_commands if name.endswith(IN_ITEM) else steps

    with pytest.raises(LanguageError) as caught:
        read(text)

    assert caught.value.render() == said


# Where a mapping stands, and which it is.
MAPPINGS: list[tuple[str, Record]] = [
    ("- {shell: a, KEY: VALUE}", STEP),
    ("- {KEY: VALUE}", STEP),
    ("- {shell: a, on_failure: {claude: /b, KEY: VALUE}}", HANDLER),
    ("- {shell: a, on_failure: {KEY: VALUE}}", HANDLER),
    ("- {shell: a, retry: {KEY: VALUE}}", RETRY),
    ("- {shell: a, validate: {shell: b, KEY: VALUE}}", VALIDATE),
    ("- {shell: a, validate: {KEY: VALUE}}", VALIDATE),
    ("- {shell: a, validate: {shell: b, on_incomplete: {shell: c, KEY: VALUE}}}", ON_INCOMPLETE),
    ("- {shell: a, step_validate: {commands: [b], KEY: VALUE}}", STEP_VALIDATE),
    ("- {shell: a, auto_commit: true, commit_config: {KEY: VALUE}}", COMMIT_CONFIG),
    ("- write_file: {path: a, KEY: VALUE}", WRITE_FILE),
    ("- foreach: {items: [a], do: [b], KEY: VALUE}", FOREACH),
    ("- {name: a, metadata: {KEY: VALUE}}", METADATA),
]
VALUES = [
    "",
    "true",
    "7",
    "-1",
    "1.5",
    "a text",
    "'${x.y} ${'",
    "[]",
    "[1]",
    "[a, [b]]",
    "{}",
    "{a: 1}",
    "{shell: x}",
    "~",
]


@pytest.mark.parametrize(("form", "record"), MAPPINGS)
@pytest.mark.parametrize("read", [steps, item_commands])
def test_whatever_stands_at_a_key_is_read_or_refused(form: str, record: Record, read: object) -> None:
    for key in record.keys:
        for value in VALUES:
            try:
                read(form.replace("KEY", key).replace("VALUE", value))  # type: ignore[operator]
            except LanguageError as refused:
                assert refused.problems
