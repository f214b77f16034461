"""A file of checked IR: a FUNCTION, its captured arrays, the trees of its arguments and results.

    fnx graph 3\\n   SHA-256 of the rest, 32 bytes   length of the text, 8 bytes   text   arrays

The text is JSON: nodes in topological order (operands first), each [op, dtype, operands, arg]. An
arg is a number, a string, a tuple, the name of an op or a dtype, or by its name one of the records
of op_args.py, kernel_args.py and tiling.py in core/ir; nothing else can be written or read. What is
read is checked before use: each arg by its type, each node by the spec, and the accesses of
kernels, which must be provably inside the arguments of their CALLs (graph_checks.py).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.aval import Aval
from fnx.core.ir import dtypes, kernel_args, op_args, ops, tiling
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.op import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import lengths
from fnx.core.rewriting.dimensions import Assumptions
from fnx.core.support.errors import ArgumentError, CheckpointError, FnxError, NotBuiltError
from fnx.core.support.record import Record
from fnx.exporting import graph_checks
from fnx.exporting.names import identifier
from fnx.saving import safetensors
from fnx.saving.arrays import find_invalid_byte

MAGIC = b"fnx graph 3\n"
_DIGEST_BYTES, _LENGTH_BYTES = 32, 8
_RECORDS: dict[str, type[Record]] = {
    name: value for module in (kernel_args, op_args, tiling)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Record) and value is not Record}
_DTYPES: dict[str, DType] = {
    t.name: t for t in vars(dtypes).values() if isinstance(t, DType) and t.lanes == 1}
_NAMED: dict[str, tuple[Mapping[str, Any], str]] = {
    "op": (ops.OPS, "an op"), "dtype": (_DTYPES, "a dtype")}


class ExportedGraph(Record):
    """A function to export.

    Attributes:
        name: of the function.
        function: its FUNCTION, over the leaves of its arguments and then ``consts``.
        consts: its captured arrays, as NumPy arrays.
        ins, in_tree: its arguments.
        outs, out_tree: its results.
        assumptions: of its dimensions, if its shapes have any.
    """

    name: str
    function: UOp
    consts: Sequence[NDArray]
    ins: Sequence[Aval]
    in_tree: tree.TreeDef
    outs: Sequence[Aval]
    out_tree: tree.TreeDef
    assumptions: Assumptions = Assumptions()


def const_avals(graph: ExportedGraph) -> list[Aval]:
    """Return the avals of ``consts``."""
    params = {n.arg.slot: n for n in toposort(graph.function.src) if n.op is ops.PARAM}
    return [Aval(value.shape, params[slot].dtype if slot in params
                 else dtypes.as_dtype(value.dtype))
            for slot, value in enumerate(graph.consts, len(graph.ins))]


# ---- writing ------------------------------------------------------------------------------------


def serialize(graph: ExportedGraph) -> dict[str, bytes]:
    """Return the file."""
    nodes = toposort([graph.function], into_functions=True)
    if lengths.first_dimension(graph.function) is not None:
        raise NotBuiltError("files of functions with dimensions are not there yet",
                            hint="write one file for each shape; jax.export.export(f)(...).call "
                                 "serves all shapes in this process")
    positions = {node: i for i, node in enumerate(nodes)}
    fault = graph_checks.kernel_fault(positions, graph_checks.CheckBudget(1 << 20))
    if fault is not None:
        raise ArgumentError(f"expected kernels that the loader can verify: {fault[1]}; got "
                            f"{fault[2]}", loc=fault[0].loc,
                            hint="leave out checked=False: k.clip(i, 0, n - 1) is in bounds")
    arrays = [np.ascontiguousarray(value).tobytes() for value in graph.consts]
    text = json.dumps({
        "name": graph.name,
        "nodes": [[n.op.name, n.dtype.name, [positions[s] for s in n.src], _encode_arg(n.arg)]
                  for n in nodes],
        "ins": [_encode_aval(a) for a in graph.ins], "in_tree": _encode_tree(graph.in_tree),
        "outs": [_encode_aval(a) for a in graph.outs], "out_tree": _encode_tree(graph.out_tree),
        "consts": [[a.dtype.name, list(a.shape)] for a in const_avals(graph)],
    }, separators=(",", ":")).encode()
    payload = len(text).to_bytes(_LENGTH_BYTES, "little") + text + b"".join(arrays)
    return {f"{graph.name}.fnx": MAGIC + hashlib.sha256(payload).digest() + payload}


def _encode_aval(a: Aval) -> list[Any]:
    return [list(a.shape), a.dtype.name, a.weak]


def _encode_arg(value: Any) -> Any:
    """Return an arg as JSON: a list headed by its kind, unless it is a number, string or None."""
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is str:  # a name: keep it within what a reader accepts
        return "".join([c if c.isprintable() else "?" for c in
                        value[:graph_checks.MAX_NAME_LENGTH]])
    if type(value) is float:
        return ["float", value.hex()]
    if type(value) is tuple:
        return ["tuple", *map(_encode_arg, value)]
    if isinstance(value, Op):
        return ["op", value.name]
    if isinstance(value, DType):
        return ["dtype", value.name]
    if isinstance(value, Record) and value.__class__ in _RECORDS.values():
        if isinstance(value, op_args.Custom):
            value = value.replace(vmap_rule=None)
        return [type(value).__name__, *[_encode_arg(field) for field in value]]
    raise ArgumentError(f"expected a graph that can be saved, got {value!r} in it",
                        hint="export a function without it")


_CONTAINER_NAMES: dict[Any, str] = {tuple: "tuple", list: "list", dict: "dict"}


def _encode_tree(treedef: tree.TreeDef) -> Any:
    """Return a tree of tuples, lists, dicts and None as JSON; leaves are numbers."""
    def encode(value: Any) -> Any:
        if value is None or type(value) is int:
            return value
        if type(value) is dict:
            if not all(type(k) is str for k in value):
                raise ArgumentError(f"expected dicts with string keys, got {sorted(value)!r}",
                                    hint="use strings")
            return ["dict", *[[k, encode(v)] for k, v in value.items()]]
        kind = _CONTAINER_NAMES.get(type(value))
        if kind is None:
            raise ArgumentError(
                f"expected arguments and results that are tuples, lists, dicts and arrays, got "
                f"{type(value).__name__}", hint="take and return one of these")
        return [kind, *map(encode, value)]
    return encode(tree.unflatten(treedef, range(treedef.num_leaves)))


# ---- reading ------------------------------------------------------------------------------------


def deserialize(data: bytes) -> ExportedGraph:
    """Return the graph in a file.

    Raises:
        CheckpointError: says what was expected, and what is there.
    """
    if not data.startswith(MAGIC):
        raise CheckpointError(f"expected a file that begins with {MAGIC!r}, got "
                              f"{data[:len(MAGIC)]!r}", hint="export it with this version of fnx")
    digest, payload = data[len(MAGIC):len(MAGIC) + _DIGEST_BYTES], data[len(MAGIC) + _DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        raise CheckpointError(f"expected bytes with the digest {digest.hex()[:16]}..., got others: "
                              "the file is damaged", hint="copy or export it again")
    length = int.from_bytes(payload[:_LENGTH_BYTES], "little")
    if length > len(payload) - _LENGTH_BYTES:
        raise CheckpointError(f"expected a text of {length:,} bytes, got "
                              f"{len(payload) - _LENGTH_BYTES:,}")
    try:
        return _decode_graph(payload[_LENGTH_BYTES:_LENGTH_BYTES + length],
                             payload[_LENGTH_BYTES + length:])
    except CheckpointError:
        raise
    except FnxError as why:
        raise CheckpointError(f"expected a graph, got an invalid one: {why.message}") from None
    except graph_checks.DECODE_ERRORS as why:
        raise CheckpointError(f"expected a graph, got {type(why).__name__}: {str(why)[:200]}"
                              ) from None


def _decode_graph(text: bytes, arrays: bytes) -> ExportedGraph:
    budget = graph_checks.CheckBudget(len(text) + len(arrays))
    fields = json.loads(text, object_pairs_hook=safetensors.reject_duplicates)
    if not isinstance(fields, dict) or set(fields) != set(_FIELD_TYPES):
        raise CheckpointError(f"expected the members {', '.join(_FIELD_TYPES)}, got others")
    for name, kind in _FIELD_TYPES.items():
        if kind is not None and type(fields[name]) is not kind:
            raise CheckpointError(f"{name}: expected a {kind.__name__}, got "
                                  f"{type(fields[name]).__name__}")
    nodes: list[UOp] = []
    for entry in fields["nodes"]:
        nodes.append(_decode_node(nodes, entry))
    if not nodes or nodes[-1].op is not ops.FUNCTION:
        raise CheckpointError("nodes: expected a FUNCTION as the last one")
    function = nodes[-1]
    unused = graph_checks.unused_fault(nodes, function)
    if unused:
        raise CheckpointError(f"{unused}: expected a part of the function, got an unused one")
    graph_checks.check(function, {node: i for i, node in enumerate(nodes)}, budget)
    ins, outs = ([_decode_aval(f"{k}[{i}]", row) for i, row in enumerate(fields[k])]
                 for k in ("ins", "outs"))
    graph = ExportedGraph(
        identifier(fields["name"]), function, _decode_consts(fields["consts"], arrays), ins,
        _decode_tree("in_tree", fields["in_tree"]), outs,
        _decode_tree("out_tree", fields["out_tree"]))
    _check_signature(graph)
    return graph


_FIELD_TYPES: dict[str, type | None] = {
    "name": str, "nodes": list, "ins": list, "in_tree": None, "outs": list, "out_tree": None,
    "consts": list}


def _decode_node(earlier: list[UOp], row: Any) -> UOp:
    """Return a node of the file, over earlier nodes."""
    location = f"node {len(earlier)}"
    if type(row) is not list or len(row) != 4 or type(row[0]) is not str or \
            type(row[2]) is not list:
        raise CheckpointError(f"{location}: expected [op, dtype, operands, arg], got "
                              f"{repr(row)[:80]}")
    name, dtype, src, arg = row
    location = f"{location} ({name[:20]})"
    if not all(type(i) is int and 0 <= i < len(earlier) for i in src):
        raise CheckpointError(f"{location}: expected earlier nodes as operands, got "
                              f"{repr(src)[:80]}")
    try:
        op = _find("op", name)
        value = _decode_arg(arg)
        if not graph_checks.fits_arg(op, value):
            raise CheckpointError(f"expected a valid arg for its op, got {repr(arg)[:80]}")
        node = UOp(op, _find("dtype", dtype), tuple([earlier[i] for i in src]), value)
    except CheckpointError as error:
        raise CheckpointError(f"{location}: {error.message}") from None
    except graph_checks.DECODE_ERRORS as why:
        raise CheckpointError(f"{location}: expected valid operands and arg for its op, got "
                              f"{type(why).__name__}: {str(why)[:80]}") from None
    fault = graph_checks.size_fault(node)
    if fault:
        raise CheckpointError(f"{location}: expected {fault}")
    return node


def _find(kind: str, name: Any) -> Any:
    """Return the op or dtype of a name."""
    table, description = _NAMED[kind]
    value = table.get(name) if type(name) is str else None
    if value is None:
        raise CheckpointError(f"expected {description} known to fnx, got {repr(name)[:40]}")
    return value


def _decode_array_type(where: str, name: Any, shape: Any) -> DType:
    """Return the dtype of an array, and check its shape."""
    t = _DTYPES.get(name) if type(name) is str else None
    if t is None or t not in (*dtypes.USER, dtypes.key_fry) or \
            not graph_checks.is_shape(shape, t.itemsize):
        raise CheckpointError(f"{where}: expected an array type, got {repr(name)[:40]} "
                              f"{repr(shape)[:80]}")
    return t


def _decode_aval(where: str, row: Any) -> Aval:
    if type(row) is not list or len(row) != 3 or type(row[2]) is not bool or \
            type(row[0]) is not list:
        raise CheckpointError(f"{where}: expected [shape, dtype, weak], got {repr(row)[:80]}")
    return Aval(tuple(row[0]), _decode_array_type(where, row[1], row[0]), row[2])


def _decode_consts(rows: list[Any], arrays: bytes) -> list[NDArray]:
    consts, offset = [], 0
    for i, row in enumerate(rows):
        location = f"consts[{i}]"
        if type(row) is not list or len(row) != 2 or type(row[1]) is not list:
            raise CheckpointError(f"{location}: expected [dtype, shape], got {repr(row)[:80]}")
        t = _decode_array_type(location, *row)
        data = np.frombuffer(arrays, np.uint8)[offset:offset + t.itemsize * math.prod(row[1])]
        if data.nbytes != t.itemsize * math.prod(row[1]):
            raise CheckpointError(f"{location}: expected {t.itemsize * math.prod(row[1]):,} bytes "
                                  f"of arrays, got {data.nbytes:,}")
        invalid_byte = find_invalid_byte(t, data)
        if invalid_byte is not None:
            raise CheckpointError(f"{location}: expected bits of {t}, got {data[invalid_byte]} at "
                                  f"byte {invalid_byte}")
        consts.append(data.view(t.np).reshape(row[1]))
        offset += data.nbytes
    if offset != len(arrays):
        raise CheckpointError(f"consts: expected {offset:,} bytes of arrays, got {len(arrays):,}")
    return consts


def _check_signature(graph: ExportedGraph) -> None:
    """Check that the FUNCTION has the arguments and results that the file declares."""
    expected = [*graph.ins, *const_avals(graph)]
    params = [n for n in toposort(graph.function.src) if n.op is ops.PARAM]
    if graph.function.arg.n_params != len(expected) or \
            any((n.arg.shape, n.dtype) != expected[n.arg.slot][:2] for n in params):
        raise CheckpointError("ins and consts: expected the arguments of the function, got others")
    results = [(n.shape, n.dtype) for n in graph.function.src]
    if results != [a[:2] for a in graph.outs]:
        raise CheckpointError("outs: expected the results of the function, got others")
    for name, treedef, avals in (("in_tree", graph.in_tree, graph.ins),
                                 ("out_tree", graph.out_tree, graph.outs)):
        if treedef.num_leaves != len(avals):
            raise CheckpointError(f"{name}: expected {len(avals)} leaves, got "
                                  f"{treedef.num_leaves}")


def _decode_arg(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == "tuple":
        return tuple(map(_decode_arg, rest))
    if kind == "float":
        return float.fromhex(rest[0])
    if kind in _NAMED:
        return _find(kind, rest[0])
    return _RECORDS[kind](*map(_decode_arg, rest))


def _decode_tree(where: str, encoded: Any) -> tree.TreeDef:
    """Return the tree whose leaves are numbered in order."""
    leaves = itertools.count()

    def decode(value: Any) -> Any:
        if value is None or type(value) is int and value == next(leaves):
            return value
        if type(value) is not list or not value or repr(value[0]) not in map(repr, _CONTAINERS):
            raise CheckpointError(f"{where}: expected tuples, lists and dicts of leaves in order, "
                                  f"got {repr(value)[:80]}")
        kind, *entries = value
        if kind != "dict":
            return _CONTAINERS[kind](map(decode, entries))
        keys = [row[0] if type(row) is list and len(row) == 2 else None for row in entries]
        if not all(type(k) is str for k in keys) or len(set(keys)) < len(keys):
            raise CheckpointError(f"{where}: expected unique string keys, got {repr(keys)[:80]}")
        return {k: decode(v) for k, v in entries}
    return tree.structure(decode(encoded))


_CONTAINERS: dict[str, Any] = {"tuple": tuple, "list": list, "dict": dict}
