"""The nodes of a checked model: each with its row of the op table, or the body of its function.

Everything is resolved when the file is loaded, so that all unknown operators are named at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fnx.core.support.errors import ModelError
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.onnx.registry import OpRow, find_row
from fnx.onnx.tensors import TensorReader
from fnx.onnx.types import Value

onnx = lazy_import("onnx")
defs = lazy_import("onnx.defs")

_ATTRIBUTE_FIELDS = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings",
                     13: "tp"}
_DOMAINS = ("", "ai.onnx")
FIRST_OPSET = 7  # the rows are written for this opset and later ones


class Graph(Record):
    """A graph or the body of a function: names of its inputs and results, constants, nodes."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Value]
    constant_types: Mapping[str, int]
    nodes: tuple[Step, ...]


class Step(Record):
    """A node. ``row`` is None for a function, whose ``body`` may depend on types of its inputs."""

    proto: Any
    number: int
    version: int
    row: OpRow | None
    attributes: Mapping[str, Any]
    body: Graph | None = None

    def __str__(self) -> str:
        name = self.proto.name or ", ".join(filter(None, self.proto.output))
        return f"{self.proto.op_type} node {name!r}"


class GraphBuilder:
    """Builds the graphs of a model, and collects what fnx cannot compute."""

    def __init__(self, model: Any, tensors: TensorReader) -> None:
        self.tensors = tensors
        self.versions = {item.domain: item.version for item in model.opset_import}
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.unknown: dict[str, None] = {}
        self.open_functions: list[str] = []
        self.count = 0

    def raise_unknown(self) -> None:
        """Raise an error that names all that fnx cannot compute, if there is any.

        Raises:
            ModelError: there is.
        """
        if self.unknown:
            raise ModelError(f"fnx cannot compute {', '.join(self.unknown)}",
                             hint="define operators of other domains as functions of the model")

    def graph(self, proto: Any) -> Graph:
        """Return a graph of the model, or of an attribute."""
        return self._graph(proto, {})

    def _graph(self, proto: Any, bound: Mapping[str, Any]) -> Graph:
        if len(proto.sparse_initializer):
            self.unknown["sparse initializers"] = None
        return Graph(proto.name, tuple([i.name for i in proto.input]),
                     tuple([o.name for o in proto.output]),
                     {t.name: self.tensors.value(t) for t in proto.initializer},
                     {t.name: t.data_type for t in proto.initializer},
                     tuple(self._steps(proto.node, self.versions, bound)))

    def function(self, proto: Any, attributes: Mapping[str, Any]) -> Graph:
        """Return the body of a function for the attributes of a node that calls it."""
        name = f"{proto.domain}.{proto.name}"
        if name in self.open_functions:
            raise ModelError("expected functions that end, got one that calls itself: "
                             + " -> ".join([*self.open_functions, name]))
        self.open_functions.append(name)
        versions = {"": defs.onnx_opset_version()} | (
            {item.domain: item.version for item in proto.opset_import} or self.versions)
        bound = {a.name: self._attribute(a, {}) for a in proto.attribute_proto} | dict(attributes)
        steps = tuple(self._steps(proto.node, versions, bound))
        self.open_functions.pop()
        return Graph(proto.name, tuple(proto.input), tuple(proto.output), {}, {}, steps)

    def _steps(self, nodes: Iterable[Any], versions: Mapping[str, int],
               bound: Mapping[str, Any]) -> Iterator[Step]:
        for proto in nodes:
            self.count += 1
            attributes = {}
            for a in proto.attribute:
                if not a.ref_attr_name:
                    attributes[a.name] = self._attribute(a, bound)
                elif bound.get(a.ref_attr_name) is not None:
                    attributes[a.name] = bound[a.ref_attr_name]
            yield self._step(proto, attributes, versions)

    def _step(self, proto: Any, attributes: Mapping[str, Any], versions: Mapping[str, int]
              ) -> Step:
        key = (proto.domain, proto.op_type)
        version = next((versions[d] for d in {proto.domain: 0, **dict.fromkeys(_DOMAINS)}
                        if d in versions and (d == proto.domain or proto.domain in _DOMAINS)), 0)
        if key in self.functions:
            return Step(proto, self.count, version, None, attributes,
                        self.function(self.functions[key], attributes))
        row = find_row(proto.op_type, version) if proto.domain in _DOMAINS else None
        body: Graph | None = None
        if row is None:
            schema = find_schema(proto, version)
            if schema is None or not (
                    schema.has_function or schema.has_context_dependent_function):
                self.unknown[f"{proto.domain or 'ai.onnx'}.{proto.op_type} of opset {version}"] \
                    = None
            elif schema.has_function:
                body = self.function(_latest_body(schema, version),
                                     default_attributes(schema) | dict(attributes))
        return Step(proto, self.count, version, row, attributes, body)

    def _attribute(self, a: Any, bound: Mapping[str, Any]) -> Any:
        """Return the value of an attribute: numbers, texts, a constant or a Graph."""
        field = _ATTRIBUTE_FIELDS.get(a.type)
        if field is None:
            self.unknown[f"attribute {a.name!r} of type {a.type}"] = None
            return None
        value = getattr(a, field)
        if field == "t":
            return self.tensors.value(value), value.data_type
        if field == "g":
            return self._graph(value, bound)
        if field == "s":
            return value.decode("utf-8", "replace")
        if field == "strings":
            return [text.decode("utf-8", "replace") for text in value]
        return list(value) if field in ("floats", "ints") else value


def find_schema(proto: Any, version: int) -> Any:
    """Return the schema of a node's operator, or None if ONNX has none."""
    if not defs.has(proto.op_type, version, "" if proto.domain in _DOMAINS else proto.domain):
        return None
    return defs.get_schema(proto.op_type, version, proto.domain)


def default_attributes(schema: Any) -> dict[str, Any]:
    """Return the defaults of the attributes of an operator."""
    values = {name: a.default_value for name, a in schema.attributes.items()
              if a.default_value.type}
    return {name: onnx.helper.get_attribute_value(a) for name, a in values.items()}


def _latest_body(schema: Any, version: int) -> Any:
    """Return the function of an operator, for the latest opset that is not newer."""
    versions = [v for v in schema.function_opset_versions if v <= version]
    text = schema.get_function_with_opset_version(
        max(versions or schema.function_opset_versions))
    return onnx.FunctionProto.FromString(text)
