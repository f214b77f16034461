"""Loops and branches: tracing of their bodies, and their FUNCTION -> FUNCTION passes.

A body is a FUNCTION of (captures, arguments). So its captures are the consts of a SCAN or WHILE and
the first operands of a COND; the functions of one node take the union of their captures. An
expensive value that exists before a loop (a sum, a loop, a large array) is captured itself, not
what it is computed from: so it is neither recomputed nor differentiated in each step. A Python
number in a carry is traced as what it is, then as what one step promotes it to, until nothing
changes. ``fori_loop`` with Python bounds is a SCAN over the counter, else a WHILE; ``unroll=k``
makes a body of k calls of the body.

Before lowering (loop_fission.py), what a step of a SCAN does not need its carries for is done for
all steps at once: x_t @ w ahead of the loop; dw = sum of x_t^T g_t after it, each as one product,
if it pays (fission_analysis.py) and fits ``config.hoist_bytes``; by strips of steps, if it does not
fit a cache (strip_mining.py). Loop invariants are hoisted, too;
an array that all steps multiply with is transposed once if the product reads it so
(transpose_invariants.py); results without readers are dropped (dead_carry_elimination.py). Nothing
leaves a WHILE or COND, nor a loop with checkpoints: it leaves the loop of each segment.
"""
