"""A file of checked IR: a FUNCTION, what it closes over, the trees of its arguments and results.

    fnx graph 1\\n   SHA-256 of the rest, 32 bytes   length of the text, 8 bytes   text   arrays

The text is JSON: nodes in an order in which operands come first, each [op, dtype, operands, arg].
An arg is a number, a string, a tuple, the name of an op or a dtype, or one of the records of
core/op_args.py and core/tiling.py by its name; nothing else can be written there, or read. What is
read is checked against the spec of the tensor level before anybody uses it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes, op_args, ops, tiling
from fnx.core.array import tree
from fnx.core.array.aval import Aval
from fnx.core.dtypes import DType, NDArray
from fnx.core.errors import ArgumentError, CheckpointError, FnxError
from fnx.core.levels import spec
from fnx.core.op import Op
from fnx.core.record import Record
from fnx.core.uop import UOp, toposort

MAGIC = b"fnx graph 1\n"
_DIGEST, _LENGTH = 32, 8
_RECORDS: dict[str, type[Record]] = {
    name: value for module in (op_args, tiling) for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Record) and value is not Record}
_DTYPES: dict[str, DType] = {
    t.name: t for t in vars(dtypes).values() if isinstance(t, DType) and t.lanes == 1}


class ExportedGraph(Record):
    """What is exported.

    Attributes:
        name: of the function.
        function: its FUNCTION, over the leaves of its arguments and then ``consts``.
        consts: what it closes over, as NumPy has it.
        ins, in_tree: its arguments.
        outs, out_tree: its results.
    """

    name: str
    function: UOp
    consts: Sequence[NDArray]
    ins: Sequence[Aval]
    in_tree: tree.TreeDef
    outs: Sequence[Aval]
    out_tree: tree.TreeDef


def constants(graph: ExportedGraph) -> list[Aval]:
    """What ``consts`` are."""
    params = {n.arg.slot: n for n in toposort(graph.function.src) if n.op is ops.PARAM}
    return [Aval(value.shape, _own(params, len(graph.ins) + i, value))
            for i, value in enumerate(graph.consts)]


def _own(params: dict[int, UOp], slot: int, value: NDArray) -> DType:
    return params[slot].dtype if slot in params else dtypes.as_dtype(value.dtype)


# ---- writing ------------------------------------------------------------------------------------


def written(graph: ExportedGraph) -> dict[str, bytes]:
    """The file."""
    nodes = toposort([graph.function], into_functions=True)
    number = {node: i for i, node in enumerate(nodes)}
    arrays = [np.ascontiguousarray(value).tobytes() for value in graph.consts]
    types = _types(graph)
    text = json.dumps({
        "name": graph.name,
        "nodes": [[n.op.name, n.dtype.name, [number[s] for s in n.src], _encoded(n.arg)]
                  for n in nodes],
        "ins": [_aval(a) for a in graph.ins], "in_tree": _shown(graph.in_tree),
        "outs": [_aval(a) for a in graph.outs], "out_tree": _shown(graph.out_tree),
        "consts": [[t.name, list(v.shape)] for t, v in zip(types, graph.consts)],
    }, separators=(",", ":")).encode()
    rest = len(text).to_bytes(_LENGTH, "little") + text + b"".join(arrays)
    return {f"{graph.name}.fnx": MAGIC + hashlib.sha256(rest).digest() + rest}


def _types(graph: ExportedGraph) -> list[DType]:
    return [aval.dtype for aval in constants(graph)]


def _aval(a: Aval) -> list[Any]:
    return [list(a.shape), a.dtype.name, a.weak]


def _encoded(value: Any) -> Any:
    """An arg as JSON: what is no number, string or None is a list with its kind in front."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return ["float", value.hex()]
    if type(value) is tuple:
        return ["tuple", *map(_encoded, value)]
    if isinstance(value, Op):
        return ["op", value.name]
    if isinstance(value, DType):
        return ["dtype", value.name]
    if isinstance(value, Record) and value.__class__ in _RECORDS.values():
        if isinstance(value, op_args.Custom):
            value = value.replace(lanes=None)
        return [type(value).__name__, *[_encoded(field) for field in value]]
    raise ArgumentError(f"expected a graph that can be written, got {value!r} in it",
                        hint="export a function without it")


_PLAIN: dict[Any, str] = {tuple: "tuple", list: "list", dict: "dict"}


def _shown(treedef: tree.TreeDef) -> Any:
    """A tree of tuples, lists, dicts and None as JSON; leaves are numbers."""
    def of(value: Any) -> Any:
        if value is None or type(value) is int:
            return value
        if type(value) is dict:
            if not all(type(k) is str for k in value):
                raise ArgumentError(f"expected dicts with names as keys, got {sorted(value)!r}",
                                    hint="use strings")
            return ["dict", *[[k, of(v)] for k, v in value.items()]]
        kind = _PLAIN.get(type(value))
        if kind is None:
            raise ArgumentError(
                f"expected arguments and results that are tuples, lists, dicts and arrays, got "
                f"{type(value).__name__}", hint="take and return one of these")
        return [kind, *map(of, value)]
    return of(tree.unflatten(treedef, range(treedef.num_leaves)))


