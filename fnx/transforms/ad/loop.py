"""The common base of the rules of SCAN, WHILE and COND: they are derived like a FUNCTION.

    SCAN(body, operands)   is   CALL(FUNCTION(SCAN(body, PARAMs)), operands)

So the forward form is a CALL that also returns the residuals, and the backward pass is a CALL too,
whatever loops these contain. Masks of cotangents and tangents do not cross the loop's boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeVar

from fnx.core import build, build_calls, dtypes, op_args, ops
from fnx.core.array.trace import inline
from fnx.core.bodies import Nodes, function_over
from fnx.core.cache import MEGABYTE, Cache, graph_bytes
from fnx.core.derived import Steps
from fnx.core.dtypes import DType
from fnx.core.record import Record
from fnx.core.uop import UOp
from fnx.transforms.ad.rules import Cotangent, Tangent, zeros
from fnx.transforms.ad.silent import silent
from fnx.transforms.ad.structural import Activity, Linearized, Pushed, Pushes, Source, Structural

T = TypeVar("T")

MAX_LOOPS = 256
Read = Callable[[Source], UOp]
# A cotangent for each active operand; the token after the last effect, if there are any.
Pulled = tuple[Sequence[UOp | None], UOp | None]


class _Key(Record):
    """The cache key: a higher-order node with the types of its operands (also of those that no
    body reads), and which operands and results are active."""

    bodies: tuple[UOp, ...]
    arg: op_args.Scan | op_args.While | op_args.Cond
    types: tuple[tuple[ops.Shape, DType], ...]
    takes: Activity


# Bounded, and not owned by the body: the backward pass of a loop may contain the body itself.
_loops: Cache[_Key, Linearized] = Cache(
    "derivatives of loops", MAX_LOOPS, 64 * MEGABYTE, lambda key, made: graph_bytes([key, made]))


class LoopRule(Structural):
    """The base class of the rules of SCAN, WHILE and COND."""

    def bodies(self, node: UOp) -> tuple[UOp, ...]:
        return tuple([s for s in node.src if s.op is ops.FUNCTION])

    def operands(self, node: UOp) -> Sequence[int]:
        return range(len(self.bodies(node)), len(node.src))

    def forms(self, node: UOp, got: Mapping[int, Cotangent], active: Container[UOp],
              guarded: Container[UOp], wild: Container[UOp]) -> Steps[Linearized]:
        args = [node.src[i] for i in self.operands(node)]
        takes = Activity(tuple([i for i, a in enumerate(args) if a in active]),
                         tuple(sorted(got)))
        types = tuple([(x.shape, x.dtype) for x in args])
        key = _Key(self.bodies(node), node.arg, types, takes)
        found = _loops.get(key)
        if found is None:
            found = _loops.keep(key, (yield from self.linearize(node, args, takes)))
        return found

    def linearize(self, node: UOp, args: Nodes, takes: Activity) -> Steps[Linearized]:
        """Return the forward and the backward form of the node, for operands like ``args``."""
        raise NotImplementedError

    def push_all(self, node: UOp, tangents: Pushes, guarded: Sequence[int], wild: Container[UOp]
                 ) -> Steps[tuple[Sequence[UOp], Pushes]]:
        args = [node.src[i] for i in self.operands(node)]
        given = {i: t.value for i, t in enumerate(tangents[len(node.src) - len(args):])
                 if t is not None}
        results, found = yield from self.push_values(node, args, given)
        return results, [Tangent(found[o]) if o in found else None for o in range(len(results))]

    def push_values(self, node: UOp, args: Nodes, tangents: Mapping[int, UOp]
                    ) -> Steps[tuple[Nodes, Mapping[int, UOp]]]:
        """Return the results of the node, and the tangents of those that have one."""
        raise NotImplementedError


class Sources:
    """The operands of a backward pass, in order of first use.

    >>> sources = Sources()
    >>> sources.want(("input", 3)), sources.want(("cotangent", 0)), sources.want(("input", 3))
    (('input', 3), ('cotangent', 0), ('input', 3))
    >>> sources.all
    (('input', 3), ('cotangent', 0))
    """

    def __init__(self) -> None:
        self._number: dict[Source, int] = {}

    @property
    def all(self) -> tuple[Source, ...]:
        return tuple(self._number)

    def want(self, source: Source) -> Source:
        self._number.setdefault(source, len(self._number))
        return source

    def linearized(self, forward: UOp | None, types: Mapping[str, Nodes],
                   backward: Callable[[Read], Pulled], name: str) -> Linearized:
        """Return the form whose backward pass is ``backward(read)``.

        Args:
            types: nodes with the types of the inputs, results and cotangents.
        """
        given: list[tuple[int | None, int | None]] = []
        token: list[int] = []

        def outs(params: Nodes) -> list[UOp]:
            flat: list[UOp] = []
            cts, last = backward(lambda source: params[self._number[source]])
            for ct in cts:
                given.append((None, None) if ct is None else (len(flat), None))
                if ct is not None:
                    flat.append(ct)
            if last is not None:
                token.append(len(flat))
                flat.append(last)
            return flat

        types = {**types, "token": [build_calls.first_token()]}
        like = [types[kind][i] for kind, i in self._number]
        made = function_over(outs, like, f"{name}.backward")
        return Linearized(forward, made, self.all, tuple(given), *token)


def pull_back(form: Linearized, read: Read) -> Pulled:
    """Inline the backward pass of a body, with its sources supplied by ``read``."""
    found = inline(form.backward, [read(source) for source in form.sources])
    return [None if value is None else found[value] for value, _ in form.given], \
        None if form.token is None else found[form.token]


def recomputed(body: UOp, form: Linearized, n_cotangents: int) -> Linearized:
    """Return a form without residuals, whose backward pass recomputes the body."""
    def backward(read: Read) -> Pulled:
        inputs = {i: read(("input", i)) for i in params}
        results = inline(again, [inputs.get(i, nothing) for i in range(body.arg.n_params)])

        def found(source: Source) -> UOp:
            kind, i = source
            return results[i] if kind == "result" else read(source)
        return pull_back(form, found)

    again = silent(form.forward_of(body))
    nothing = build.const(0, dtypes.int32)  # placeholder for operands that are not read
    params = build.params(body) | build.params(form.forward_of(body))
    sources = Sources()
    for i in params:
        sources.want(("input", i))
    for source in form.sources:
        if source[0] != "result":
            sources.want(source)
    like = {"input": [params.get(i, nothing) for i in range(body.arg.n_params)],
            "cotangent": _cotangents_like(form, n_cotangents)}
    return sources.linearized(None, like, backward, body.arg.name)


def _cotangents_like(form: Linearized, n: int) -> list[UOp]:
    """Return nodes with the types of the cotangents, as far as they are read."""
    params = build.params(form.backward)
    found = {i: params[slot] for slot, (kind, i) in enumerate(form.sources)
             if kind == "cotangent" and slot in params}
    return [found.get(i, build.const(0, dtypes.int32)) for i in range(n)]


def some(x: T | None) -> list[T]:
    """Return [x], or [] for None."""
    return [] if x is None else [x]


def or_zeros(value: UOp | None, like: UOp) -> UOp:
    """Return a cotangent or tangent, materializing a symbolic zero."""
    return zeros(like) if value is None else value


def pushed_body(pushed: Pushed, args: Nodes, tangents: Nodes) -> tuple[list[UOp], dict[int, UOp]]:
    """Inline the jvp form of a body; return its results and their tangents."""
    results, found = pushed.results(inline(pushed.function, [*args, *tangents]))
    return results, {o: t.value for o, t in enumerate(found) if t is not None}
