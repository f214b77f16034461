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

from fnx.core.ir import accessors, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.errors import ArgumentError
from fnx.core.support.kernel_interface import MAX_GROUPS_PER_AXIS, share_bindings
from fnx.exporting.graph_file import ExportedGraph
from fnx.transforms.link import generic_target, lower_for

MAX_MEMORY, MAX_LAUNCHES = 128 << 20, 4096  # guaranteed bytes of a binding; launches
_ALIGNMENT = 256
_ARRAY_TYPES = {"float32": "Float32Array", "int32": "Int32Array", "uint32": "Uint32Array",
                "bool": "Uint8Array", "int8": "Int8Array", "uint8": "Uint8Array",
                "int16": "Int16Array", "uint16": "Uint16Array"}


def written(graph: ExportedGraph) -> dict[str, bytes]:
    """Return the files."""
    # all memory is one binding
    target = generic_target("webgpu").replace(max_buffers=0, has_host=False)
    lowered = lower_for(graph.function, target)
    block = lowered.block
    sizes = [math.prod(a.shape) * a.dtype.itemsize for a in graph.ins]
    sizes += [value.nbytes for value in graph.consts]
    outs = [math.prod(n.shape) * n.dtype.itemsize for n in block.outs]
    offsets = _layout([*sizes, *outs, block.arena])
    first_block = {"in": 0, "out": len(sizes), "arena": len(sizes) + len(outs)}
    if offsets[-1] > MAX_MEMORY:
        raise ArgumentError(f"expected at most {MAX_MEMORY:,} bytes of memory in all, got "
                            f"{offsets[-1]:,}", hint="export a smaller batch")
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
            texts.append(share_bindings(code.text(), [0] * len(memory)))
        n_scalars = accessors.count_slots(toposort([kernel]), ops.VAR)
        buffer_offsets = [offsets[first_block[kind] + index] + offset
                          for kind, index, offset in memory]
        parameters = [0, groups, *buffer_offsets, *signed[:n_scalars]]
        launches.append({"kernel": kernels[code.symbol], "label": label,
                         "words": len(parameters) + 3 & ~3, "at": 4 * len(params),
                         "groups": [min(groups, MAX_GROUPS_PER_AXIS),
                                    -(-groups // MAX_GROUPS_PER_AXIS)]})
        params += parameters + [0] * (-len(parameters) % (_ALIGNMENT // 4))
    results = [offsets[first_block[kind] + i] for kind, i in block.results]
    consts = [[offsets[len(graph.ins) + i], value.nbytes] for i, value in enumerate(graph.consts)]
    data = np.array(params, np.int32).tobytes()
    manifest = {
        "name": graph.name, "memory": offsets[-1], "params": len(data),
        "kernels": [{"symbol": s, "file": f"{graph.name}_{i}.wgsl"} for s, i in kernels.items()],
        "launches": launches, "consts": consts,
        "ins": [_describe_array(a, at) for a, at in zip(graph.ins, offsets)],
        "outs": [_describe_array(a, at) for a, at in zip(graph.outs, results)]}
    weights = b"".join([_pad_to_word(np.ascontiguousarray(v).tobytes()) for v in graph.consts])
    script = files(__package__).joinpath("replay.js").read_text()
    return {f"{graph.name}.js": script.replace("NAME", graph.name).encode(),
            f"{graph.name}.json": json.dumps(manifest).encode(),
            f"{graph.name}.bin": data + weights,
            **{f"{graph.name}_{i}.wgsl": text.encode() for i, text in enumerate(texts)}}


def _layout(sizes: list[int]) -> list[int]:
    """Return the aligned offset of each block, and the total size."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT)
    return offsets


def _pad_to_word(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _describe_array(a: Any, offset: int) -> dict[str, Any]:
    array_type = _ARRAY_TYPES.get(a.dtype.name)
    if array_type is None:
        raise ArgumentError(f"expected arguments and results of the types "
                            f"{', '.join(_ARRAY_TYPES)}, got "
                            f"{a.dtype}", hint="convert them in the function")
    return {"shape": list(a.shape), "type": a.dtype.name, "view": array_type, "at": offset}


KernelLaunch = tuple[UOp, list[tuple[str, int, int]], list[int], str]


def _launches(commands: UOp) -> list[KernelLaunch]:
    """Return all launches in order, with constant offsets."""
    launches: list[KernelLaunch] = []
    for launch in _unroll_launches(commands, {}, 0):
        launches.append(launch)
        if len(launches) > MAX_LAUNCHES:
            raise ArgumentError(f"expected at most {MAX_LAUNCHES:,} launches of kernels",
                                hint="export a function with shorter loops")
    return launches


_HOST_WORK = {ops.LINALG: "a factorization"}


def _unroll_launches(commands: UOp, iteration: dict[int, int],
                     depth: int) -> Iterator[KernelLaunch]:
    for command in commands.src:
        if command.op is ops.EXEC and command.src[0].op is ops.KERNEL:
            kernel, *rest = command.src
            memory = []
            for operand in rest:
                if operand.op is not ops.CONST:
                    slot = accessors.resolve_slot(operand, iteration)
                    loop_offset = sum([s * iteration[i] for i, s in enumerate(slot.strides) if s])
                    memory.append((slot.kind, slot.index, slot.offset + loop_offset))
            scalars = [s.arg & (1 << 64) - 1 for s in rest if s.op is ops.CONST]
            yield kernel, memory, scalars, command.arg.label
        elif command.op is ops.CMD_LOOP and command.arg.trips is not None:
            for i in range(command.arg.trips):
                iteration[depth] = i
                yield from _unroll_launches(command.src[-1], iteration, depth + 1)
            iteration[depth] = command.arg.trips
        else:
            description = _HOST_WORK.get(command.src[0].op, "work of the host") \
                if command.op is ops.EXEC else "a data-dependent loop" \
                if command.op is ops.CMD_LOOP else "a data-dependent branch"
            raise ArgumentError(f"expected work that a page can enqueue at once, got {description}",
                                loc=next(iter(command.arg.locs), None),
                                hint="use lax.fori_loop with constant bounds or jnp.where, or "
                                     "export the part without it")
