"""Tensor level -> kernel level: which nodes share a kernel, and the kernels over loops.

kernelize.py decides which values get buffers, on index tokens: each reader reads a node at one
small integer per axis (index_tokens.py), movement ops only permute and wrap tokens, and no index
arithmetic is done until a kernel is finished. So whether two reads may fuse is an equality test.
RESHAPE splits and joins tokens, slices and flips have exact ones. One walk goes backwards from the
results; the table in kernelize.py says what becomes of a node when all its readers are placed.

A REDUCE is computed inside a group only at the group's own index or at a subset of it (a row
reduction, over any axes: ``Group.rows``). Rows of a group are nested, and their loops are outside
of the others: softmax over axis 1 of three has loops i, j, k, and lanes along j, each with its own
row of a STAGE. A group of up to 8,192 elements may be one row as a whole. A value that is cheap
next to the reductions of its row (x - max) is recomputed where it is read; others are staged.
Reductions that follow one another in a group have loops of their own, so a value read in two of
them is staged, or deliberately computed twice.

A contraction is computed only at an index that covers the group's own, one per group, so that it
can be tiled. Fusion and schedules ask the same function (lower/analysis/workload.py). Of a
reduction and a contraction that one kernel could compute, the one that saves more memory traffic is
fused (epilogues.py). Where lanes would be idle, or columns apart, a group is cut if a buffer costs
less (partial_vectors.py). Rows of a group that are columns in memory, and columns of one matrix
beside rows of another, are reduced in other kernels (read_directions.py). Values of rows that a map
would compute again for each of its elements get kernels (repeated_rows.py). Sine and cosine of one
operand share half of their work: one group computes both (shared_work.py). A factor that takes
several strided loads an element gets a kernel of its own (prologues.py). Other factors stay where
they were written, since another order of products could overflow where the program does not.

A group is full at MAX_WORK if few values cross memory there, so a long chain becomes equal kernels;
where many values would, as in masks and branches of a large formula, it continues until they take
at most a tenth of its time (``are_full``). For a training step of an MLP (log-softmax, Adam; 15
kernels before packing):

    contract_where_cmple_add   x @ w + b, relu    twice; the relu mask is read from its result
    contract_add_mul           the logits
    rows, reduce               log-softmax with its gradient; the loss
    contract_where_mul         gradient through a layer, relu mask in the epilogue   twice
    contract_sub_div_add       a weight's gradient and its whole Adam update: three results; 3 times
    reduce_sub_div_add         a bias's gradient and its whole Adam update; 3 times

The kernel level has no loop without a dependent, so a scatter whose updates are constant reads them
from memory.

``show()`` prints the decisions: which kernels were full; for each loop whether it is one kernel,
and why. ``config.unfused`` disables one kind of fusion (disable_fusion.py).
"""
