"""A folder for a browser: WGSL, a JavaScript module that replays the launches, one data file.

    import { load } from "./scores.js";
    const scores = await load();
    const [y] = await scores(new Float32Array(64));

All memory (arguments, results, temporaries, captured arrays) is one buffer, so that each kernel has
one binding; the offsets of its operands and all its other parameters are known at export and
written once. Kernels are compiled for the limits that the standard guarantees, not for those of a
machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import numpy as np

from fnx.core import ops, parts
from fnx.core.bindings import AXIS, sharing
from fnx.core.errors import ArgumentError
from fnx.core.rewriting.evaluate import evaluate
from fnx.core.uop import UOp, toposort
from fnx.exporting.graph_file import ExportedGraph
from fnx.transforms.link import lowered_for, row_of

MEMORY, MOST = 128 << 20, 4096  # guaranteed bytes of a binding; launches
_ALIGNED = 256
_VIEWS = {"float32": "Float32Array", "int32": "Int32Array", "uint32": "Uint32Array",
          "bool": "Uint8Array", "int8": "Int8Array", "uint8": "Uint8Array", "int16": "Int16Array",
          "uint16": "Uint16Array"}


def written(graph: ExportedGraph) -> dict[str, bytes]:
    """Return the files."""
    target = row_of("webgpu").replace(buffers=0)  # all memory is one binding
    lowered = lowered_for(graph.function, target)
    block = lowered.block
    sizes = [math.prod(a.shape) * a.dtype.itemsize for a in graph.ins]
    sizes += [value.nbytes for value in graph.consts]
    outs = [math.prod(n.shape) * n.dtype.itemsize for n in block.outs]
    places = _laid_out([*sizes, *outs, block.arena])
    first = {"in": 0, "out": len(sizes), "arena": len(sizes) + len(outs)}
    if places[-1] > MEMORY:
        raise ArgumentError(f"expected at most {MEMORY:,} bytes of memory in all, got "
                            f"{places[-1]:,}", hint="export a smaller batch")
    kernels: dict[str, int] = {}
    texts: list[str] = []
    launches: list[dict[str, Any]] = []
    params: list[int] = []
    for kernel, memory, scalars, label in _launches(block.commands):
        code = lowered.code[kernel]
        signed = [v - (1 << 64) if v >> 63 else v for v in scalars]
        groups = evaluate(code.extents["groups"], dict(enumerate(signed)))
        if not groups:
            continue
        if code.symbol not in kernels:
            kernels[code.symbol] = len(texts)
            texts.append(sharing(code.text(), [0] * len(memory)))
        used = max([n.arg.slot + 1 for n in toposort([kernel]) if n.op is ops.VAR], default=0)
        at = [places[first[kind] + index] + offset for kind, index, offset in memory]
        words = [0, groups, *at, *signed[:used]]
        launches.append({"kernel": kernels[code.symbol], "label": label,
                         "words": len(words) + 3 & ~3, "at": 4 * len(params),
                         "groups": [min(groups, AXIS), -(-groups // AXIS)]})
        params += words + [0] * (-len(words) % (_ALIGNED // 4))
    results = [places[first[kind] + i] for kind, i in block.results]
    consts = [[places[len(graph.ins) + i], value.nbytes] for i, value in enumerate(graph.consts)]
    data = np.array(params, np.int32).tobytes()
    about = {
        "name": graph.name, "memory": places[-1], "params": len(data),
        "kernels": [{"symbol": s, "file": f"{graph.name}_{i}.wgsl"} for s, i in kernels.items()],
        "launches": launches, "consts": consts,
        "ins": [_described(a, at) for a, at in zip(graph.ins, places)],
        "outs": [_described(a, at) for a, at in zip(graph.outs, results)]}
    weights = b"".join([_padded(np.ascontiguousarray(v).tobytes()) for v in graph.consts])
    script = files(__package__).joinpath("replay.js").read_text()
    return {f"{graph.name}.js": script.replace("NAME", graph.name).encode(),
            f"{graph.name}.json": json.dumps(about).encode(), f"{graph.name}.bin": data + weights,
            **{f"{graph.name}_{i}.wgsl": text.encode() for i, text in enumerate(texts)}}


def _laid_out(sizes: list[int]) -> list[int]:
    """Return the aligned offset of each block, and the total size."""
    places = [0]
    for size in sizes:
        places.append(places[-1] + -(-max(size, 1) // _ALIGNED) * _ALIGNED)
    return places


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _described(a: Any, at: int) -> dict[str, Any]:
    view = _VIEWS.get(a.dtype.name)
    if view is None:
        raise ArgumentError(f"expected arguments and results of the types {', '.join(_VIEWS)}, got "
                            f"{a.dtype}", hint="convert them in the function")
    return {"shape": list(a.shape), "type": a.dtype.name, "view": view, "at": at}


PlacedKernel = tuple[UOp, list[tuple[str, int, int]], list[int], str]


def _launches(commands: UOp) -> list[PlacedKernel]:
    """Return all launches in order, with constant offsets."""
    found: list[PlacedKernel] = []
    for launch in _written_out(commands, {}, 0):
        found.append(launch)
        if len(found) > MOST:
            raise ArgumentError(f"expected at most {MOST:,} launches of kernels",
                                hint="export a function with shorter loops")
    return found


def _written_out(commands: UOp, iteration: dict[int, int], depth: int) -> Iterator[PlacedKernel]:
    for command in commands.src:
        if command.op is ops.EXEC and command.src[0].op is ops.KERNEL:
            kernel, *rest = command.src
            memory = []
            for m in rest:
                if m.op is not ops.CONST:
                    slot = parts.slot_in(m, iteration)
                    moved = sum([s * iteration[i] for i, s in enumerate(slot.strides) if s])
                    memory.append((slot.kind, slot.index, slot.offset + moved))
            scalars = [s.arg & (1 << 64) - 1 for s in rest if s.op is ops.CONST]
            yield kernel, memory, scalars, command.arg.label
        elif command.op is ops.LOOP and command.arg.trips is not None:
            for i in range(command.arg.trips):
                iteration[depth] = i
                yield from _written_out(command.src[-1], iteration, depth + 1)
            iteration[depth] = command.arg.trips
        else:
            what = "a sort" if command.op is ops.EXEC else "a loop of unknown length" \
                if command.op is ops.LOOP else "a branch that data decide"
            raise ArgumentError(f"expected work that a page can queue at once, got {what}",
                                site=next(iter(command.arg.sites), None),
                                hint="export the part without it; or use lax.fori_loop with "
                                     "numbers, jnp.where for a choice")
