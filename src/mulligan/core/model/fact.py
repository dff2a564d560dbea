"""What all facts of a log have in common."""

from __future__ import annotations

import re
from typing import dataclass_transform

import msgspec


def _tag(name: str) -> str:
    """`StepCompleted` is written as `step.completed`, `StepPutBack` as `step.put_back`."""
    noun, *rest = re.findall("[A-Z][a-z]*", name)
    return f"{noun}.{'_'.join(rest)}".lower()


@dataclass_transform(frozen_default=True)
class Fact(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag=_tag):
    """Something that happened in a run."""
