"""Schedules: choose one, check its legality, apply it to a kernel (loops, tiles, packing).

tile.py applies a schedule: analysis/loops.py holds the loops, legality.py says which are allowed,
tile.py rewrites the kernel, staging.py packs, rolled_epilogue.py makes a loop of what follows the
sums of a tile.

- Splits round up. Out of bounds, STOREs do not write, LOADs read 0, and a REDUCE takes the
  identity. A range of the result that is not VEC is clamped in loads instead (``min(14*io + i,
  M - 1)``): no condition inside the loop, and that of the STORE is enough.
- ``stage`` replaces the loads of an operand, with the elementwise work over the same ranges, by a
  STAGE that closes their ranges inside ``at``, in loop order: packing. Stages are placed when all
  loops are known, wherever they stand in the schedule.
- A GLOBAL stage becomes a kernel of its own that writes a temporary: ``staging.split_global(kernel)
  -> (packs, main, temporaries)``.
- Loops of extent 1 are removed.

The compiler's own choice (``choose_schedule`` in heuristics.py; contraction_tiling.py for products,
dot_tiling.py for those with few columns, generic_tiling.py for run-time lengths,
footprint.py for the cycles of reading factors,
workgroup_heuristics.py for GPUs) follows from which ranges the factors and indices depend on, never
from the number of workers. It consists of knobs (knobs.py), each with its legal alternatives. So
``candidates(kernel, target)`` in lower/candidates.py is one list: the heuristic first, the others
by predicted cycles (cost_model.py); a search times them (transforms/dispatch/schedule_search.py).
They can be listed and compiled for GPUs that this machine does not have.
"""
