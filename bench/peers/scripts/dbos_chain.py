"""DBOS: one workflow of COUNT no-op steps. STORE is sqlite or postgres."""

from __future__ import annotations

import sys

from dbos_app import chain, launched

count, store = int(sys.argv[1]), sys.argv[2]
with launched(store):
    assert chain(count) == count
