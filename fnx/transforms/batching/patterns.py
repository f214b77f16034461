"""The keys that request batched forms of a body, and the results."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from fnx.core.ir.derivations import analysis
from fnx.core.ir.op_args import Axis
from fnx.core.ir.ops import CUSTOM, FUNCTION, KERNEL
from fnx.core.ir.recursive_rules import is_recursive
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.record import Record

T = TypeVar("T")


class BatchAxis(Record):
    """The batch size, and the name of the batch axis (None: it has no name).

    ``rules``: how many enclosing rules are batched together with a body, so that calls of the
    functions they belong to are batched too (core/ir/recursive_rules.py).
    """

    size: int
    axis: Axis | None = None
    rules: int = 0

    def of(self, body: UOp, batched: tuple[bool, ...], outs: tuple[bool, ...] = ()
           ) -> tuple[UOp, BatchPattern]:
        """Return the request for a batched body, without what the body does not depend on."""
        keeps = self.axis in named_axes(body) or binds_primitives(body)
        axis = self.axis if keeps else None
        batch = BatchAxis(self.size, axis, self.rules if is_recursive(body) else 0)
        return body, BatchPattern(batch, batched, outs)


class BatchPattern(Record):
    """Which operands of a body are batched: the key of its batched forms.

    ``outs`` are results that get a batch axis even if they are the same for all elements;
    results past its end are not forced.
    """

    batch: BatchAxis
    batched: tuple[bool, ...]
    outs: tuple[bool, ...] = ()


class BatchedFunction(Record):
    """A FUNCTION over a batch, and which of its results have a batch axis in front."""

    function: UOp
    outs: tuple[bool, ...]


class BatchedValue(Record):
    """A node, and whether it has a batch axis in front."""

    node: UOp
    batched: bool


@analysis
def named_axes(body: UOp) -> frozenset[Axis]:
    """Return the named axes that the collectives in a FUNCTION, or a nested one, run over."""
    nodes = toposort(body.src, stop=lambda n: n.op is KERNEL)
    axes = {n.arg for n in nodes if n.op.batching == "collective"}
    return frozenset(axes).union(*[named_axes(n) for n in nodes if n.op is FUNCTION])


@analysis
def binds_primitives(body: UOp) -> bool:
    """Whether a FUNCTION, or a nested one, binds primitives of the user's: their rules may read the
    name of the axis."""
    nodes = toposort(body.src, stop=lambda n: n.op is KERNEL)
    return any(n.op is CUSTOM and n.arg.rule_maker is not None for n in nodes) or \
        any(binds_primitives(n) for n in nodes if n.op is FUNCTION)


# A walk that needs batched bodies: it yields (body, BatchPattern) and is sent the Batched.
BatchSteps = Generator[tuple[UOp, BatchPattern], BatchedFunction, T]
