"""Expressions: CEL, its two engines, and what an expression may cost."""
