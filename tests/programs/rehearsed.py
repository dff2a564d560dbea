"""Rehearsals whose steps run their own functions unless they are faked."""

from __future__ import annotations

from functools import partial

from mulligan.programs import rehearsing

rehearse = partial(rehearsing.rehearse, real=True)
