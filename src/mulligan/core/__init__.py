"""The pure core: it decides everything that a run does, and does nothing itself.

No I/O, no clock, no randomness. Time comes in as a value, expressions come in evaluated.
"""
