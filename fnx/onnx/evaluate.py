"""Evaluation of a model's graph: each node by its rule, on values that are known or traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx import random
from fnx.core.array.array import Array
from fnx.core.support.errors import FnxError, ModelError, TracedValueError
from fnx.core.support.process import lazy_import
from fnx.onnx.graphs import Graph, GraphBuilder, Step, default_attributes, find_schema
from fnx.onnx.registry import attributes_of
from fnx.onnx.types import FORMATS, Value, dtype_of, elem_type_of, known, type_of

helper = lazy_import("onnx.helper")

_KEEP_FORMAT = frozenset({  # move elements, or compare none of them
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Gather",
    "Slice", "Split", "Expand", "Tile", "Pad", "Scan", "Loop", "If", "Where"})


class Call:
    """A call of the model: what its random nodes draw from, and the builder for functions."""

    def __init__(self, builder: GraphBuilder, key: Array | None) -> None:
        self.builder = builder
        self.key = key


class Scope:
    """Values by name. A subgraph also reads those of the graphs around it. ``iterations``: of the
    loops around, so that random nodes draw others in each.
    """

    def __init__(self, call: Call, outer: Scope | None = None, iterations: Sequence[Any] = ()
                 ) -> None:
        self.call = call
        self.iterations = tuple(iterations)
        self.values: dict[str, Value] = dict(outer.values) if outer else {}
        self.formats: dict[str, int] = dict(outer.formats) if outer else {}

    def run(self, graph: Graph, inputs: Sequence[Value], requested: Sequence[bool] = ()
            ) -> list[Value]:
        """Return the results of a graph for the values of its inputs. ``requested``:
        which of them are read; the body of a function need not compute the others."""
        self.values |= graph.constants
        self.formats |= {n: t for n, t in graph.constant_types.items() if t in FORMATS}
        self.values |= dict(zip(graph.inputs, inputs))
        for step in graph.nodes:
            self._run_step(step)
        return [self._read(name, graph.name, i >= len(requested) or requested[i])
                for i, name in enumerate(graph.outputs)]

    def _read(self, name: str, reader: object, wanted: bool = True) -> Value:
        if not wanted:
            return self.values.get(name)
        if name and name not in self.values:
            raise ModelError(f"expected a value for {name!r}, which {reader} reads; the nodes "
                             "before it compute none")
        return self.values[name] if name else None

    def _run_step(self, step: Step) -> None:
        inputs = [self._read(name, step) for name in step.proto.input]
        node = Node(step, self, inputs)
        results = node.run()
        for name, value in zip(step.proto.output, results):
            if name:
                self.values[name] = known(value)
                if node.result_format in FORMATS:
                    self.formats[name] = node.result_format


class Node:
    """What a rule knows of its node. ``xp`` computes: NumPy on values that are all known."""

    def __init__(self, step: Step, scope: Scope, inputs: Sequence[Value]) -> None:
        self.step = step
        self.scope = scope
        self.inputs = inputs
        self.version = step.version
        self.outputs = [bool(name) for name in step.proto.output]
        self.formats = [scope.formats.get(name, 0) for name in step.proto.input]
        self.result_format = self.formats[0] \
            if self.formats and step.proto.op_type in _KEEP_FORMAT else 0
        arrays = [x for x in inputs if x is not None]
        self.known = all(isinstance(x, np.ndarray) for x in arrays)
        self.xp: Any = np if self.known else jnp

    def run(self) -> list[Value]:
        """Return the results of the node."""
        step = self.step
        if step.row is None:
            body = step.body or self._typed_body()
            scope = Scope(self.scope.call, iterations=self.scope.iterations)
            inputs = [*self.inputs, *[None] * (len(body.inputs) - len(self.inputs))]
            scope.formats |= {name: t for name, t in zip(body.inputs, self.formats) if t}
            requested = self.outputs + [False] * (len(body.outputs) - len(self.outputs))
            results = scope.run(body, inputs, requested)
            self.result_format = scope.formats.get(body.outputs[0], 0)
            return results
        unread = set(step.attributes) - set(attributes_of(step.row.rule))
        if unread:
            raise ModelError(f"fnx computes no {step.proto.op_type} with the attribute"
                             f"{'s' * (len(unread) > 1)} {', '.join(sorted(unread))} ({step})")
        inputs = [self.constant(i) if i in step.row.static and x is not None else x
                  for i, x in enumerate(self.inputs)]
        try:
            with np.errstate(all="ignore"):
                result = step.row.rule(self, *inputs, **step.attributes)
        except FnxError as e:
            if not isinstance(e, ModelError):
                e.add_note(f"in {step}")
            raise
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError,
                ValueError) as e:  # of NumPy and Python: attributes or constants that do not fit
            raise self.refuse(f"{type(e).__name__}: {e}") from e
        return list(result) if isinstance(result, tuple) else [result]

    def constant(self, i: int) -> np.ndarray[Any, Any]:
        """Return the value of an input that must be known, in NumPy.

        Raises:
            ModelError: it depends on data that is traced.
        """
        return self.read(self.inputs[i], f"its input {self.step.proto.input[i]!r}")

    def read(self, x: Value, what: str) -> np.ndarray[Any, Any]:
        """Return a value in NumPy. Raises: ModelError: it is traced."""
        try:
            return np.asarray(x)
        except TracedValueError:
            raise ModelError(
                f"{self.step} has results whose shapes depend on {what}, which is traced",
                hint="call the model outside of jit, vmap and grad, or make the value a constant "
                     "of the model: pass it as NumPy data that no transform traces") from None

    def constant_or_none(self, x: Value) -> np.ndarray[Any, Any] | None:
        """Return a value in NumPy, or None if it is traced."""
        try:
            return np.asarray(x)
        except TracedValueError:
            return None

    def subgraph(self, graph: Graph, inputs: Sequence[Value], *iteration: Any) -> list[Value]:
        """Return the results of a graph of an attribute, which reads the values around it; of the
        body of a loop in this iteration."""
        scope = Scope(self.scope.call, self.scope, (*self.scope.iterations, *iteration))
        return scope.run(graph, inputs)

    def key(self, seed: float | None) -> Array:
        """Return the random key of the node: by its seed, else by the key of the call."""
        if seed is not None:
            base = random.key(np.float32(seed).view(np.int32).item())
        elif self.scope.call.key is not None:
            base = self.scope.call.key
        else:
            raise ModelError(f"expected key=, as {self.step} draws random numbers without a seed",
                             hint="pass key=fnx.random.key(0) to the model")
        for iteration in self.scope.iterations:
            base = random.fold_in(base, iteration)
        return random.fold_in(base, self.step.number)

    def refuse(self, what: str, hint: str = "") -> ModelError:
        """Return the error for what fnx cannot compute."""
        return ModelError(f"{self.step}: {what}", hint=hint)

    def _typed_body(self) -> Graph:
        """Return the function of an operator whose body depends on the types of its inputs."""
        step = self.step
        schema = find_schema(step.proto, step.version)
        types = [b"" if x is None else helper.make_tensor_type_proto(
            t or elem_type_of(x), [d if type(d) is int else str(d) for d in x.shape]
            ).SerializeToString() for x, t in zip(self.inputs, self.formats)]
        version = max([v for v in schema.context_dependent_function_opset_versions
                       if v <= step.version] or [step.version])
        text = schema.get_context_dependent_function_with_opset_version(
            version, step.proto.SerializeToString(), types)
        builder = self.scope.call.builder
        proto = lazy_import("onnx").FunctionProto.FromString(text)
        body = builder.function(proto, default_attributes(schema) | dict(step.attributes))
        builder.raise_unknown()
        return body


def check_dtype(elem_type: int, x: Any, name: str) -> Any:
    """Return an input of a call in the dtype that the model declares.

    Raises:
        ModelError: it has another kind of elements.
    """
    t = dtype_of(elem_type)
    if isinstance(x, np.ndarray | np.generic) and elem_type in FORMATS:
        return jnp.asarray(np.asarray(x).astype(t.np), t)
    array = jnp.asarray(x, x.dtype if isinstance(x, np.ndarray | np.generic) else None)
    source = type_of(array)
    is_default = array.weak and (t.is_inexact or not source.is_inexact)
    same = {"uint": "int"}
    kinds = [same.get(kind, kind) for kind in (source.kind, t.kind)]
    if kinds[0] != kinds[1] and not is_default:
        raise ModelError(f"expected {t} for the input {name!r}, got {source}",
                         hint=f"convert it with .astype({t.name!r})")
    return jnp.asarray(x, t)


def input_shapes_agree(shapes: Mapping[str, tuple[Sequence[Any], tuple[int, ...]]]) -> None:
    """Check the shapes of a call by the declared ones: numbers, and names that mean one size.

    Raises:
        ModelError: a shape is another one, or a name has two sizes.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, (declared, shape) in shapes.items():
        fits = len(declared) == len(shape) and all(
            d in (None, "") or isinstance(d, str) or d == n for d, n in zip(declared, shape))
        if not fits:
            dims = ", ".join(str(d) if d not in (None, "") else "?" for d in declared)
            raise ModelError(f"expected the shape ({dims}) for the input {name!r}, got {shape}")
        for d, n in zip(declared, shape):
            if isinstance(d, str) and d and sizes.setdefault(d, (n, name))[0] != n:
                raise ModelError(f"expected one size for the dimension {d!r}, got "
                                 f"{sizes[d][0]} at the input {sizes[d][1]!r} and {n} at {name!r}")
