"""The line of a file that is shown with an error has no password in it."""

from __future__ import annotations

import pytest

from mulligan.errors import LanguageError
from mulligan.language import load_text

ADDRESSES = (
    "postgresql:/u:S3cr3tPw@h/db",
    "postgressql://u:S3cr3tPw@h/db",
    "mysql://u:S3cr3tPw@h",
    "host=h password=S3cr3tPw",
    "u:S3cr3tPw@h/db",
)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("wrong", ["sql", "sq1"])
def test_a_password_in_an_address_is_masked_in_its_place(address: str, wrong: str) -> None:
    line = f"  - {{step: a, {wrong}: {{query: 'select 1', connection: '{address}'}}}}"

    with pytest.raises(LanguageError) as caught:
        load_text(f"steps:\n{line}\n", "w.yaml")

    shown = caught.value.render()
    assert not any(piece in shown for piece in ("S3cr3", "tPw"))
    assert f"  2 | {line}".split("S3cr3")[0] in shown
