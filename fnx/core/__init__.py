"""Layer 0: what a graph is. Imports nothing else of fnx.

    support <- ir <- { formulas ; rewriting <- levels -> scope } <- array <- tracing

**Nodes** (ir/op.py, uop.py, ops.py, build.py). ``UOp(op, dtype, src, arg)`` is interned: equal
content is the same object, so comparing graphs is comparing identities, and common subexpressions
are shared. An ``Op`` object is its own entry of the op table; fusion, schedules and time estimates
read the same costs from it. Nodes are built by ir/build.py (ops with several results by
ir/build_calls.py, commands by ir/build_calls.py), which checks operands and orders those of
commutative ops. A pass rebuilds a graph by ``uop.rebuild(roots, visit)`` or by rewrite rules
(core/rewriting). ir/accessors.py is the only module that knows the operand layout of kernel-level
nodes. Formulas (core/formulas) are written over ``Expr``, a node with Python's operators. A CONST
holds a bit pattern. ``node.shape`` (tensor level) and ``node.ranges`` (free ranges, kernel level)
are computed once per node.

**Dtypes** (ir/dtypes.py). A dtype carries its format and the dtype that it is computed in;
promotion is JAX's lattice, as a table of edges. tests/golden/dtypes.json has JAX's answer for every
pair of dtypes, in both modes.

**Storage-only dtypes** (``DType.storage``): int4, uint4, float8, bfloat16 and float16. Each op
converts its operands to ``compute``, which is exact, and rounds its result once. Reductions,
products with sums, means, combining scatters and formulas of several ops stay in the wide dtype
throughout. A conversion goes through ``compute``, as in JAX, so float64 to float16 rounds twice. In
NumPy such an array is records of bits, which no ufunc takes for numbers (NumPy itself has float16);
users get the dtypes of ml_dtypes if it is installed, else ``x.dtype`` is fnx's own object and
``np.asarray(x)`` says what to do. Subnormal numbers are preserved; JAX flushes them on the CPU.

**64 bits.** A dtype that is named is used as named, in both modes: ``zeros(2, "int64")`` has 64
bits. Without ``config.x64``, what has no named dtype becomes 32 bits wide: Python numbers, NumPy
data, and what promotion of narrower dtypes gives. Names without a width ("float", int) mean the
default width. The mode is part of the key of every trace.

**Random keys** have the dtype ``key<fry>``: 64 bits, both words of Threefry. They are moved,
selected, compared and carried by loops like a storage-only dtype, and no numeric op takes them;
fnx/random/keys.py converts words to keys by BITCAST.

**Configuration** (support/config.py). Assignments to ``config`` are process-wide; ``with`` blocks
apply to the thread or task that enters them.

**Errors** (support/errors.py) say what was expected and what came, with the user's line and a hint
for the fix. tests/attack/mistakes.txt has some 230 mistakes, tests/golden/messages the answers to
them.

**Caches** (ir/cache.py) are bounded LRU caches, limited by entries and, where their sizes differ,
by an estimate of bytes. No lock is held while user code or LLVM runs: two threads may compute the
same entry, and the first one wins.

**Interrupts, finalizers, forks** (ir/cache.py, process.py). No finalizer runs bytecode: the
interpreter appends deaths to deques, which are processed later. So no ``functools.cached_property``
(in Python 3.11 it has a lock), and modules that are imported late are stubs of
``process.lazy_import``. Thread state is restored in the ``finally`` of a function that makes no
call before its last one, since a Ctrl-C can cut the ``__exit__`` of a block before its first line.

Names that ``jax.core`` has are found here at their first use.
"""

from importlib import import_module
from typing import Any

_FACES = {
    **dict.fromkeys(("AbstractValue", "ShapedArray", "Tracer", "get_aval"),
                    "fnx.core.array.abstract_values"),
    "ensure_compile_time_eval": "fnx.config_context",
    **dict.fromkeys(("Atom",), "fnx.jaxprs.syntax"), "eval_jaxpr": "fnx.jaxprs.evaluate",
}


def __getattr__(name: str) -> Any:
    if name in _FACES:
        return getattr(import_module(_FACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
