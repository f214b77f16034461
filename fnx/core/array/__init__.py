"""The user-facing Array: promotion, indexing, pytrees, devices, and eager calls.

**Arrays.** An ``Array`` is immutable: ``_node`` (a UOp) and, if it is concrete, ``_storage``
(memory of a device). In a graph a concrete array is ``BUFFER(handle=storage)``. ``weak`` is JAX's
weak type; it belongs to the Array, never to the graph. ``dtype`` is NumPy's dtype, so that
``x.dtype == np.float32`` holds. ``Aval(shape, dtype, weak)`` is what is known of an array without
its value; ``ShapeDtypeStruct`` is its public counterpart.

**Public functions.** A function has one definition. Its meaning is an entry in
core/formulas/elementwise.py; its signature, summary and example are a ``def`` in fnx/numpy
(``@universal`` and ``@elementwise`` add Args, Returns and Raises); lax and nn give it a second name
by ``alias``. Functions that differ in one value are a family (docstring_templates.py). Types for
annotations are defined where they belong (``ArrayLike`` in array.py, ``AxisLike`` in axes.py,
``DTypeLike`` in convert.py) and re-exported by fnx/typing.py.

**Indexing.** NumPy's indices (indexing.py), JAX's dimension numbers (fnx/lax/gather_scatter.py) and
dynamic slices all become one GATHER or SCATTER over some axes: indexed axes have index arrays,
other axes are windows, and a batch axis is one more index. No memory layout follows from which axes
are indexed.

**Memory of other libraries** (zero_copy.py, dlpack.py). A storage may borrow NumPy memory: it keeps
the memory alive and never writes it; the address has to be a multiple of 64. ``asarray`` borrows
only memory that nobody can write (views of Arrays, bytes); ``from_dlpack`` borrows any. ``load``
and ``onnx.load`` borrow the pages of the file (core/support/file_map.py), in which ``save`` aligns
large arrays; what is not aligned there is copied when a kernel or a reader asks for its address.

**Devices** (placement.py, fnx/device_transfer.py). ``device_put(x, device)`` commits an array: what
is computed from it runs on that device and is committed, too, as are results of ``jit(device=)``.
Uncommitted arrays follow; without any the device is ``config.device``. Two different devices are an
error that names both arguments and both lines.

**Eager calls** (eager_cache.py) close the pending nodes over their BUFFERs, and over a number or
two among the operands, so that another number is the same program; they are lowered like jitted
ones. A call like an earlier one builds no graph: its function, the types of its Arrays and its
other operands by value are the key of the program. Indices that are numbers are data, so ``x[i]``
is one program for all i. Calls that read a value, warn or have an effect are not cached.
"""
