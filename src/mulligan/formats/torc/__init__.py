"""Torc's files: `records` has their keys, `workflow` puts the translated file together."""

from mulligan.formats.torc.records import RECORDS
from mulligan.formats.torc.workflow import translate

__all__ = ["RECORDS", "translate"]
