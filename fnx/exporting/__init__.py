"""``fnx.export``: a function for processes without fnx, or without the function's source.

    to="fnx"      one file of checked IR, compiled by the process that loads it
    to="c"        a C file with its header, without dependencies
    to="webgpu"   a folder for a browser: kernels, a JavaScript module, data
    to="onnx"     a model for other runtimes
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

from fnx.core.array import arguments, tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, from_storage
from fnx.core.array.aval import Aval
from fnx.core.array.call_validation import validate_call
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.core.scope import storage
from fnx.core.support.errors import (
    ArgumentError,
    CheckpointError,
    ShapeError,
    lazy_module,
)
from fnx.core.support.process import lazy_import
from fnx.core.tracing.trace import ClosedFunction, function_name
from fnx.exporting import graph_file
from fnx.exporting.graph_file import ExportedGraph
from fnx.exporting.names import identifier
from fnx.saving import files
from fnx.transforms.abstract_eval import trace_closed
from fnx.transforms.custom.lazy_rules import drop_lazy_rules
from fnx.transforms.dispatch import rule_demand

__all__ = ["Exported", "export", "load_exported"]


class Exported:
    """The result of ``export``.

    Attributes:
        name: of the function.
        files: contents as bytes, by file name.
    """

    def __init__(self, name: str, contents: dict[str, bytes]) -> None:
        self.name, self.files = name, contents

    def __repr__(self) -> str:
        sizes = ", ".join([f"{name}: {len(data):,} bytes" for name, data in self.files.items()])
        return f"<exported {self.name}: {sizes}>"

    @validate_call
    def save(self, folder: str | os.PathLike[str]) -> list[str]:
        """Write the files into a folder, which is created if it does not exist.

        Args:
            folder: the path of the folder.

        Returns:
            The paths of the files.
        """
        os.makedirs(folder, exist_ok=True)
        paths = [os.path.join(os.fspath(folder), name) for name in self.files]
        for path, data in zip(paths, self.files.values()):
            files.write(path, partial(_write_data, data))
        return paths


def _write_data(data: bytes, file: BinaryIO) -> None:
    file.write(data)


_FORMATS: dict[str, Callable[[ExportedGraph], dict[str, bytes]]] = {"fnx": graph_file.serialize,
    "c": lazy_import("fnx.exporting.c_file", "written"),
    "webgpu": lazy_import("fnx.exporting.web_folder", "written"),
    "onnx": lazy_import("fnx.exporting.onnx_file", "written")}


@public_api
def export(f: Callable[..., Any], *avals: Any, to: str, name: str | None = None) -> Exported:
    """Export a function with the arrays that it captures, for other processes.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> w = jnp.array([1.0, 2.0])
    >>> made = fnx.export(lambda x: x @ w, fnx.ShapeDtypeStruct((3, 2), "float32"), to="fnx",
    ...                   name="scores")
    >>> list(made.files)
    ['scores.fnx']

    Args:
        f: a pure function of pytrees of arrays.
        avals: its arguments: arrays, or anything with ``shape`` and ``dtype`` in their place.
        to: "fnx", a file for ``load_exported``; "c", a C file and its header;
            "webgpu", kernels and a JavaScript module for a browser; "onnx", an ONNX model.
        name: of the exported function; by default that of ``f``. A name that is not an ASCII
            identifier becomes "function", and one reserved in C or a browser gets a trailing
            underscore.

    Returns:
        The files, which ``save`` writes.

    Raises:
        ArgumentError: there is no such format, or the function calls Python while it runs.
    """
    arguments.check_choice("to", to, tuple(_FORMATS))
    closed, in_avals, in_tree = trace_closed(f, avals, "export")
    for node in toposort([closed.function], into_functions=True):
        if node.op is ops.CALLBACK:
            raise ArgumentError(f"expected a function that calls no Python, got a callback in "
                                f"{name or function_name(f)}", loc=node.loc,
                                hint="remove prints and callbacks from the exported function")
    if rule_demand.lazy_rules_inside(closed.function):
        raise ArgumentError(f"expected functions whose rules can be exported in "
                            f"{name or function_name(f)}, got one with symbolic zeros",
                            hint="define its rules without symbolic_zeros=True")
    identifier_ = identifier(name or function_name(f))
    return Exported(identifier_, _FORMATS[to](ExportedGraph(
        identifier_, drop_lazy_rules(closed.function), [Array(c)._numpy() for c in closed.captures],
        in_avals, in_tree, closed.outs, closed.out_tree)))


vars(export).update({name: lazy_import("fnx.exporting.symbolic_shapes", name) for name in (
    "SymbolicScope", "is_symbolic_dim", "symbolic_args_specs", "symbolic_shape")})


class LoadedFunction:
    """A function from ``load_exported``: it can be called, jitted and differentiated like any
    other.

    Attributes:
        name: that it was exported by.
        in_avals: of the leaves of its arguments.
    """

    def __init__(self, graph: ExportedGraph) -> None:
        self.name, self.in_avals, self._in_tree = graph.name, graph.ins, graph.in_tree
        consts = [from_storage(storage.put(value), value.shape, aval.dtype, False)
                  for value, aval in zip(graph.consts, graph_file.const_avals(graph))]
        self._closed = ClosedFunction(graph.function, [c._node for c in consts], graph.out_tree,
                                      tuple(graph.outs))
        self._consts = consts

    def __repr__(self) -> str:
        return f"<{self.name} of {', '.join(map(str, self.in_avals))}>"

    def __call__(self, *args: Any) -> Any:
        """Return the function's result."""
        return _call_loaded(self, args)


@public_api
def _call_loaded(loaded: LoadedFunction, args: tuple[Any, ...]) -> Any:
    leaves, args_tree = tree.flatten(args)
    if args_tree != loaded._in_tree:
        raise ArgumentError(f"{loaded.name}: expected arguments like those it was exported for: "
                            f"{tree.first_difference(loaded._in_tree, args_tree)}")
    arrays = [asarray(x) for x in leaves]
    for x, expected_aval in zip(arrays, loaded.in_avals):
        if x.shape != expected_aval.shape or x._dtype is not expected_aval.dtype:
            raise ShapeError(f"{loaded.name}: expected {expected_aval}, got "
                             f"{Aval(x.shape, x._dtype)}",
                             hint="export it for these shapes, too")
    return loaded._closed.call(arrays)


@validate_call
def load_exported(path: str | os.PathLike[str]) -> LoadedFunction:
    """Load a function that was exported ``to="fnx"``; this process compiles it.

    The file holds a graph and numbers. Each node is checked as fnx checks its own, and nothing in
    it is executed as Python. Its digest detects damage; it is not a signature.

    >>> import tempfile
    >>> import fnx
    >>> made = fnx.export(lambda x: x + 1, fnx.ShapeDtypeStruct((2,), "float32"), to="fnx",
    ...                   name="following")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     f = fnx.load_exported(*made.save(folder))
    >>> f(fnx.numpy.zeros(2))
    Array([1., 1.], dtype=float32)

    Args:
        path: of the file.

    Returns:
        The function.

    Raises:
        CheckpointError: the file is not an exported function, is of another version, is damaged, or
            holds an invalid graph.
    """
    data = files.MappedFile(os.fspath(path)).memory.tobytes()
    try:
        return LoadedFunction(graph_file.deserialize(data))
    except CheckpointError as error:
        error.message = f"{os.fspath(path)!s}: {error.message}"
        raise


__getattr__, __dir__ = lazy_module(__name__, __all__)
