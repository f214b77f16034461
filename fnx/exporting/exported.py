"""Exported functions, under the names of ``jax.export``: a graph that other processes load.

What is serialized is the checked graph of ``fnx.export(to="fnx")``, with the structures of the
arguments and results. Reading it runs no Python of the file: each node is checked as fnx checks its
own (exporting/graph_checks.py). A graph has its derivatives, so none are serialized.

>>> import fnx, fnx.numpy as jnp
>>> exported = export(fnx.jit(lambda x: 2 * x))(jnp.ones(2))
>>> deserialize(exported.serialize()).call(jnp.ones(2))
Array([2., 2.], dtype=float32)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fnx.core.array import tree
from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, from_storage
from fnx.core.array.aval import Aval
from fnx.core.array.recorded_calls import record_call
from fnx.core.ir import build, ops
from fnx.core.ir.dtypes import as_dtype
from fnx.core.ir.uop import toposort
from fnx.core.rewriting.dimensions import variables
from fnx.core.scope import storage
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError, CheckpointError, FnxError, NotBuiltError
from fnx.core.tracing.trace import ClosedFunction
from fnx.exporting import export_trees, graph_checks, graph_file
from fnx.exporting.export_trees import ContainerType
from fnx.exporting.graph_file import ExportedGraph
from fnx.exporting.names import identifier
from fnx.exporting.symbolic_shapes import (
    SymbolicScope,
    is_symbolic_dim,
    symbolic_args_specs,
    symbolic_shape,
)
from fnx.jaxprs.stablehlo_text import module_text
from fnx.jaxprs.syntax import ClosedJaxpr
from fnx.jaxprs.view import function_to_jaxpr
from fnx.saving import safetensors
from fnx.transforms.custom.lazy_rules import drop_lazy_rules
from fnx.transforms.dispatch.bounded_lengths import instantiated, solve, trace_bounded
from fnx.transforms.jit import Jitted, jit
from fnx.transforms.vjp import vjp

__all__ = [
    "DisabledSafetyCheck", "Exported", "SymbolicScope", "default_export_platform", "deserialize",
    "export", "is_symbolic_dim", "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version", "register_namedtuple_serialization",
    "register_pytree_node_serialization", "symbolic_args_specs", "symbolic_shape",
]

MAGIC = b"fnx exported 1\n"
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
MAX_VJP_ORDER = 8
MAX_INSTANCES = 64  # of a function with dimensions
minimum_supported_calling_convention_version, maximum_supported_calling_convention_version = 9, 10
T = TypeVar("T")


class DisabledSafetyCheck:
    """A check of ``jax.export`` that the caller does not want.

    >>> DisabledSafetyCheck.platform()
    platform
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Return the check of the platform of a call."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Return the check of calls of other code, of which graphs have none."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """Return the name of the code whose calls are not checked, or None."""
        kind, _, name = self.text.partition(":")
        return name if kind == "custom_call" else None

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class Exported:
    """An exported function.

    Attributes:
        fun_name: of the function.
        in_tree, out_tree: the structures of ``(args, kwargs)`` and of the result.
        in_avals, out_avals: the types of their leaves.
        platforms: where it may be called.
        calling_convention_version: that of JAX whose fields it has.
        module_kept_var_idx: the leaves of the arguments that it reads.
    """

    nr_devices = 1
    ordered_effects = unordered_effects = ()
    uses_global_constants = False
    calling_convention_version = maximum_supported_calling_convention_version

    def __init__(self, fun_name: str, graph: ExportedGraph, in_tree: tree.TreeDef,
                 out_tree: tree.TreeDef, platforms: tuple[str, ...],
                 disabled_checks: Sequence[DisabledSafetyCheck] = (),
                 vjp_order: int = MAX_VJP_ORDER) -> None:
        self.fun_name, self._graph, self._closed = fun_name, graph, closed_function(graph)
        self._variables = {v for a in graph.ins for n in a.shape for v in variables(n)}
        self._instances: dict[tuple[Any, ...], ClosedFunction] = {}
        self.in_tree, self.out_tree, self.platforms = in_tree, out_tree, platforms
        self.in_avals = tuple(map(ShapedArray.of, graph.ins))
        self.out_avals = tuple(map(ShapedArray.of, graph.outs))
        self.disabled_safety_checks = tuple(disabled_checks)
        self._vjp_order = vjp_order
        used = {n.arg.slot for n in toposort(graph.function.src) if n.op is ops.PARAM}
        self.module_kept_var_idx = tuple([i for i in range(len(graph.ins)) if i in used])
        self.in_shardings_hlo = (None,) * len(graph.ins)
        self.out_shardings_hlo = (None,) * len(graph.outs)

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, in_avals={self.in_avals}, ...)"

    @property
    def mlir_module_serialized(self) -> bytes:
        """The graph as bytes."""
        data, = graph_file.serialize(self._graph).values()
        return data

    def mlir_module(self) -> str:
        """Return the graph in the format of StableHLO, for reading."""
        graph, n = self._graph, len(self._graph.ins)
        consts = [build.param(n + i, as_dtype(x.dtype), x.shape)
                  for i, x in enumerate(graph.consts)]
        params = [build.param(i, a.dtype, a.shape) for i, a in enumerate(graph.ins)]
        jaxpr = function_to_jaxpr(graph.function, params, consts)
        return module_text(ClosedJaxpr(jaxpr, graph.consts), self.fun_name)

    def has_vjp(self) -> bool:
        """Return whether it has a derivative: one that was read has as many as were asked for."""
        return self._vjp_order > 0

    def vjp(self) -> Exported:
        """Return the exported pullback: (arguments, cotangents of the result) -> cotangents.

        Raises:
            ArgumentError: it was written without its derivative.
        """
        if not self.has_vjp():
            raise ArgumentError(f"{self.fun_name}: expected a function that was written with its "
                                "derivative, got one without",
                                hint="write it with serialize(vjp_order=1)")
        n, floats = len(self.in_avals), [a for a in self._graph.outs if a.dtype.is_inexact]

        def pullback(*args: Any) -> tuple[Any, ...]:
            outs, pull = vjp(lambda *xs: tuple(_closed_for(self, xs).call(xs)), *args[:n])
            cotangents = iter(args[n:])
            grads = pull(tuple([next(cotangents) if x._dtype.is_inexact else None for x in outs]))
            return tuple([g for g, a in zip(grads, self._graph.ins) if a.dtype.is_inexact])
        pullback.__name__ = f"{self.fun_name}_vjp"
        avals = [ShapedArray.of(Aval(a.shape, a.dtype)) for a in (*self._graph.ins, *floats)]
        exported = export(jit(pullback), platforms=self.platforms,
                          disabled_checks=self.disabled_safety_checks)(*avals)
        exported._vjp_order = self._vjp_order - 1
        return exported

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; this can be traced and differentiated.

        Args:
            args: like those that it was exported for.
            kwargs: the same by name.

        Returns:
            The result.

        Raises:
            ArgumentError: arguments of other structure, shapes or dtypes, or another platform.
        """
        leaves, structure = tree.flatten((args, kwargs))

        def again(*values: Any) -> Any:
            args, kwargs = structure.unflatten(values)
            return _call(self, args, kwargs)
        return record_call("call_exported", again, self.fun_name, list(map(asarray, leaves)),
                           again(*leaves))

    def call_exported(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function: an older name of ``call``.

        Args:
            args: as of ``call``.
            kwargs: as of ``call``.

        Returns:
            The result.
        """
        return _call(self, args, kwargs)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """Return the function as bytes.

        Args:
            vjp_order: how many derivatives ``vjp`` returns after reading it.

        Returns:
            Bytes for ``deserialize``.

        Raises:
            ArgumentError: a container is not registered, or it has fewer derivatives.
        """
        if not 0 <= vjp_order <= MAX_VJP_ORDER:
            raise ArgumentError(f"expected 0 <= vjp_order <= {MAX_VJP_ORDER}, got {vjp_order}")
        if vjp_order > self._vjp_order:
            raise ArgumentError(f"{self.fun_name}: expected vjp_order <= {self._vjp_order}, with "
                                f"which it was written, got {vjp_order}")
        head = json.dumps({
            "name": self.fun_name[:graph_checks.MAX_NAME_LENGTH],
            "platforms": list(self.platforms), "vjp_order": vjp_order,
            "in_tree": export_trees.encode(self.in_tree),
            "out_tree": export_trees.encode(self.out_tree)}, separators=(",", ":")).encode()
        payload = len(head).to_bytes(8, "little") + head + self.mlir_module_serialized
        return bytearray(MAGIC + hashlib.sha256(payload).digest() + payload)


