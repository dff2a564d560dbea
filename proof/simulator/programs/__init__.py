"""Programs in the simulator: random functions that call steps, run by the real machine below a program.

- `drawing` draws one from a seed, edits it, and makes a workflow of it.
- `interpreting` runs it.
- `turns` carries out its turns: in a process that has lived through the ones before, or in one that replays them.
- `oracle` runs it plainly and without an interruption, and says whether it has come to the same.
- `correcting` says which calls an edited one keeps.
"""
