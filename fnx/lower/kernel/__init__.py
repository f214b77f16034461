"""Kernel level -> kernel level: fewer loops, shared kernels, canonical numbering.

**Run-time extents** (runtime_extents.py; eager calls, and lengths that change). Loop lengths, slice
offsets and strides, bounds of masks, and constants become scalar arguments, so a notebook of many
shapes reuses a few dozen kernels. A contraction chooses one of about twenty tilings by its lengths
before (schedule/generic_tiling.py); one of more than about 1e8 multiply-adds has a kernel of its
own. So which kernel runs follows from the signature. Two facts are proved while lengths are still
numbers and stay in the KERNEL's arg: that stores write disjoint elements, and that all indices fit
in 32 bits. Kernels made of loops take part (``Call.is_generated``), user-written ones do not. The
left factor of a product is read from the first buffer (canonicalize_operand_order.py), as which
factor comes first in a graph follows from lengths. Large results remain known as such
(``Ref.exceeds_cache``), so their stores are nontemporal. jit keeps lengths as numbers: masks vanish
and tiles fit. ``python benchmarks/new_shapes.py fnx|jax`` counts kernels.

**Loops that select by their counter.** unroll_columns.py: a short one, such as a stack along the
last axis, becomes a STORE per iteration, and neighbors are written as whole vectors.
analysis/split_index_sets.py: a long one, such as a CONCAT, becomes one loop per part, in chunks
that workers share. A product, or a reduction along three parts or more, reads a CONCAT from memory.

**Rows.** row_blocks.py takes chains of reductions over short rows, such as softmax, step by step
for a block of rows. row_epilogues.py stages the reductions of a block of contiguous rows if what
follows is expensive, so that it is vectorized, unless many elements of each row are written, along
which lanes go. stage_scatter_rows.py does so with the indices and values of a scatter, as far as
that saves instructions and fits one way of the L1 cache; only the updates themselves stay in order.
repeat_row_operands.py makes one row of a map whose rows do not fill their vectors: what is equal in
each row, such as a bias, is repeated in a small stage.
"""
