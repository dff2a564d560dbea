"""Inputs that nobody in their right mind would write, by the million: each is taken, or refused in words.

targets     what is fuzzed: a function from bytes to None each, with seeds and words; raises where something is wrong
seeds       good and bad inputs from examples/, docs/ and the tests, to be changed
mutation    one change after the other, from a seed of chance
watching    one input under watch: its time, and that nothing of it is executed
stint       one target, for a while, in a process of its own
guided      the same, guided by coverage (atheris), where that can be built
shrinking   the smallest input that still shows what was found
bombs       small inputs that stand for large work, under limits of memory and time
"""
