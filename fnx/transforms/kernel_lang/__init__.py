"""User-written kernels: trace Python code over references into untiled kernel IR.

``fnx.call(f, out=, schedule=)`` traces f once per signature; the call is ``CALL(KERNEL,
operands...)``. accesses.py decides which elements a kernel accesses, by bounds and strides, else by
evaluating all iterations of what is not data: a kernel that passes means the same on every device,
so nothing is checked at run time. ``k.loop`` is a LOOP, ``k.when`` one that runs once or not at
all; their stores wait until the ranges of all carried values are known (carried_values.py).

A kernel's derivatives are those of what it computes as arrays (kernel_to_function.py): ranges are
axes, reads are movements or GATHERs, reductions REDUCEs, loops SCANs, stores movements or SCATTERs.
The kernel itself still computes the results, the backward pass whatever else it needs.

``k.print`` stores its values to hidden outputs; an effect after the kernel prints the lines
(kernel_prints.py). Under ``config.check_index`` kernels get one more output for each index that is
data, and lower/tensor/bounds_check.py adds the same for each GATHER and SCATTER.
"""
