"""What every test can rely on: generated examples are the same on every machine and in every run."""

from __future__ import annotations

from hypothesis import settings

# A test that fails only sometimes teaches people to run it again. No deadline: a busy machine is no bug of ours.
settings.register_profile("mulligan", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("mulligan")