# ---- reading ------------------------------------------------------------------------------------


def read(data: bytes) -> ExportedGraph:
    """The graph of a file.

    Raises:
        CheckpointError: says what was expected, and what is there.
    """
    if not data.startswith(MAGIC):
        raise CheckpointError(f"expected a file that begins with {MAGIC!r}, got "
                              f"{data[:len(MAGIC)]!r}", hint="export it with this version of fnx")
    digest, rest = data[len(MAGIC):len(MAGIC) + _DIGEST], data[len(MAGIC) + _DIGEST:]
    if hashlib.sha256(rest).digest() != digest:
        raise CheckpointError(f"expected bytes with the digest {digest.hex()[:16]}..., got others: "
                              "the file is damaged", hint="copy or export it again")
    length = int.from_bytes(rest[:_LENGTH], "little")
    try:
        return _graph(json.loads(rest[_LENGTH:_LENGTH + length]), rest[_LENGTH + length:])
    except CheckpointError:
        raise
    except FnxError as why:
        raise CheckpointError(f"expected a graph, got one that is none: {why.message}") from None
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError, RecursionError,
            OverflowError) as why:
        raise CheckpointError(f"expected a graph, got {type(why).__name__}: {why}") from None


def _graph(fields: dict[str, Any], arrays: bytes) -> ExportedGraph:
    nodes: list[UOp] = []
    for op, dtype, src, arg in fields["nodes"]:
        if not all(type(i) is int and 0 <= i < len(nodes) for i in src):
            raise CheckpointError(f"expected operands in front of node {len(nodes)}, got {src}")
        nodes.append(UOp(_op(op), _DTYPES[dtype], tuple([nodes[i] for i in src]), _decoded(arg)))
    function = nodes[-1]
    if function.op is not ops.FUNCTION:
        raise CheckpointError(f"expected a FUNCTION, got {function.op}")
    for node in nodes:
        if node.op in (ops.BUFFER, ops.LEAF, ops.HOST):
            raise CheckpointError(f"expected a closed graph, got {node.op}")
    spec.check([function], "tensor")
    ins, outs = ([Aval(tuple(s), _DTYPES[t], bool(w)) for s, t, w in fields[k]]
                 for k in ("ins", "outs"))
    consts, at = [], 0
    for name, shape in fields["consts"]:
        t = _DTYPES[name]
        nbytes = t.itemsize * math.prod(shape)
        consts.append(np.frombuffer(arrays[at:at + nbytes], t.np).reshape(shape))
        at += nbytes
    if at != len(arrays):
        raise CheckpointError(f"expected {at} bytes of arrays, got {len(arrays)}")
    graph = ExportedGraph(str(fields["name"]), function, consts, ins, _tree(fields["in_tree"]),
                          outs, _tree(fields["out_tree"]))
    _check_signature(graph)
    return graph


def _check_signature(graph: ExportedGraph) -> None:
    """That the FUNCTION takes and gives what the file says."""
    given = [*graph.ins, *constants(graph)]
    params = [n for n in toposort(graph.function.src) if n.op is ops.PARAM]
    if graph.function.arg.n_params != len(given) or \
            any((n.arg.shape, n.dtype) != given[n.arg.slot][:2] for n in params):
        raise CheckpointError("expected a function of the arguments that the file has, got another")
    found = [(n.shape, n.dtype) for n in graph.function.src]
    if found != [a[:2] for a in graph.outs]:
        raise CheckpointError("expected a function with the results that the file has, got another")
    for treedef, avals in ((graph.in_tree, graph.ins), (graph.out_tree, graph.outs)):
        if treedef.num_leaves != len(avals):
            raise CheckpointError(f"expected {len(avals)} leaves, got {treedef.num_leaves}")


def _op(name: str) -> Op:
    found = ops.OPS.get(name)
    if found is None:
        raise CheckpointError(f"expected an op that fnx has, got {name!r}")
    return found


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == "tuple":
        return tuple(map(_decoded, rest))
    if kind == "float":
        return float.fromhex(rest[0])
    if kind == "op":
        return _op(rest[0])
    if kind == "dtype":
        return _DTYPES[rest[0]]
    return _RECORDS[kind](*map(_decoded, rest))


def _tree(shown: Any) -> tree.TreeDef:
    def of(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        kind, *rest = value
        if kind == "dict":
            return {k: of(v) for k, v in rest}
        return {"tuple": tuple, "list": list}[kind](map(of, rest))
    return tree.structure(of(shown))
