"""Compiled functions as bytes, under the names of ``jax.experimental.serialize_executable``.

The bytes are the checked graph, not machine code, which no reader could verify. The process that
loads it compiles it, or finds its kernels in the disk cache.

>>> import fnx, fnx.numpy as jnp
>>> compiled = fnx.jit(lambda x: 2 * x).lower(jnp.ones(2)).compile()
>>> deserialize_and_load(*serialize(compiled))(jnp.ones(2))
Array([2., 2.], dtype=float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fnx.core.array import tree
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.support.errors import ArgumentError, lazy_module
from fnx.exporting import graph_file
from fnx.exporting.exported import closed_function, graph_of
from fnx.transforms.jit import jit
from fnx.transforms.stages import Compiled

__all__ = ["deserialize_and_load", "serialize"]


def serialize(compiled: Compiled) -> tuple[bytes, tree.TreeDef, tree.TreeDef]:
    """Return a compiled function as bytes.

    Args:
        compiled: what ``jit(f).lower(*args).compile()`` returns.

    Returns:
        (bytes, structure of ``(args, kwargs)``, structure of the result).

    Raises:
        ArgumentError: it is not compiled, or calls Python.

    >>> import fnx
    >>> data, in_tree, out_tree = serialize(fnx.jit(lambda x: x).lower(1.0).compile())
    >>> in_tree
    PyTreeDef(((*,), {}))
    """
    if not isinstance(compiled, Compiled):
        raise ArgumentError(f"expected a compiled function, got {type(compiled).__name__}",
                            hint="write jit(f).lower(*args).compile()")
    specialized = compiled._specialized
    data, = graph_file.serialize(graph_of(compiled.fun_name, specialized.cached_trace.closed,
                                          specialized.key.avals)).values()
    return data, compiled.in_tree, compiled.out_tree


def deserialize_and_load(serialized: bytes, in_tree: tree.TreeDef, out_tree: tree.TreeDef,
                         backend: str | None = None, execution_devices: Any = None) -> Compiled:
    """Compile a function from bytes, after checking each node of its graph.

    Args:
        serialized: what ``serialize`` returned first.
        in_tree: the structure of ``(args, kwargs)``.
        out_tree: the structure of the result.
        backend: the name of the device; by default ``config.device``.
        execution_devices: accepted for JAX's sake.

    Returns:
        A compiled function.

    Raises:
        CheckpointError: the bytes are no function, or a damaged or invalid one.
        ArgumentError: the structures do not fit the function.

    >>> import fnx
    >>> deserialize_and_load(*serialize(fnx.jit(lambda x: x + 1).lower(1.0).compile()))(2.0)
    Array(3., dtype=float32, weak_type=True)
    """
    graph = graph_file.deserialize(bytes(serialized))
    if (in_tree.num_leaves, out_tree.num_leaves) != (len(graph.ins), len(graph.outs)):
        raise ArgumentError(f"expected structures of {len(graph.ins)} arguments and "
                            f"{len(graph.outs)} results, got {in_tree} and {out_tree}",
                            hint="pass those that serialize returned")
    closed = closed_function(graph)

    def function(*args: Any, **kwargs: Any) -> Any:
        return out_tree.unflatten(closed.call(tree.leaves((args, kwargs))))
    function.__name__ = graph.name
    args, kwargs = in_tree.unflatten([ShapeDtypeStruct(a.shape, a.dtype.np, weak_type=a.weak)
                                      for a in graph.ins])
    compiled: Any = jit(function, device=backend).lower(*args, **kwargs).compile()
    assert isinstance(compiled, Compiled)
    return compiled


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
