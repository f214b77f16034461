"""Every graph walk handles a chain of 20,000 nodes: none of them recurses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.levels import show, spec
from fnx.core.levels.interp import evaluate
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.rewrite import RewriteRule, RuleSet, UPat, graph_rewrite, var
from fnx.core.scope import scope
from fnx.core.support.target import Target
from fnx.lower.legalize.decompose import decompose
from fnx.lower.pipeline import TENSOR_PASSES
from fnx.transforms.autodiff.reverse import pullback
from fnx.transforms.autodiff.rules import Cotangent

F = dtypes.float32
N = 20_000  # Python's limit of recursion is 1,000
X = build.param(0, F, ())


def chain(x: UOp = X, op: ops.Op = ops.EXP, n: int = N) -> UOp:
    for _ in range(n // 2):
        x = build.neg(build.elementwise(op, x))
    return x


def deep(x: UOp) -> bool:
    return len(toposort([x])) >= N // 2


def moved(node: UOp) -> bool:
    y = build.param(1, F, ())
    return substitute([node], {X: y})[0] is chain(y)


def rewritten(node: UOp) -> bool:
    a = var("a")
    twice = RuleSet([RewriteRule(UPat(ops.NEG, (UPat(ops.EXP, (a,)),)), lambda a: build.neg(a),
                                 name="x")])
    (got,) = graph_rewrite([node], twice)
    return len(toposort([got])) == N // 2 + 1


def known(node: UOp) -> bool:
    with scope.Scope("grad") as opened:
        leaf = opened.leaf(F, (), build.const(0.5, F))
        (moved,) = substitute([node], {X: leaf})
        return scope.resolve_leaves(moved) is not None


def differentiated(node: UOp) -> bool:
    _, (ct,) = pullback([chain(X, ops.SIN, N // 4)], [Cotangent(build.const(1, F))], [X])
    assert ct is not None
    return len(toposort([ct.value])) > N // 2


def rebuilt(node: UOp) -> bool:
    node = chain(n=N // 5)  # limited by the time of Python's parser
    return show.from_python(show.to_python(node)) is node


def evaluated(node: UOp) -> bool:
    x = build.param(0, F, ())
    return bool(evaluate([chain(x, ops.ABS)], {x: np.float32(2)})[0] == -2)


def legal(node: UOp) -> bool:
    spec.check([build.function([node], 1)], "tensor")
    return True


WALKS: dict[str, Callable[[UOp], Any]] = {
    "toposort": deep, "digest": lambda n: len(n.digest()) == 16, "substitute": moved,
    "consumers": lambda n: len(consumers(toposort([n]))) == N + 1, "rewrite": rewritten,
    "spec": legal, "interpreter": evaluated, "scope": known, "reverse mode": differentiated,
    "text": lambda n: show.pretty(n).count("\n") > N // 20, "source": rebuilt,
    "drawing": lambda n: show.dot(n).count("->") == N,
}


@pytest.fixture(scope="module")
def node() -> Iterator[UOp]:
    """Return the chain; after the last test its memory is freed without recursion."""
    made = chain()
    yield made


@pytest.mark.cases(1)
@pytest.mark.parametrize("walk", WALKS)
def test_walks(walk: str, node: UOp) -> None:
    assert WALKS[walk](node)


@pytest.mark.cases(3)
@pytest.mark.parametrize("step", TENSOR_PASSES, ids=lambda step: step.name)
def test_tensor_passes(step: Any, node: UOp) -> None:
    fn = build.function([node], 1, "deep")
    assert deep((step.run(fn, Target("cpu")) if step.takes_target else step.run(fn)).src[0])


def test_decompose() -> None:
    x = build.var(0, dtypes.uint32)
    y = x
    for _ in range(N):
        y = build.add(y, x)
    target = Target("cpu", fma=True)
    assert ops.IDIV not in {n.op for n in toposort([decompose(build.idiv(x, y), target)])}


@pytest.mark.parametrize("make", [build.add, build.minimum], ids=["add", "minimum"])
def test_bounds_of_an_index(make: Callable[[UOp, UOp], UOp]) -> None:
    node = build.range_(7, 0)
    for i in range(N):
        node = make(node, build.index_const(i % 5 + 7))
    low, high = symbolic.bounds(node)
    assert low <= high
    assert symbolic.simplify(node).op in (ops.ADD, ops.RANGE)


def test_text_of_a_kernel() -> None:
    i = build.range_(4, 0)
    x, o = (build.index_into(build.ref(slot, F, (4,)), i) for slot in range(2))
    kernel = build.kernel([build.store(o, chain(build.load(x), n=N // 5))], "deep", [0])
    assert show.pretty(kernel).count("\n") > N // 200
