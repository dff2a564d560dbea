"""Absurd inputs, by the million: each is accepted, or refused with a message.

- `targets`: what is fuzzed, by name: a function from bytes to None each, that raises where something is wrong. They
  are in `reading` (files), `texts` (short texts), `shells` (programs that meet values), `paths` (paths that values
  take part in) and `records` (what we write).
- `sentences`: what a refusal must be.
- `seeds`, `samples`: what to begin with: the examples, the pages and the refusals of the tests; and short ones.
- `mutation`: one change after the other, from a number of chance.
- `watching`: one input under watch: its time, and that nothing of it is executed.
- `session`: one target for a while, in its own process (hypothesis).
- `guided`, `guided_session`: the same, guided by coverage (atheris), where that can be built.
- `shrinking`: the smallest input that still shows what was found.
- `bombs`: small inputs that stand for large work, under limits of memory and time.

What is found becomes a file in tests/proof/found, called TARGET.what-it-is, and is tried by the tests from then on.
"""
