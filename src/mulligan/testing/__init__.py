"""Shipped fakes: a memory store, a clock that jumps, a history builder, fault points, a simulator."""
