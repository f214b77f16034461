"""An ONNX model: ``ai.onnx`` of an opset that runtimes read, and no other domain.

Arguments are ``x0, x1, ...``, results ``y0, y1, ...``; captured arrays are initializers. A sum of
products is an Einsum, an indexed read a Gather; calls are inlined. Ops without a row are refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.numpy_semantics import const_value
from fnx.core.ir.op import Op
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import ArgumentError
from fnx.core.support.process import lazy_import
from fnx.exporting.graph_file import ExportedGraph

helper = lazy_import("onnx.helper")
numpy_helper = lazy_import("onnx.numpy_helper")

OPSET, IR_VERSION = 21, 10
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

_NAMES: dict[Op, str] = {
    ops.NEG: "Neg", ops.ABS: "Abs", ops.SQRT: "Sqrt", ops.EXP: "Exp", ops.LOG: "Log",
    ops.SIN: "Sin", ops.COS: "Cos", ops.TAN: "Tan", ops.ATAN: "Atan", ops.ASIN: "Asin",
    ops.TANH: "Tanh", ops.FLOOR: "Floor", ops.CEIL: "Ceil", ops.ROUND: "Round", ops.ERF: "Erf",
    ops.ADD: "Add", ops.SUB: "Sub", ops.MUL: "Mul", ops.DIV: "Div", ops.IDIV: "Div",
    ops.POW: "Pow", ops.MAX: "Max", ops.MIN: "Min", ops.CMPLT: "Less",
    ops.CMPLE: "LessOrEqual", ops.CMPEQ: "Equal", ops.WHERE: "Where"}
_ON_BOOL = {ops.AND: "And", ops.OR: "Or", ops.XOR: "Xor", ops.NOT: "Not"}
_ON_INTEGERS = {ops.AND: "BitwiseAnd", ops.OR: "BitwiseOr", ops.XOR: "BitwiseXor",
                ops.NOT: "BitwiseNot"}
_REDUCTIONS = {ops.ADD: "ReduceSum", ops.MUL: "ReduceProd", ops.MAX: "ReduceMax",
               ops.MIN: "ReduceMin"}
_ON_BOOL_REDUCTIONS = {ops.AND: "ReduceMin", ops.OR: "ReduceMax"}
_ALIASES = {ops.STOP_GRADIENT, ops.BARRIER}


def written(graph: ExportedGraph) -> dict[str, bytes]:
    """Return the file of the model."""
    model = _Model()
    inputs = [f"x{i}" for i in range(len(graph.ins))]
    weights = [model.constant(value) for value in graph.consts]
    results = model.function(graph.function, inputs + weights)
    outputs = [model.node("Identity", name, result=f"y{i}") for i, name in enumerate(results)]
    nodes, constants = model.needed(outputs)
    proto = _graph(graph.name, nodes, inputs, graph.ins, outputs, graph.outs, initializer=[
        numpy_helper.from_array(value, name) for name, value in constants.items()])
    model_proto = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)],
                                    ir_version=IR_VERSION, producer_name="fnx")
    return {f"{graph.name}.onnx": model_proto.SerializeToString()}


def _type(t: DType) -> int:
    if t.storage is not None or t.is_complex:
        raise ArgumentError(f"expected types that NumPy and ONNX have, got {t}")
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(t.np)))


class _Model:
    """The nodes and initializers of a graph while it is written.

    Bodies of loops and branches are graphs of their own, and read the names around them.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.names: dict[UOp, Any] = {}  # of the values of the function that is written
        self._count = itertools.count()

    def node(self, op: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its result."""
        result = result or self.new_name()
        self.nodes.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def constant(self, value: Any) -> str:
        name = f"w{next(self._count)}"
        self.constants[name] = np.asarray(value)
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.asarray(values, np.int64))

    def function(self, function: UOp, inputs: Sequence[str]) -> list[str]:
        """Add the nodes of a FUNCTION, and return the names of its results."""
        outer, self.names = self.names, dict[UOp, Any]()
        names = self.names
        for u in toposort(function.src):
            if u.op is ops.PARAM:
                names[u] = inputs[u.arg.slot]
            elif u.op is not ops.FUNCTION:
                names[u] = self._value(u, [names.get(s, "") for s in u.src])
        self.names = outer
        return [names[u] for u in function.src]

    def needed(self, results: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
        """Return the nodes and constants that results depend on."""
        read, nodes = set(results), []
        for node in reversed(self.nodes):
            if read & set(node.output):
                nodes.append(node)
                read |= set(_reads(node))
        return nodes[::-1], {n: x for n, x in self.constants.items() if n in read}

    def _value(self, u: UOp, src: list[Any]) -> Any:
        if u.op in (ops.CALL, ops.CUSTOM):
            body = accessors.bodies(u)[0]
            operands = src[len(u.src) - len(accessors.operands(u)):]
            return self.function(body, operands)
        if u.op is ops.GETTUPLE:
            return src[0][u.arg]
        if u.op in _ALIASES:
            return src[0]
        if u.op is ops.ARG_PAIR:
            return tuple(src)
        row = _ROWS.get(u.op, _elementwise if u.op in ops.ELEMENTWISE else None)
        if row is None:
            raise ArgumentError(f"expected ops that ONNX has, got {u.op.name}", loc=u.loc,
                                hint='export it to="fnx"')
        return row(self, u, src)

    def cast(self, x: str, t: DType) -> str:
        return self.node("Cast", x, to=_type(t))

    def scalar(self, value: Any, t: DType) -> str:
        return self.constant(np.asarray(value, t.np))


    def new_name(self) -> str:
        return f"t{next(self._count)}"

    def nodes_of(self, op: str, inputs: Sequence[str], count: int, **attributes: Any
                 ) -> list[str]:
        """Add a node with several results, and return their names."""
        results = [self.new_name() for _ in range(count)]
        self.nodes.append(helper.make_node(op, inputs, results, **attributes))
        return results

    def body(self, write: Callable[[], Sequence[str]], inputs: Sequence[str],
             parameters: Sequence[Any], results: Sequence[Any]) -> Any:
        """Return what ``write`` adds as a graph of its own, which reads outer names, too."""
        outer, self.nodes = self.nodes, []
        outputs = [self.node("Identity", r) for r in write()]
        nodes, self.nodes = self.nodes, outer
        return _graph("body", nodes, inputs, parameters, outputs, results)


def _graph(name: str, nodes: Sequence[Any], inputs: Sequence[str], parameters: Sequence[Any],
           outputs: Sequence[str], results: Sequence[Any], **more: Any) -> Any:
    """Return a graph; ``parameters`` and ``results`` have its dtypes and shapes."""
    return helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(n, _type(a.dtype), a.shape)
         for n, a in zip(inputs, parameters, strict=True)],
        [helper.make_tensor_value_info(n, _type(a.dtype), a.shape)
         for n, a in zip(outputs, results, strict=True)], **more)


def _reads(node: Any) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _reads(inner)
        yield from [o.name for o in attribute.g.output]


Row = Callable[[_Model, UOp, list[Any]], Any]


def _before_expand(m: _Model, nodes: Sequence[UOp]) -> tuple[list[UOp], list[str]]:
    """Return operands as they are before they are expanded, as operators of ONNX broadcast."""
    sources = [n.src[0] if n.op is ops.EXPAND else n for n in nodes]
    return sources, [m.names[n] for n in sources]


def _elementwise(m: _Model, u: UOp, src: list[Any]) -> Any:
    sources, names = _before_expand(m, u.src)
    if np.broadcast_shapes(*[s.shape for s in sources]) == u.shape:
        src = list(names)
    if u.op is ops.WHERE and u.dtype.is_bool:  # runtimes have no Where of bools
        return m.node("Or", m.node("And", *src[:2]),
                      m.node("And", m.node("Not", src[0]), src[2]))
    kind = u.src[0].dtype
    name = _NAMES.get(u.op) or (_ON_BOOL if kind.is_bool else _ON_INTEGERS).get(u.op)
    if name is None:
        if u.op not in _COMPOSED:
            raise ArgumentError(f"expected ops that ONNX has, got {u.op.name} of {kind}",
                                loc=u.loc, hint='export it to="fnx"')
        return _COMPOSED[u.op](m, u, src)
    return m.node(name, *src)


def _log1p(m: _Model, u: UOp, src: list[Any]) -> str:
    return m.node("Log", m.node("Add", src[0], m.scalar(1, u.dtype)))


def _log_add_exp(m: _Model, u: UOp, src: list[Any]) -> str:
    distance = m.node("Neg", m.node("Abs", m.node("Sub", *src)))
    return m.node("Add", m.node("Max", *src), m.node("Softplus", distance))


_COMPOSED: dict[Op, Row] = {
    ops.CAST: lambda m, u, src: m.cast(src[0], u.dtype),
    ops.CMPNE: lambda m, u, src: m.node("Not", m.node("Equal", *src)),
    ops.REM: lambda m, u, src: m.node("Mod", *src, fmod=1),
    ops.MULACC: lambda m, u, src: m.node("Add", m.node("Mul", *src[:2]), src[2]),
    ops.TRUNC: lambda m, u, src: m.node("Mul", m.node("Sign", src[0]),
                                        m.node("Floor", m.node("Abs", src[0]))),
    ops.ERFC: lambda m, u, src: m.node("Sub", m.scalar(1, u.dtype), m.node("Erf", src[0])),
    ops.EXPM1: lambda m, u, src: m.node("Sub", m.node("Exp", src[0]), m.scalar(1, u.dtype)),
    ops.LOG1P: _log1p, ops.LOGADDEXP: _log_add_exp}


def _pad(m: _Model, u: UOp, src: list[Any]) -> str:
    widths = m.ints(*[a for a, _ in u.arg], *[b for _, b in u.arg])
    return m.node("Pad", src[0], widths, src[1])


def _shrink(m: _Model, u: UOp, src: list[Any]) -> str:
    return m.node("Slice", src[0], m.ints(*[a for a, _ in u.arg]), m.ints(*[b for _, b in u.arg]))


def _flip(m: _Model, u: UOp, src: list[Any]) -> str:
    count, end = len(u.arg), np.iinfo(np.int64).min
    return m.node("Slice", src[0], m.ints(*[-1] * count), m.ints(*[end] * count),
                  m.ints(*u.arg), m.ints(*[-1] * count))


def _unfold(m: _Model, u: UOp, src: list[Any]) -> str:
    w, size = u.arg, u.shape[u.arg.offset]
    front = _moved(m, src[0], len(u.shape), (w.axis, w.offset))
    at = np.arange(w.length)[:, None] * w.stride + np.arange(size) * w.dilation
    count = u.src[0].shape[w.offset]
    flat = m.constant(at * count + np.arange(size))
    rest = [d for i, d in enumerate(u.shape) if i not in (w.axis, w.offset)]
    rows = m.node("Reshape", front, m.ints(-1, *rest))
    return _moved_back(m, m.node("Gather", rows, flat, axis=0), len(u.shape), (w.axis, w.offset))


def _order(rank: int, axes: Sequence[int]) -> list[int]:
    return [*axes, *[i for i in range(rank) if i not in axes]]


def _moved(m: _Model, x: str, rank: int, axes: Sequence[int]) -> str:
    order = _order(rank, axes)
    return x if order == list(range(rank)) else m.node("Transpose", x, perm=order)


def _moved_back(m: _Model, x: str, rank: int, axes: Sequence[int]) -> str:
    order = [int(i) for i in np.argsort(_order(rank, axes))]
    return x if order == list(range(rank)) else m.node("Transpose", x, perm=order)


def _gather(m: _Model, u: UOp, src: list[Any]) -> str:
    x, axes = u.src[0], u.arg.axes
    front = _moved(m, src[0], len(x.shape), axes)
    index = [m.node("Max", m.node("Min", m.node("Cast", i, to=_INT64), m.ints(x.shape[a] - 1)),
                    m.ints(0)) for i, a in zip(src[1:], axes)]
    if len(axes) == 1:
        shaped = m.node("Reshape", index[0], m.ints(*u.src[1].shape))
        return m.node("Gather", front, shaped, axis=0)
    columns = [m.node("Reshape", i, m.ints(*s.shape, 1)) for i, s in zip(index, u.src[1:])]
    return m.node("GatherND", front, m.node("Concat", *columns, axis=-1))


_INT64 = 7  # of TensorProto


def _is_contraction(product: UOp, axes: Sequence[int]) -> bool:
    """Return whether an operand is repeated, and none of the summed axes is repeated in both."""
    a, b = (s.src[0].shape if s.op is ops.EXPAND else s.shape for s in product.src)
    return product.dtype.is_float and len(product.shape) <= len(_LETTERS) and \
        (a != product.shape or b != product.shape) and \
        all(product.shape[i] in (a[i], b[i]) for i in axes)


def _sum_of_products(m: _Model, u: UOp) -> str:
    """Return an Einsum. An axis along which an operand is repeated has no letter in it."""
    product, terms, inputs = u.src[0], [], []
    axes = range(len(product.shape))
    for source, name in zip(*_before_expand(m, product.src)):
        used = [i for i in axes if source.shape[i] == product.shape[i] != 1]
        terms.append("".join(_LETTERS[i] for i in used))
        inputs.append(name if len(used) == len(axes) else m.node(
            "Reshape", name, m.ints(*[source.shape[i] for i in used]), allowzero=1))
    out = "".join(_LETTERS[i] for i in axes
                  if i not in u.arg.axes and any(_LETTERS[i] in t for t in terms))
    y = m.node("Einsum", *inputs, equation=f"{terms[0]},{terms[1]}->{out}")
    return y if len(out) == len(u.shape) else \
        m.node("Reshape", y, m.ints(*u.shape), allowzero=1)


def _reduce(m: _Model, u: UOp, src: list[Any]) -> str:
    x, monoid, axes = u.src[0], u.arg.monoid, m.ints(*u.arg.axes)
    if not u.arg.axes:
        return str(src[0])
    if x.op is ops.MUL and monoid is ops.ADD and _is_contraction(x, u.arg.axes):
        return _sum_of_products(m, u)
    if x.op is ops.ARG_PAIR and monoid in (ops.MAX, ops.MIN):  # the least index of the extreme
        keys, index = src[0]
        extreme = m.node(_REDUCTIONS[monoid], keys, axes, keepdims=1)
        chosen = m.node("Where", m.node("Equal", keys, extreme), index,
                        m.scalar(u.dtype.limits[1], u.dtype))
        return m.node("ReduceMin", chosen, axes, keepdims=0)
    if monoid in _ON_BOOL_REDUCTIONS and x.dtype.is_bool:
        whole = m.node("Cast", src[0], to=_INT64)
        return m.cast(m.node(_ON_BOOL_REDUCTIONS[monoid], whole, axes, keepdims=0), u.dtype)
    if monoid not in _REDUCTIONS or x.op is ops.ARG_PAIR:
        raise ArgumentError(f"expected reductions that ONNX has, got {monoid.name}", loc=u.loc)
    return m.node(_REDUCTIONS[monoid], src[0], axes, keepdims=0)


# ---- loops and branches -------------------------------------------------------------------------


def _scan(m: _Model, u: UOp, src: list[Any]) -> list[str]:
    arg, operands, names = u.arg, list(u.src[1:]), src[1:]
    start = arg.n_consts + arg.n_carries
    rows = [build.const(0, x.dtype, x.shape[1:]) for x in operands[start:]]
    inputs = [m.new_name() for _ in names[arg.n_consts:]]
    xs, declared = names[start:], inputs
    parameters = [*operands[arg.n_consts:start], *rows]
    if not xs:  # ONNX wants one
        xs, declared = [m.constant(np.arange(arg.length))], [*inputs, m.new_name()]
        parameters.append(build.const(0, dtypes.int64))
    body = m.body(lambda: m.function(u.src[0], [*names[:arg.n_consts], *inputs]), declared,
                  parameters, u.src[0].src)
    ys = len(arg.outs) - arg.n_carries
    back = {"scan_input_directions": [1] * len(xs)} if arg.reverse else {}
    back |= {"scan_output_directions": [1] * ys} if arg.reverse and ys else {}
    return m.nodes_of("Scan", [*names[arg.n_consts:start], *xs], len(arg.outs), body=body,
                      num_scan_inputs=len(xs), **back)


def _while(m: _Model, u: UOp, src: list[Any]) -> list[str]:
    condition, function, n = u.src[0], u.src[1], u.arg.n_consts
    consts, carries, operands = src[2:2 + n], src[2 + n:], u.src[2 + n:]
    inputs = [m.new_name() for _ in carries]
    go = build.const(True, dtypes.bool_)

    def write() -> list[str]:
        results = m.function(function, [*consts, *inputs])
        return [*m.function(condition, [*consts, *results]), *results]

    body = m.body(write, [m.new_name(), m.new_name(), *inputs],
                  [build.const(0, dtypes.int64), go, *operands], [go, *operands])
    first = m.function(condition, [*consts, *carries])
    return m.nodes_of("Loop", ["", *first, *carries], len(carries), body=body)


def _cond(m: _Model, u: UOp, src: list[Any]) -> list[str]:
    op = OpBodies(u)
    which = m.names[op.selector[0]] if op.selector else ""
    operands = [m.names[s] for s in op.operands]

    def branch(i: int) -> list[str]:
        if i == len(op.steps) - 1:
            return m.function(op.steps[i], operands)
        results = op.steps[i].src
        is_i = m.node("LessOrEqual", m.node("Cast", which, to=_INT64),
                      m.constant(np.asarray(i, np.int64)))
        return m.nodes_of(
            "If", [is_i], len(results),
            then_branch=m.body(lambda: m.function(op.steps[i], operands), [], [], results),
            else_branch=m.body(lambda: branch(i + 1), [], [], results))

    return branch(0)


_ROWS: dict[Op, Row] = {
    ops.CONST: lambda m, u, src: m.constant(const_value(u)),
    ops.IOTA: lambda m, u, src: m.constant(np.arange(u.arg, dtype=u.dtype.np)),
    ops.RESHAPE: lambda m, u, src: m.node("Reshape", src[0], m.ints(*u.shape), allowzero=1),
    ops.PERMUTE: lambda m, u, src: m.node("Transpose", src[0], perm=list(u.arg)),
    ops.EXPAND: lambda m, u, src: m.node("Expand", src[0], m.ints(*u.shape)),
    ops.CONCAT: lambda m, u, src: m.node("Concat", *src, axis=u.arg),
    ops.PAD: _pad, ops.SHRINK: _shrink, ops.FLIP: _flip, ops.UNFOLD: _unfold,
    ops.GATHER: _gather, ops.REDUCE: _reduce, ops.SCAN: _scan, ops.WHILE: _while,
    ops.COND: _cond}
