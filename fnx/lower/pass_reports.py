"""Why passes did what they did: a line for each decision, for ``Lowering.show``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fnx.core.ir import accessors, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import kernel_label
from fnx.core.support.process import lazy_import
from fnx.core.support.target import Target
from fnx.lower.analysis.workload import may_have_products
from fnx.lower.driver import lift_to_bodies
from fnx.lower.fusion.kernelize import Fusion

fuse_loop_into_kernel = lazy_import("fnx.lower.loops.fuse_loop_into_kernel",
                                    "fuse_loop_into_kernel")
tile_attention = lazy_import("fnx.lower.attention.tile_attention", "tile_attention")


def explain_loops(fn: UOp, _: UOp) -> list[str]:
    """Report what becomes of each loop, and why."""
    lines: list[str] = []

    def report(loop: UOp, what: str) -> None:
        name = f"{accessors.loop_kind(loop)} {accessors.loop_body_name(loop)}"
        lines.append(f"{kernel_label(name, loop.locs)}: {what}")
    lift_to_bodies(partial(fuse_loop_into_kernel, report=report))(fn)
    return lines


def explain_regions(predict: Callable[..., float], fn: UOp, after: UOp) -> list[str]:
    """Report what becomes of products that are only summed, and why.

    ``predict(fn, target=)`` returns the predicted time of a FUNCTION if its products stay.
    """
    lines: list[str] = []
    reader = Target("reader")

    def report(product: UOp, what: str) -> None:
        label = kernel_label("product", product.locs)
        if not what.startswith("computed"):
            lines.append(f"{label}: the whole matrix is written to memory: {what}")
        elif fn is not after:  # another target has other loops
            lines.append(f"{label}: {what}")
    for body in toposort([fn], into_functions=True):
        if body.op is ops.FUNCTION and may_have_products(body):
            tile_attention(body, reader, partial(predict, target=reader), report)
    return lines


def explain_full_kernels(_: UOp, fusion: Fusion) -> list[str]:
    """Report which kernels end early because they reached the work limit."""
    lines = []
    for i, g in enumerate(fusion.groups):
        if g.overflow:
            names = [kernel_label(node.op.name, node.locs) for node in dict.fromkeys(g.overflow)]
            lines.append(f"group {i}: split off after {g.work} additions, to compile faster: "
                         f"it reads {names[0]} from memory"
                         + f", and {len(names) - 1} more" * (len(names) > 1))
    return lines
