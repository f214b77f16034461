"""Files of strangers: mutants of .fnx, npz and safetensors with valid digests and checksums.

    corpus("fnx")["scan"]    an intact file
    mutant(3)                numbers, names, nodes or members of one changed, and then sealed

A change keeps a file's structure, as if made by somebody who knows the format: a number becomes
another one, perhaps everywhere it occurs; an operand another node; two nodes are swapped.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fnx
import fnx.kernel as k
from fnx.core.ir import dtypes, op_args, ops, tiling
from fnx.exporting import graph_file
from fnx.saving import npz, safetensors
from tests.exporting.test_graph_file import FUNCTIONS, X

KINDS = ("fnx", "fnx", "fnx", "npz", "safetensors")  # one of them per seed
_NUMBERS = (0, 1, -1, 2, 3, 7, 8, 15, 16, 17, 31, 64, 65, 127, 128, 255, 1 << 31, (1 << 31) - 1,
            1 << 32, 1 << 48, 1 << 50, (1 << 63) - 1, 1 << 63, 1 << 64, -1 << 63, 10 ** 30)
_TEXTS = ("", "x", '*/ system("x"); /*', "int", "free", "fault of x a b", "fault of x 0 3", "\0",
          "\ud800", "../../x", "n" * 5000, "os.system", "UNLIKELY", "SEQ", "PAR", "THREAD", "GRID",
          "VEC", "UNROLL", "PRIV", "SHARED", "REG", "GLOBAL", "jvp", "fwd", "bwd", "bwd 0")


# ---- intact files -----------------------------------------------------------------------------


@fnx.call(out=lambda x, y: x)
def _gathered(x: Any, y: Any, o: Any) -> None:
    i = k.range(x.shape[0], "i")
    o[i] = x[y[i]] + x.load(i + 1, valid=i < x.shape[0] - 1)


@fnx.call(out=lambda x, y: (x, x))
def _looped(x: Any, y: Any, o: Any, p: Any) -> None:
    i = k.range(x.shape[0])

    def step(j: Any, t: Any) -> Any:
        k.when((i > 2) & (j < 3), lambda: o.combine("add", i - 3, x[i - 3]))
        return k.when(y[i] > 3, lambda: t + x[y[i] - 3], t)
    p[i] = k.loop(5, step, 0.0, until=lambda j, t: t > 100)


@fnx.call(out=lambda x, y: x)
def _folded(x: Any, y: Any, o: Any) -> None:
    i, j, c = (k.range(x.shape[0], name) for name in "ijc")
    kept = k.local(x[j] * 2, over=j)
    o[i] = kept[x.shape[0] - 1 - i] + k.sum(x[c], over=c)


@fnx.call(out=lambda x, y: x, schedule=[k.split("i", 8, "io", "ii"), k.vectorize("ii")])
def _scheduled(x: Any, y: Any, o: Any) -> None:
    i = k.range(x.shape[0], "i")
    o[i] = x[x.shape[0] - 1 - i] * 2


KERNELS: dict[str, Any] = {
    "gathered": _gathered, "looped": _looped, "folded": _folded, "scheduled": _scheduled,
    "lanes": fnx.vmap(_gathered, in_axes=(0, None)), "all lanes": fnx.vmap(_looped)}


def _kernel_arguments(name: str) -> tuple[Any, ...]:
    x, y = np.arange(16, dtype=np.float32), np.arange(16, dtype=np.int32)[::-1]
    xs = np.stack([x, x + 1, x * 2])
    return {"lanes": (xs, y), "all lanes": (xs, np.stack([y] * 3))}.get(name, (x, y))


@functools.cache
def corpus(kind: str) -> dict[str, bytes]:
    """Return intact files, by name."""
    if kind == "fnx":
        made = {name: fnx.export(f, X, to="fnx", name="f") for name, f in FUNCTIONS.items()}
        made |= {name: fnx.export(f, *_kernel_arguments(name), to="fnx", name="f")
                 for name, f in KERNELS.items()}
        return {name: next(iter(e.files.values())) for name, e in made.items()}
    arrays = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "flags": np.ones(3, bool),
              "h": np.zeros((2, 2), dtypes.bfloat16.np), "n": np.int64(7), "none": np.zeros((0, 4))}
    found = {}
    for name, some in {"all": arrays, "one": {"w": arrays["w"]}, "none": {}}.items():
        file = io.BytesIO()
        write: Any = npz.write if kind == "npz" else safetensors.write
        write(file, {key: np.asarray(value) for key, value in some.items()})
        found[name] = file.getvalue()
    if kind == "npz":
        file = io.BytesIO()
        np.savez_compressed(file, a=np.zeros(1000), b=np.arange(9))
        found["compressed"] = file.getvalue()
    return found


# ---- changes of JSON --------------------------------------------------------------------------


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each value that is not a container, as its container and key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(inner, dict | list):
            yield from _places(inner)
        else:
            yield value, key


def _other(value: Any, choose: random.Random) -> Any:
    if isinstance(value, bool) or value is None:
        return choose.choice([None, True, False, 0, 1])
    if isinstance(value, int):
        return choose.choice([value + 1, value - 1, value * 2, -value, choose.choice(_NUMBERS),
                              value + choose.randrange(100), float(value), str(value)])
    if isinstance(value, str):
        return choose.choice([choose.choice(list(ops.OPS)), choose.choice(_TEXTS), value + "x",
                              choose.choice(list(graph_file._DTYPES))])
    return choose.choice([0, None, [], {}, "x"])


def _one_value(fields: Any, choose: random.Random) -> None:
    where, key = choose.choice(list(_places(fields)))
    where[key] = _other(where[key], choose)


def _everywhere(fields: Any, choose: random.Random) -> None:
    """Replace a number wherever it occurs, as in a file for other lengths."""
    places = list(_places(fields))
    old = choose.choice([w[key] for w, key in places if type(w[key]) is int] or [0])
    new = choose.choice([old + 1, old - 1, 2 * old, choose.choice(_NUMBERS)])
    nodes = fields.get("nodes", []) if isinstance(fields, dict) else []
    operands = {id(row[2]) for row in nodes if isinstance(row, list) and len(row) > 2}
    for where, key in places:
        if type(where[key]) is int and where[key] == old and id(where) not in operands:
            where[key] = new


def _container(fields: Any, choose: random.Random) -> None:
    """Empty, extend or nest a list, or drop or repeat one of its values."""
    where, key = choose.choice(list(_places(fields)))
    what = choose.randrange(5)
    if isinstance(where, list):
        if what == 0:
            where[:] = []
        elif what == 1:
            del where[key]
        elif what == 2:
            where.insert(key, where[key])
        elif what == 3:
            where[:] = where * choose.choice((2, 70, 3000))
        else:
            for _ in range(choose.choice((3, 300))):
                where[:] = [list(where)]
    elif what % 2:
        del where[key]
    else:
        where[f"{key}x"] = where[key]


# ---- .fnx -------------------------------------------------------------------------------------


def _operand(fields: Any, choose: random.Random) -> None:
    """Replace an operand by another node."""
    row = choose.choice([r for r in fields["nodes"] if r[2]])
    row[2][choose.randrange(len(row[2]))] = choose.randrange(len(fields["nodes"]))


def _swapped(fields: Any, choose: random.Random) -> None:
    nodes = fields["nodes"]
    i, j = choose.randrange(len(nodes)), choose.randrange(len(nodes))
    part = choose.randrange(4)
    nodes[i][part], nodes[j][part] = nodes[j][part], nodes[i][part]


def _moved_place(fields: Any, choose: random.Random) -> None:
    """Replace an index by an arithmetic expression of it and a constant."""
    indices = [i for i, row in enumerate(fields["nodes"]) if row[0] == "INDEX" and len(row[2]) > 1]
    if not indices:
        _operand(fields, choose)
        return
    by = choose.choice((1, 8, 16, 1 << 20, (1 << 64) - 1, (1 << 64) - 16, 1 << 40))
    for other in fields["nodes"]:
        other[2] = [s + 1 for s in other[2]]
    fields["nodes"].insert(0, ["CONST", "index", [], by])
    at = choose.choice(indices) + 1
    row = fields["nodes"][at]
    which = choose.randrange(1, len(row[2]))
    name = choose.choice(("ADD", "MUL", "SUB", "IDIV", "REM", "MAX", "MIN"))
    made = [name, "index", [row[2][which], 0], None]
    for other in fields["nodes"]:
        other[2] = [s + (s >= at) for s in other[2]]
    fields["nodes"].insert(at, made)
    fields["nodes"][at + 1][2][which] = at


def _other_arg(fields: Any, choose: random.Random) -> None:
    """Replace an arg by a record."""
    records = [r for module in (op_args, tiling) for r in vars(module).values()
               if isinstance(r, type) and hasattr(r, "_names") and r._names]
    record: Any = choose.choice(records)
    values = [choose.choice([*_NUMBERS[:12], "x", None, True, ["tuple"], ["tuple", 1, 2],
                             ["op", "ADD"], ["dtype", "float32"]]) for _ in record._names]
    choose.choice(fields["nodes"])[3] = [record.__name__, *values]


_JSON: tuple[Callable[[Any, random.Random], None], ...] = (_one_value, _everywhere, _container)
_GRAPH = (*_JSON, *_JSON[:2], _operand, _operand, _swapped, _moved_place, _moved_place, _other_arg)


def resealed(fields: Any, arrays: bytes) -> bytes:
    """Return a graph file of these fields, with their digest."""
    text = json.dumps(fields).encode()
    rest = len(text).to_bytes(8, "little") + text + arrays
    return graph_file.MAGIC + hashlib.sha256(rest).digest() + rest


def opened(data: bytes) -> tuple[Any, bytes]:
    """Return the fields and the arrays of a graph file."""
    rest = data[len(graph_file.MAGIC) + 32:]
    length = int.from_bytes(rest[:8], "little")
    return json.loads(rest[8:8 + length]), rest[8 + length:]


def _graph(whole: bytes, choose: random.Random) -> bytes:
    fields, arrays = opened(whole)
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        try:
            choose.choice(_GRAPH)(fields, choose)
        except (LookupError, TypeError, ValueError, AttributeError):
            break  # an earlier change left an unexpected type
    if choose.random() < 0.8:
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
            _pruned(fields)
    if choose.random() < 0.1:
        arrays = _bytes(arrays, choose)
    return resealed(fields, arrays)


def _pruned(fields: Any) -> None:
    """Remove nodes that the last one does not use, which a reader rejects at once."""
    nodes = fields["nodes"]
    used = {len(nodes) - 1}
    for i in reversed(range(len(nodes))):
        if i in used:
            used.update(nodes[i][2])
    place = {old: new for new, old in enumerate(sorted(used))}
    fields["nodes"] = [[*nodes[i][:2], [place[s] for s in nodes[i][2]], nodes[i][3]]
                       for i in sorted(used)]


# ---- safetensors, npz -------------------------------------------------------------------------


def _bytes(data: bytes, choose: random.Random) -> bytes:
    """Change, truncate, insert or overwrite bytes (also by NaNs)."""
    out = bytearray(data)
    at = choose.randrange(len(data) + 1)
    what = choose.randrange(5)
    if what == 0:
        del out[at:]
    elif what == 1:
        out[at:at] = choose.randbytes(choose.choice((1, 8, 64)))
    elif what == 2:
        out = bytearray(b"\xff" * len(out))
    else:
        number = choose.choice((0, 1, 255, 1 << 31, (1 << 64) - 1, 1 << 63, choose.getrandbits(64)))
        size = choose.choice((1, 2, 4, 8))
        out[at:at + size] = struct.pack("<Q", number)[:size]
    return bytes(out)


def _tensors(whole: bytes, choose: random.Random) -> bytes:
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8:8 + length]), whole[8 + length:]
    for _ in range(choose.choice((1, 1, 2))):
        if list(_places(header)):
            choose.choice(_JSON)(header, choose)
    if choose.random() < 0.2:
        data = _bytes(data, choose)
    _sum(header, data, choose)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _sum(header: Any, data: bytes, choose: random.Random) -> None:
    """Recompute the checksums, as the writer would for the current header."""
    sums = []
    for name, entry in header.items():
        if name != "__metadata__":
            try:
                start, stop = entry["data_offsets"]
                text = f"{name} {safetensors._DTYPES[entry['dtype']]} {tuple(entry['shape'])}"
                sums.append(f"{zlib.crc32(data[start:stop], zlib.crc32(text.encode())):08x}")
            except (LookupError, TypeError, ValueError):
                return
    if isinstance(header.get("__metadata__"), dict) and choose.random() < 0.9:
        header["__metadata__"]["crc32"] = " ".join(sums)


def _archive(whole: bytes, choose: random.Random) -> bytes:
    """Change a number of the structure or a byte of a member, then fix the checksums."""
    out = bytearray(whole)
    marks = [i for i in range(len(out) - 3) if out[i:i + 2] == b"PK" and out[i + 2] in (1, 3, 5, 6)]
    for _ in range(choose.choice((1, 1, 2, 4))):
        if choose.random() < 0.7 and marks:
            at = choose.choice(marks) + choose.randrange(4, 46)
            size = choose.choice((1, 2, 2, 4, 8))
            number = choose.choice((0, 1, 0xFFFF, 0xFFFFFFFF, choose.choice(marks), len(out),
                                    choose.getrandbits(31)))
            out[at:at + size] = struct.pack("<Q", number)[:len(out[at:at + size])]
        else:
            out = bytearray(_bytes(bytes(out), choose))
    for at in range(len(out) - 30):
        if out[at:at + 4] == b"PK\3\4":
            _seal_member(out, at)
    return bytes(out)


def _seal_member(out: bytearray, at: int) -> None:
    """Fix the checksum of a stored member, in its header and in the directory."""
    size, = struct.unpack_from("<I", out, at + 18)
    name, extra = struct.unpack_from("<2H", out, at + 26)
    start = at + 30 + name + extra
    if out[at + 8:at + 10] == b"\0\0" and start + size <= len(out):
        crc = struct.pack("<I", zlib.crc32(out[start:start + size]))
        out[at + 14:at + 18] = crc
        entry = out.find(b"PK\1\2")
        while entry >= 0:
            if out[entry + 42:entry + 46] == struct.pack("<I", at):
                out[entry + 16:entry + 20] = crc
            entry = out.find(b"PK\1\2", entry + 4)


_OF_KIND: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "fnx": _graph, "safetensors": _tensors, "npz": _archive}


def drawn(seed: int) -> tuple[str, str, random.Random]:
    """Return (kind, name of the intact file, generator of the changes) of a seed."""
    choose = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    return kind, choose.choice(sorted(corpus(kind))), choose


def mutant(seed: int) -> tuple[str, str, bytes]:
    """Return (kind, name of the intact file, bytes of a mutant) of a seed."""
    kind, name, choose = drawn(seed)
    return kind, name, _OF_KIND[kind](corpus(kind)[name], choose)
