"""The text of a file as nodes with positions; scalars, quantities, and what is meant by a misspelled word."""
