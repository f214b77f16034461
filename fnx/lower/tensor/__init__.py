"""tensor level -> tensor level: optimizations of whole arrays.

- ``argmax`` and ``argmin`` are written as a REDUCE and a comparison, which derivatives, batches and
  loops take as they are; fuse_argreduce.py makes one reduction of ARG_PAIRs of them, so their
  operand is read, or computed, once.
- STOP_GRADIENT is an identity whose derivative rule is zero; lowering looks through it.
- Of a value of which a gather reads few elements, and nothing else any, only these are computed
  (push_gather_to_operands.py); what was written at an index is not read from the array.
- A sum over axes that a reshape joins is one over these axes (push_reduce_through_reshape.py).
- A long reduction with few results, or a long chain of additions across rows, is split by the shape
  alone (split_reduction.py); so is the sum of a product of few rows, or whose factors are read
  across it from beyond the L2 cache (split_k.py). Within such a chunk a schedule splits long
  sums again (schedule/blocked_summation.py).

**Convolutions** (fnx/lax/convolution.py) arrive as contractions of a kernel with windows. UNFOLD(x)
is x[i * stride + j * dilation, j] over an axis i and an axis j; FOLD is its transpose. Sums over j
are ordinary REDUCEs, in whose loops the windows are read, so windows are never memory.

    stride s           element k of a window is element k // s of phase k % s: windows then have
                       stride 1 and are neighbors in memory; rows are joined to one long row if that
                       fills vectors better (lax/conv_space_to_depth.py)
    dilated input      (conv_transpose) the kernel is split in phases, so no inserted zero is
                       multiplied (lax/conv_polyphase.py)
    depthwise          no matrix product: both are left as they are; the schedule computes rows that
                       load the same rows together (schedule/unroll_and_jam.py)
    input gradient     a sum of FOLDs of a sum of products becomes one contraction over UNFOLDs
                       (conv_input_gradient_to_contraction.py), computed only where the input is,
                       not in its padding (push_slice_through_reduce.py)
    zeros, phases      written once, by kernelize; the schedule reads windows in place
                       (``tile_panels`` in schedule/contraction_tiling.py)
"""