def _closed_for(exported: Exported, arrays: Sequence[Array]) -> ClosedFunction:
    """Return the function for the lengths of these arguments."""
    if not exported._variables:
        return exported._closed
    axes = [(declared, n, f"axis {axis} of argument {i}")
            for i, (x, aval) in enumerate(zip(arrays, exported._graph.ins))
            for axis, (declared, n) in enumerate(zip(aval.shape, x.shape))]
    lengths = solve(exported.fun_name, *zip(*axes))
    key = tuple([lengths[v] for v in exported._variables])
    closed = exported._instances.get(key)
    if closed is None:
        broken = exported._graph.assumptions.broken_by(lengths)
        if broken:
            raise ArgumentError(f"{exported.fun_name}: expected lengths for which it was exported, "
                                f"got some with {broken}",
                                hint="export it with bounds that exclude them, and again for these")
        closed = exported._instances[key] = instantiated(exported._closed, lengths)
        for old in list(exported._instances)[:-MAX_INSTANCES]:
            exported._instances.pop(old, None)
    return closed


def _leaves_of(args: Any, expected: Exported) -> list[Array]:
    leaves, in_tree = tree.flatten(args)
    if in_tree != expected.in_tree:
        raise ArgumentError(f"{expected.fun_name}: expected arguments like those it was exported "
                            f"for: {tree.first_difference(expected.in_tree, in_tree)}")
    arrays = [asarray(x) for x in leaves]
    for x, aval in zip(arrays, expected._graph.ins):
        fits = len(x.shape) == len(aval.shape) and all(
            n == m or is_symbolic_dim(m) for n, m in zip(x.shape, aval.shape))
        if not fits or x._dtype is not aval.dtype:
            raise ArgumentError(f"{expected.fun_name}: expected {aval}, got "
                                f"{Aval(x.shape, x._dtype)}", hint="export it for these types, too")
    return arrays


