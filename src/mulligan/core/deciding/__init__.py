"""What follows from a fact or a report: retries, routes, items, undo, the end of a round.

How steps come to start, in five words:

    need      a condition on a step before this one: `needs: [fetch]`
    edge      where the run goes from a step that ended: `next: {to: repair, on: failure}`
    arrival   an edge that the run has taken to a step; a step with edges to it starts only if there is one
    barrier   a need of a whole group, such as the steps of a matrix: counted once for all who wait for the group
    settled   said of a step that nothing will visit again or replace: only then do its needs count

    steps:
      - {step: fetch, shell: curl, next: {to: repair, on: failure, then: rerun}}
      - {step: repair, shell: fix}
      - {step: shard, matrix: {n: [1, 2]}, shell: "sim ${matrix.n}"}
      - {step: merge, needs: [fetch, {matrix: shard}], shell: cat}

    fetch ─────────────── need ───────────▶ merge
     │  ▲                                     ▲
     │  └─ then: rerun ─┐                     │ need
     └─ edge ───────▶ repair      shard_1 ─▶ barrier ◀─ shard_2

A run of it (`flow` decides, `evolve.arrivals` counts; tests/core/test_worked_example.py plays it):

    what happens         what follows                                          open needs of merge   shards left
    the run starts       fetch, shard_1 and shard_2 are entered                2                     2
    shard_1 completes    nothing                                               2                     1
    fetch fails          an arrival at repair, which is entered;
                         fetch has ended and is not settled                    2                     1
    shard_2 completes    the barrier is met                                    1                     0
    repair completes     fetch is put back, and entered for visit 2            1                     0
    fetch completes      fetch is settled: merge is entered                    0                     0
    merge completes      nothing else can run: end is entered, the run completes
"""
