"""Alphred's files: `keys` has their keys, `tree` reads them, `steps` builds the steps; `subtasks` runs in workers."""

from mulligan.formats.alphred.keys import RECORDS
from mulligan.formats.alphred.workflow import translate

__all__ = ["RECORDS", "translate"]
