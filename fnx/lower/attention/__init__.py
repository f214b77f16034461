"""Compute products that are only summed by tiles, as in FlashAttention, without writing them.

A region (region.py) is a product with more elements than its operands, read by nothing but sums, by
way of elementwise work: the scores of an attention, in any spelling. Each reduction over the same
axes becomes part of one KERNEL (region_kernel.py): a LOOP over blocks of one axis that computes the
scores of a block from its operands, keeps the weights of the other factor in a STAGE, and carries
sums (online softmax). Sums of exponentials of one score are one reduction with its maximum,
whatever is subtracted from the score (algebra.py): exp(s - g) = exp(s - top) * exp(top - g).

- What factors are computed from (``cos(out)``) is computed once, before; masks of indices are
  computed where they are read.
- A sum over the product with a cotangent is derived from the known sum, by swapping the order of
  summation (reassociate_sums.py). So gradients recompute the scores, read maxima and sums from
  memory, and no matrix is written.
- If workers have heads to share, one kernel computes all gradients: those of keys and values are
  carried, and each tile of keys adds to those of queries (row_tiles.py), always in one order.
- A mask that proves it ends the loop early (loop_bounds.py): what is left out is exactly 0, which
  tests ensure, before the loop (the other factor is finite) and in it (``exp(mask - top)`` is 0).
  If the mask is data, a kernel before finds the last column that each row sees.

It is done for matrices of 256 x 256 elements and more if a mask skips blocks, else of 512 x 512, if
the kernels under their schedules are predicted to take no longer than those of the unchanged region
(``_check_price``, ``pipeline.predicted_time``), or up to twice as long if they save more than
``LARGE_BYTES``. Not on targets with workgroups.
"""