@public_api
def _call(self: Exported, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    arrays = _leaves_of((args, kwargs), self)
    if config.device not in self.platforms and config.device in PLATFORMS and \
            DisabledSafetyCheck.platform() not in self.disabled_safety_checks:
        raise ArgumentError(f"{self.fun_name}: expected a call on {' or '.join(self.platforms)}, "
                            f"got one on {config.device}", hint="export it for this platform")
    return self.out_tree.unflatten(_closed_for(self, arrays).call(arrays))


def closed_function(graph: ExportedGraph) -> ClosedFunction:
    """Return a graph over the arrays that it captures."""
    consts = [from_storage(storage.put(value), value.shape, aval.dtype, False)
              for value, aval in zip(graph.consts, graph_file.const_avals(graph))]
    return ClosedFunction(graph.function, [c._node for c in consts], graph.out_tree,
                          tuple(graph.outs))


def graph_of(name: str, closed: ClosedFunction, avals: Sequence[Aval]) -> ExportedGraph:
    """Return a closed function as a graph whose arguments and results are flat.

    Raises:
        ArgumentError: it calls Python, or captures what is traced.
    """
    for node in toposort([closed.function], into_functions=True):
        if node.op is ops.CALLBACK:
            raise ArgumentError(f"{name}: expected a function that calls no Python, got a callback",
                                loc=node.loc, hint="remove its prints and callbacks")
    return ExportedGraph(identifier(name), drop_lazy_rules(closed.function),
                         [Array(c)._numpy() for c in closed.captures], avals,
                         tree.structure(tuple(range(len(avals)))), closed.outs,
                         tree.structure(tuple(range(len(closed.outs)))))


def strong(aval: Aval) -> Aval:
    """Return a type that is not weak, as other processes see it."""
    return Aval(aval.shape, aval.dtype)


def export(fun_jit: Callable[..., Any], *, platforms: Sequence[str] | None = None,
           disabled_checks: Sequence[DisabledSafetyCheck] = (),
           _override_lowering_rules: Any = None) -> Callable[..., Exported]:
    """Export a jitted function for arguments of given types.

    Args:
        fun_jit: a function under ``jit``, or one of fnx's own, such as ``fnx.numpy.sin``.
        platforms: where it may be called; by default on this device.
        disabled_checks: checks that are not made.
        _override_lowering_rules: JAX's; None.

    Returns:
        A function of arrays or ``ShapeDtypeStruct``s that returns an Exported.

    Raises:
        ArgumentError: it is not jitted, or there is no such platform.

    >>> import fnx
    >>> export(fnx.jit(lambda x: x + 1))(fnx.ShapeDtypeStruct((2,), "float32"))
    Exported(fun_name=<lambda>, in_avals=(ShapedArray(float32[2]),), ...)
    """
    if not isinstance(fun_jit, Jitted):
        if not str(getattr(fun_jit, "__module__", "")).startswith("fnx."):
            raise ArgumentError(f"export: expected a jitted function, got {fun_jit!r}",
                                hint="write export(fnx.jit(f))")
        fun_jit = jit(fun_jit)
    names = (default_export_platform(),) if platforms is None else tuple(platforms)
    for name in names:
        if name not in PLATFORMS:
            raise ArgumentError(f"export: expected platforms among {', '.join(PLATFORMS)}, got "
                                f"{name!r}")

    def exported(*args: Any, **kwargs: Any) -> Exported:
        if any(is_symbolic_dim(n) for x in tree.leaves((args, kwargs))
               for n in getattr(x, "shape", ())):
            return _export_bounded(fun_jit, args, kwargs, names, disabled_checks)
        traced = fun_jit.trace(*args, **kwargs)
        closed, avals = traced._specialized.cached_trace.closed, traced._specialized.key.avals
        if not hasattr(closed, "function"):
            raise NotBuiltError(f"export: expected {traced.fun_name} to use no references from "
                                "outside, got some", hint="pass and return their values, r[...]")
        graph = graph_of(traced.fun_name, closed, avals)
        graph = graph.replace(ins=[strong(a) for a in graph.ins],
                              outs=[strong(a) for a in graph.outs])
        return Exported(traced.fun_name, graph, traced.in_tree, traced.out_tree, names,
                        disabled_checks)
    return exported


def _export_bounded(f: Jitted[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                    platforms: tuple[str, ...], disabled_checks: Sequence[DisabledSafetyCheck]
                    ) -> Exported:
    """Export a function of arguments with dimensions, by a trace of its own."""
    _, key = f._arguments.key(args, kwargs, shapes=True)
    bounded = trace_bounded(key.avals, lambda avals: f._trace_shapes(
        key._replace(avals=avals), args, kwargs))
    variable_names = [v.arg.name for v in bounded.news]
    if len(set(variable_names)) < len(variable_names):
        raise ArgumentError(f"export: expected one dimension for each name, got "
                            f"{', '.join(variable_names)} with other bounds",
                            hint="take them from one symbolic_shape or scope")
    graph = graph_of(f._name, bounded.closed, [strong(a) for a in bounded.avals])
    graph = graph.replace(outs=[strong(a) for a in graph.outs], assumptions=bounded.assumptions)
    return Exported(f._name, graph, key.in_tree, bounded.closed.out_tree, platforms,
                    disabled_checks)


def default_export_platform() -> str:
    """Return the platform that functions are exported for by default.

    Returns:
        The name of the device.

    >>> default_export_platform()
    'cpu'
    """
    return config.device if config.device in PLATFORMS else "cpu"


# ---- bytes ---------------------------------------------------------------------------------------


def deserialize(blob: bytes | bytearray) -> Exported:
    """Return an exported function from bytes, after checking each node of its graph.

    Args:
        blob: what ``Exported.serialize`` returned.

    Returns:
        An Exported.

    Raises:
        CheckpointError: it is no exported function, or a damaged or invalid one.

    >>> deserialize(b"nothing")                                # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fnx.core.support.errors.CheckpointError: expected an exported function
    """
    data = bytes(blob)
    payload = data[len(MAGIC) + 32:]
    if not data.startswith(MAGIC) or hashlib.sha256(payload).digest() != data[len(MAGIC):][:32]:
        raise CheckpointError(f"expected an exported function, got {data[:20]!r}... or a damaged "
                              "one", hint="serialize it again")
    size = int.from_bytes(payload[:8], "little")
    try:
        return _read(json.loads(payload[8:8 + size],
                                object_pairs_hook=safetensors.reject_duplicates),
                     payload[8 + size:])
    except FnxError:
        raise
    except graph_checks.DECODE_ERRORS as why:
        raise CheckpointError(f"expected an exported function, got {type(why).__name__}: "
                              f"{str(why)[:200]}") from None


def _read(head: Any, file: bytes) -> Exported:
    name, platforms, vjp_order = head["name"], head["platforms"], head["vjp_order"]
    if set(head) != {"name", "platforms", "vjp_order", "in_tree", "out_tree"} or \
            type(name) is not str or not all(p in PLATFORMS for p in platforms) or \
            type(vjp_order) is not int or not 0 <= vjp_order <= MAX_VJP_ORDER:
        raise CheckpointError("expected the head of an exported function, got another one")
    graph = graph_file.deserialize(file)
    in_tree, out_tree = (export_trees.decode(head[name]) for name in ("in_tree", "out_tree"))
    if (in_tree.num_leaves, out_tree.num_leaves) != (len(graph.ins), len(graph.outs)):
        raise CheckpointError("expected structures with the leaves of the graph, got others")
    return Exported(name, graph, in_tree, out_tree, tuple(platforms), vjp_order=vjp_order)


def register_pytree_node_serialization(
        nodetype: type[T], *, serialized_name: str,
        serialize_auxdata: Callable[[Any], bytes | bytearray],
        deserialize_auxdata: Callable[[bytearray], Any], from_children: Any = None) -> type[T]:
    """Let a registered container be part of exported arguments and results.

    Args:
        nodetype: its type.
        serialized_name: its name in files.
        serialize_auxdata: auxiliary data -> bytes.
        deserialize_auxdata: bytes -> auxiliary data.
        from_children: accepted for JAX's sake: ``unflatten`` builds it.

    Returns:
        The type.

    Raises:
        ArgumentError: the type or the name is registered already.

    >>> import fnx
    >>> class Pair:
    ...     def __init__(self, a, b): self.a, self.b = a, b
    >>> fnx.tree_util.register_pytree_node(Pair, lambda p: ((p.a, p.b), "x"),
    ...                                    lambda _, xs: Pair(*xs))
    >>> kind = register_pytree_node_serialization(
    ...     Pair, serialized_name="example.Pair", serialize_auxdata=str.encode,
    ...     deserialize_auxdata=lambda data: data.decode())
    """
    export_trees.register(ContainerType(serialized_name, nodetype, serialize_auxdata,
                                        deserialize_auxdata))
    return nodetype


def register_namedtuple_serialization(nodetype: type[T], *, serialized_name: str) -> type[T]:
    """Let a named tuple be part of exported arguments and results.

    Args:
        nodetype: its type.
        serialized_name: its name in files.

    Returns:
        The type.

    Raises:
        ArgumentError: it is no named tuple, or the type or the name is registered already.

    >>> import collections
    >>> Point = collections.namedtuple("Point", "x y")
    >>> kind = register_namedtuple_serialization(Point, serialized_name="example.Point")
    """
    if not (issubclass(nodetype, tuple) and hasattr(nodetype, "_fields")):
        raise ArgumentError(f"expected a named tuple, got {nodetype.__name__}",
                            hint="use register_pytree_node_serialization")
    export_trees.register(ContainerType(serialized_name, nodetype, None, None))
    return nodetype
