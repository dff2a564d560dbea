"""One word per thing: the glossary is short, and the words that it replaced are gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs/glossary.md"
WORDS_MAX = 40

# A retired word, and the word that is used now. Whole words in prose and messages; in code also as part of a name.
RETIRED = {
    r"hands": "executor",
    r"veil(?:s|ed)?": "redactor, redacted",
    r"passages?": "TaskBoundary",
    r"desk": "TaskFiles",
    r"lives": "lifecycle",
    r"at_work|AtWork": "TasksInFlight, in flight",
    r"bury|buried|bury_the_dead": "expire, expired",
    r"rescue[ds]?": "expire",
    r"crossroads?": "edge_reasons",
    r"recollections?": "story_memory",
    r"lawful(?:ly)?": "allowed",
    r"weather(?:ed)?|sky": "fault_injection, FaultPlan",
    r"onlookers?": "invariant_checker",
    r"puppets?": "fake_tasks",
    r"crew": "worker_capacity, simulation_pool",
    r"holdings": "store_contents",
    r"tell(?:er|ing)?|told": "say, show, report, announce",
    r"fates?": "FailureOutcome, outcome",
    r"stood_in(?!_front)|stands?_in_for": "StepReplaced, replaced",
    r"may_still_stand": "may still be in effect",
    r"pass(?:es|ed)_over": "skip",
    r"fact_parts": "event_types",
    r"known_rest": "shortcut",
    r"ticket_sequence|next_ticket|sqlite_tickets": "sequence number",
    r"request_look|begin_look": "poll",
    r"action_shapes|duration_shape|describe_shape": "ValueSchema",
}
# Left out: stored names (an error code, names in converted Alphred files), names of tests, and words that people type.
EXEMPT = re.compile(
    r"worker\.buried|:told\"|[\".`]stood_in\b|name=\"fate\"|failure_code fate"
    r"|`(?:packages/\w+/)?tests/[^`]+`|slack\|inform\|tell\|warn|on_error catch rescue"
    r"|\"tell me\"|\"lives\""
)
# How a name is cut into words: at underscores, and where a capital follows a small letter.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


_RETIRED = re.compile(rf"\b(?:{'|'.join(RETIRED).replace('_', ' ')})\b", re.IGNORECASE)


def retired_words(text: str) -> list[str]:
    """The retired words of a text, also where they are a part of a name."""
    return _RETIRED.findall(_HUMP.sub("_", EXEMPT.sub("", text)).replace("_", " "))


def texts() -> list[Path]:
    # Migrations are not among them: a released one never changes.
    found = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("store/sql/*.sql"), *(ROOT / "docs").rglob("*.md")]
    packages = [*(ROOT / "packages").rglob("src/**/*.py"), *(ROOT / "packages").glob("*/*.md")]
    return sorted([*found, *packages, ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"])


def test_no_retired_word_is_left() -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {', '.join(words)}"
        for path in texts()
        if retired_words(text := path.read_text(encoding="utf-8"))
        for number, line in enumerate(text.splitlines(), start=1)
        if (words := retired_words(line))
    ]

    assert lines == []


@pytest.mark.parametrize(
    "text",
    [
        "class LocalHands:",
        "self._veil = veil",
        "what the hands are told",
        "def bury_the_dead()",
        "from . import crossroads",
    ],
)
def test_a_retired_word_would_be_found(text: str) -> None:
    assert retired_words(text)


@pytest.mark.parametrize(
    "text", ['code = "worker.buried"', "on the other hand", "a handler", "unlawfulness", "storyteller"]
)
def test_other_words_are_let_through(text: str) -> None:
    assert retired_words(text) == []


def test_the_glossary_has_at_most_forty_words_each_in_one_sentence() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| (.+) \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    words = [word for word, meaning in rows if meaning != "meaning"]
    sentences = [meaning for _, meaning in rows if meaning != "meaning"]

    assert 0 < len(words) <= WORDS_MAX
    assert len(words) == len(set(words))
    assert [meaning for meaning in sentences if not re.fullmatch(r"[A-Z`][^.]*\.", meaning)] == []
