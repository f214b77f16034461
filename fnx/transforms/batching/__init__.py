"""Batching: a FUNCTION of one element -> the FUNCTION of a whole batch of them.

``batch(FUNCTION, size, batched, axis)`` returns the batched FUNCTION and which results have a batch
axis; it is cached by body and pattern. The batch axis is axis 0 of what differs between elements;
what does not is computed once. There is one rule for each kind of op (rules.py), by
``Op.batching``. A GATHER or SCATTER with an index per element gets the element's number as one more
index, so duplicates stay in order; with common indices the batch axis is one more window.

Which carries of a loop get a batch axis is a fixpoint (higher_order.py). For batched conditions see
predication.py: inactive elements get the operands of one active element, so they compute only what
an active element computes, and their effects are masked (mask_effects.py). A KERNEL gets one more
range over a leading dimension of its REFs (kernels.py).

**Named axes** exist during tracing only. ALL_GATHER (x of all elements, in front) and AXIS_INDEX
name an ``op_args.Axis(name, size, depth)``; the open ones are ``scope.open_axes()``, part of the
key of every trace. Batching over the axis resolves both: the batched x is what was to be gathered.
psum and the other collectives are reductions and selections of gathered elements, so their
derivatives follow. If a branch or a loop uses a collective, all elements run it if any does
(transforms/control_flow/uniform_control_flow.py); an inactive element contributes the value that it
has, and keeps it.
"""
