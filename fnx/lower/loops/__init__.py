"""Fuse loops with a small body into one kernel: axes -> scalars -> KERNEL with a LOOP.

**Loops of arrays** (fuse_loop_into_kernel.py): a SCAN or WHILE becomes a CALL of a KERNEL with a
LOOP. Axes that all values have in common are ranges (lanes, workers), each with its own loop; the
elements of other axes (at most 16 per carry) are scalars in registers (scalarize.py). Results over
other lanes are other kernels. Where an index that is data would select among the scalars of many
lanes in each step, the loop stays one of commands (select_cost.py). A WHILE becomes a WHILE of
strips (strip_mine.py): kernels of a bounded number of steps, so that it can be interrupted, and its
first steps run on the calling thread. fold_transposes.py removes transposes around a cheap kernel
that walks along rows: it processes several rows at once.

**Cumulative reductions.** two_pass_scan.py makes lanes of a cumulative reduction along one long
axis: totals of chunks first, then each chunk starts at its own offset. Only for what is exact in
any order, or rounded from a wider carry.

**Loops of commands** (loop_kernels.py): a CMD_LOOP becomes one function if its launches cost more
than sharing its work among workers would save (a table that is filled cell by cell). The EXEC of
the CMD_LOOP has a PROGRAM with the lines of all its kernels (loops/inline_command_loop.py), in
their order and on their memory, and runs on one thread. A long one is cut in two loops, the outer
one of commands. A loop with a condition inside other loops is resumable: the kernel leaves after so
many steps of all loops, stores where it was, and continues there (loops/resumable_loop.py); so
Ctrl-C waits for about a millisecond. A carry with two buffers is copied back after each step
(loop_memory.py). Loop counters are not memory (induction_variables.py), so indices that they count
are neither wrapped nor clamped (loops/intervals.py).
"""
