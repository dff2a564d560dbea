"""Reading a file pauses the garbage collector, and leaves it as it was."""

from __future__ import annotations

import gc

import pytest

from mulligan.errors import LanguageError
from mulligan.language import garbage_collection, load_text

FLOW = "steps: [{step: one, shell: echo}]"


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was said to the collector about all objects there are."""
    found: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: found.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: found.append("unfreeze"))
    return found


def test_the_objects_of_a_small_file_stay_young_so_that_garbage_among_them_is_soon_found(frozen: list[str]) -> None:
    load_text(FLOW)
    assert (frozen, gc.isenabled()) == ([], True)


def test_the_objects_of_a_large_file_become_old_without_a_look_at_each(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "YOUNG_OBJECTS_MAX", 10)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    load_text(FLOW)
    assert (frozen, gc.isenabled()) == (["freeze", "unfreeze"], True)


def test_what_somebody_else_has_frozen_stays_frozen(frozen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "YOUNG_OBJECTS_MAX", 10)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    load_text(FLOW)
    assert frozen == []


def test_a_collector_that_is_off_stays_off_also_after_a_refusal(frozen: list[str]) -> None:
    gc.disable()
    try:
        with pytest.raises(LanguageError):
            load_text("steps: 7")
        assert (frozen, gc.isenabled()) == ([], False)
    finally:
        gc.enable()
