"""Fakes for tests: a history builder, a rehearsal, an executor, a clock that jumps, fault points, stores."""
