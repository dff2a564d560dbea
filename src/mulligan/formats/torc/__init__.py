"""Torc's files into ours: `records` says what may stand in them, `workflow` puts them together."""

from mulligan.formats.torc.records import RECORDS
from mulligan.formats.torc.workflow import translate

__all__ = ["RECORDS", "translate"]
