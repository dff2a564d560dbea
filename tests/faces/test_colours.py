"""A report in light and in dark: whatever the reader prefers, every colour is there and every word can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mulligan.service.rendering.page import styles

STYLE = "".join(
    Path(styles.__file__).with_name(name).read_text(encoding="utf-8") for name in ("page.css", "charts.css")
)
SOURCES = [path.read_text(encoding="utf-8") for path in Path(styles.__file__).parent.glob("*.py")]
# What WCAG asks of text, and of a line or a bar that means something.
TEXT_CONTRAST_MIN, MARK_CONTRAST_MIN = 4.5, 3.0
LIGHT, DARK, PRINT = (dict(re.findall(r"--([\w-]+):([^;}]+)", part)) for part in styles.css_variables().split("@media"))
TONES = ("good", "bad", "now", "try", "ask")


def luminance(colour: str) -> float:
    """As WCAG has it, from 0 (black) to 1 (white)."""
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def mixed(colour: str, share: float, other: str) -> str:
    """As `color-mix(in srgb, …)` does it."""
    parts = ((int(each[place : place + 2], 16) for each in (colour, other)) for place in (1, 3, 5))
    return "#" + "".join(f"{round(share * one + (1 - share) * two):02x}" for one, two in parts)


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_each_has_every_colour_that_the_other_has_and_paper_is_light() -> None:
    assert LIGHT.keys() - {"font"} == DARK.keys()
    assert {name: LIGHT[name] for name in PRINT} == PRINT
    assert luminance(LIGHT["page"]) > 0.8
    assert luminance(DARK["page"]) < 0.05


def test_every_colour_that_is_used_is_set() -> None:
    used = {name for text in (STYLE, *SOURCES) for name in re.findall(r"var\(--([\w-]+)\)", text)}
    set_there = {name for text in (STYLE, *SOURCES) for name in re.findall(r"--([\w-]+):", text)}

    assert used - set_there - LIGHT.keys() == set()


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_words_can_be_read_wherever_they_stand(palette: dict[str, str]) -> None:
    [share] = {int(each) / 100 for each in re.findall(r" color: color-mix\(in srgb, var\(--tone\) (\d+)%", STYLE)}
    words = {(word, ground): palette[word] for word in ("text", "muted") for ground in ("page", "card")}
    words |= {(tone, f"{tone}-wash"): mixed(palette[tone], share, palette["text"]) for tone in TONES}

    found = {(name, ground): contrast(colour, palette[ground]) for (name, ground), colour in words.items()}

    assert {where: ratio for where, ratio in found.items() if ratio < TEXT_CONTRAST_MIN} == {}


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_bars_stand_out_from_the_page(palette: dict[str, str]) -> None:
    faint = {tone for tone in TONES if contrast(palette[tone], palette["card"]) < MARK_CONTRAST_MIN}

    assert faint == set()
