"""Alphred's files into ours: `keys` says what may stand in them, `tree` reads them, `steps` makes ours of that."""

from mulligan.formats.alphred.keys import RECORDS
from mulligan.formats.alphred.workflow import translate

__all__ = ["RECORDS", "translate"]
