"""``load``: a checked model as a pure function of its inputs and parameters."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fnx.core.array.array import Array
from fnx.core.rewriting.dimensions import Dim, dim
from fnx.core.support.errors import FnxError, ModelError
from fnx.core.support.process import lazy_import
from fnx.onnx.evaluate import Call, Scope, check_dtype, input_shapes_agree
from fnx.onnx.graphs import FIRST_OPSET, Graph, GraphBuilder
from fnx.onnx.tensors import TensorReader
from fnx.onnx.types import FORMATS, to_array, type_of

onnx = lazy_import("onnx")
checker = lazy_import("onnx.checker")
defs = lazy_import("onnx.defs")


def load(model: Any) -> OnnxFunction:
    """Return an ONNX model as a pure function: see ``OnnxFunction``.

    Nothing of the file is executed. External data must lie in the folder of the file; they are
    mapped into memory and read when they are used.

    Args:
        model: a path, the bytes of a file, or a ``ModelProto``.

    Raises:
        ModelError: the file is damaged or unsafe, or has operators that fnx lacks, all of which
            the error names.

    >>> import fnx.numpy as jnp
    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    >>> f = load(helper.make_model(graph))
    >>> f(jnp.asarray([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    in_memory = isinstance(model, onnx.ModelProto | bytes | bytearray | memoryview)
    path = None if in_memory else Path(model)
    with _errors_in(path):
        proto = _read(model, path)
        builder = GraphBuilder(proto, TensorReader(path.parent if path else None))
        _check_versions(proto)
        graph = builder.graph(proto.graph)
        builder.raise_unknown()
        try:
            checker.check_model(str(path) if path else proto)
        except checker.ValidationError as e:
            raise ModelError(f"expected a valid model: {e}") from None
        return OnnxFunction(proto, graph, builder, path)


@contextlib.contextmanager
def _errors_in(path: Path | None) -> Iterator[None]:
    """Errors of fnx have a note with the file."""
    try:
        yield
    except FnxError as e:
        if path is not None:
            e.add_note(f"in the file {path}")
        raise


def _read(model: Any, path: Path | None) -> Any:
    if isinstance(model, onnx.ModelProto):
        return model
    data = path.read_bytes() if path else bytes(model)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as e:  # DecodeError of protobuf, which is no dependency
        raise ModelError(f"expected an ONNX model{f' in {path}' if path else ''}, got "
                         f"{len(data)} bytes that are none: {e}") from None
    if not proto.ir_version or not proto.HasField("graph"):
        raise ModelError("expected an ONNX model, got one without a graph or a version")
    return proto


def _check_versions(proto: Any) -> None:
    newest = defs.onnx_opset_version()
    for item in proto.opset_import:
        if item.domain in ("", "ai.onnx") and not FIRST_OPSET <= item.version <= newest:
            raise ModelError(f"expected an opset of {FIRST_OPSET} to {newest}, got {item.version}",
                             hint="convert the model with onnx.version_converter, or install a "
                                  "newer package onnx")


class OnnxFunction:
    """A model as a pure function, which ``jit``, ``grad``, ``vmap`` and ``export`` transform.

    Inputs are passed by position or by name. The result is the array of the only output, or a
    tuple in the order of ``outputs``. Symbolic dimensions have any size.

    Attributes:
        inputs, outputs: their names, in the order of the file.
        params: name -> initializer, for all of a float type that no shape depends on. ``f(x,
            params=p)`` computes with others, so ``grad(lambda p: loss(f(x, params=p)))(f.params)``
            is the gradient by all parameters.
        dynamic: input -> {axis: ``fnx.dim``} for its named dimensions: with
            ``jit(f, dynamic=f.dynamic)``, one trace serves all lengths.
    """

    def __init__(self, proto: Any, graph: Graph, builder: GraphBuilder, path: Path | None
                 ) -> None:
        self._path = path
        fixed = _read_while_tracing(graph)
        self.params: dict[str, Array] = {
            name: to_array(value) for name, value in graph.constants.items()
            if name not in fixed and graph.constant_types[name] not in FORMATS
            and type_of(value).is_float}
        self._graph = graph
        self._builder = builder
        self._declared = {i.name: i.type for i in proto.graph.input}
        self.inputs = tuple([n for n in graph.inputs if n not in graph.constants])
        self.outputs = graph.outputs
        self.__name__ = proto.graph.name or "model"
        named = all(map(str.isidentifier, self.inputs))
        self.dynamic = {name if named else i: lengths for i, name in enumerate(self.inputs)
                        if (lengths := _lengths(self._declared[name]))}
        if named:  # so that jit knows the inputs by their names
            of_call = inspect.signature(type(self).__call__).parameters
            self.__signature__ = inspect.Signature([
                *[inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD)
                  for n in self.inputs],
                *[of_call[n] for n in ("params", "key") if n not in self.inputs]])

    def __repr__(self) -> str:
        return f"<OnnxFunction {self.__name__}({', '.join(self.inputs)})>"

    def __call__(self, /, *args: Any, params: Mapping[str, Any] | None = None,
                 key: Array | None = None, **named: Any) -> Any:
        """Return the output, or a tuple of all outputs.

        Args:
            args, named: the inputs.
            params: values of parameters, by name; those without one have the file's.
            key: a random key, for models with random nodes that have no seed; if an input of the
                model has that name, it is that input.

        Raises:
            ModelError: inputs or parameters are missing, unknown, or not of the declared type.
        """
        if "key" in self.inputs[len(args):] and "key" not in named:
            named, key = named | {"key": key}, None
        inputs = self._bind(args, named)
        unknown = sorted(set(params or ()) - set(self.params))
        if unknown:
            raise ModelError(f"expected names of parameters, got {', '.join(unknown)}",
                             hint="f.params has their names")
        call = Scope(Call(self._builder, key))
        call.formats |= {n: t.tensor_type.elem_type for n, t in self._declared.items()
                         if t.tensor_type.elem_type in FORMATS}
        graph = self._graph.replace(constants={
            **self._graph.constants, **self.params, **(params or {})}, inputs=tuple(inputs))
        with _errors_in(self._path):
            results = call.run(graph, list(inputs.values()))
        arrays = [_export(x) for x in results]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def _bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.inputs):
            raise ModelError(f"expected at most {len(self.inputs)} inputs "
                             f"({', '.join(self.inputs)}), got {len(args)}")
        inputs = dict(zip(self.inputs, args))
        twice, unknown = inputs.keys() & named.keys(), named.keys() - self._declared.keys()
        inputs |= named
        missing = [n for n in self.inputs if n not in inputs]
        for what, names in (("once", twice), ("only known", unknown), ("all", missing)):
            if names:
                raise ModelError(f"expected {what} inputs of the model ({', '.join(self.inputs)}); "
                                 f"{'missing' if what == 'all' else 'got'} "
                                 f"{', '.join(sorted(names))}")
        bound, shapes = {}, {}
        for name in self._declared:
            if name not in inputs:
                continue
            bound[name], kind = inputs[name], self._declared[name]
            if kind.WhichOneof("value") == "tensor_type":
                bound[name] = check_dtype(kind.tensor_type.elem_type, inputs[name], name)
                if kind.tensor_type.HasField("shape"):
                    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param
                            for d in kind.tensor_type.shape.dim]
                    shapes[name] = dims, bound[name].shape
        input_shapes_agree(shapes)
        return bound


def _lengths(declared: Any) -> dict[int, Dim]:
    """Return the named dimensions of an input by axis. An expression is a dimension by itself."""
    return {axis: dim(re.sub(r"\W|^(?=\d)", "_", d.dim_param))
            for axis, d in enumerate(declared.tensor_type.shape.dim) if d.dim_param}


def _export(x: Any) -> Any:
    if isinstance(x, list):
        return [_export(item) for item in x]
    return to_array(x) if isinstance(x, np.ndarray) else x


def _read_while_tracing(graph: Graph) -> set[str]:
    """Return the names that inputs read which must be known while tracing."""
    names: set[str] = set()
    for step in graph.nodes:
        if step.row is not None:
            names |= {name for i, name in enumerate(step.proto.input) if i in step.row.static}
        for value in step.attributes.values():
            if isinstance(value, Graph):
                names |= _read_while_tracing(value)
        if step.body is not None:
            inner = _read_while_tracing(step.body)
            names |= {outer for outer, name in zip(step.proto.input, step.body.inputs)
                      if name in inner}
    return names
