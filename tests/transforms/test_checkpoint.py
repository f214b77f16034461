"""checkpoint: the same derivatives with fewer residuals, recomputed in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.ad_checkpoint import checkpoint_name
from fnx.core.ir import accessors
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 8)).astype("f4")
W = RNG.standard_normal((8, 8)).astype("f4") / 3
POLICIES = fnx.checkpoint_policies


def layer(x: Any, w: Any) -> Any:
    h = checkpoint_name(jnp.sin(x @ w), "hidden")
    return jnp.tanh(h / (1 + (h * h).sum(-1, keepdims=True)))


def loss(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w: (f(f(x, w), w) ** 2).sum()


ALL = {
    "none": None, "nothing": POLICIES.nothing_saveable, "everything": POLICIES.everything_saveable,
    "dots": POLICIES.dots_saveable, "plain dots": POLICIES.dots_with_no_batch_dims_saveable,
    "names": POLICIES.save_only_these_names("hidden"),
    "other names": POLICIES.save_any_names_but_these("hidden"),
    "unnamed": POLICIES.save_anything_except_these_names("hidden"),
    "both": POLICIES.save_from_both_policies(POLICIES.dots_saveable,
                                             POLICIES.save_only_these_names("hidden")),
    "offloaded": POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"]),
}


def derivatives(f: Callable[..., Any]) -> list[Any]:
    """Return the derivatives by five compositions of modes."""
    x, w = (jnp.asarray(a, dtype="float64") for a in (X, W))
    return fnx.tree.leaves([derive(x, w) for derive in (
        fnx.grad(loss(f), (0, 1)),
        fnx.jit(fnx.grad(loss(f), (0, 1))),
        fnx.vmap(fnx.grad(loss(f), (0, 1)), (0, None)),
        lambda x, w: fnx.jvp(fnx.grad(loss(f), 1), (x, w), (x, w))[1],
        fnx.grad(lambda x, w: fnx.jvp(loss(f), (x, w), (x, w))[1]))])


def device_of(policy: str) -> str:
    """One policy runs compiled; of the others the interpreter computes what was derived."""
    return "cpu" if policy == "names" else "interp"


@cache
def derivatives_without() -> list[Any]:
    """Return the derivatives without a checkpoint, which are the same for all policies."""
    with override(device="interp"):
        return [np.asarray(a) for a in derivatives(layer)]


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ALL)
def test_derivatives_are_the_same(name: str) -> None:
    with override(device=device_of(name)):
        got = derivatives(fnx.checkpoint(layer, policy=ALL[name]))
    for a, b in zip(got, derivatives_without(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def contractions(f: Callable[..., Any]) -> int:
    """Return how often a gradient in x computes a matrix product."""
    stages = fnx.jit(fnx.grad(loss(f))).lower(X, W)
    return sum(k.name.startswith("contract") for k in stages.kernels)


# sin' needs the product from which "hidden" is computed
AGAIN = {"none": 2, "nothing": 2, "everything": 0, "dots": 0, "plain dots": 0,
         "names": 2, "other names": 2, "unnamed": 0, "both": 0, "offloaded": 2}


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", ALL)
def test_a_policy_says_what_is_computed_again(name: str) -> None:
    """Two products forward; two backward, one for each layer; and the recomputed ones."""
    assert contractions(layer) == 4
    assert contractions(fnx.checkpoint(layer, policy=ALL[name])) == 4 + AGAIN[name]


@pytest.mark.cases(3, of="scans")
def test_a_named_value_is_kept() -> None:
    def f(x: Any, w: Any) -> Any:
        return jnp.sin(checkpoint_name(x @ w, "product")) * 2
    assert contractions(f) == 4
    keep = POLICIES.save_only_these_names
    assert contractions(fnx.checkpoint(f, policy=keep("product"))) == 4
    assert contractions(fnx.checkpoint(f, policy=keep("other"))) == 6
    inner = fnx.checkpoint(lambda x, w: fnx.jit(f)(x, w), policy=keep("product"))
    assert contractions(inner) == 4


def test_products_with_a_batch_axis() -> None:
    a, b = (RNG.standard_normal((3, 4, 4)).astype("f4") for _ in range(2))

    def f(a: Any, b: Any) -> Any:
        return jnp.sin(a @ b)

    def count(policy: Any) -> int:
        g = fnx.checkpoint(f, policy=policy)
        stages = fnx.jit(fnx.value_and_grad(lambda a, b: g(a, b).sum())).lower(a, b)
        return sum(k.name.startswith("contract") for k in stages.kernels)
    assert count(POLICIES.dots_saveable) == 2
    assert count(POLICIES.dots_with_no_batch_dims_saveable) == 3


def network(f: Callable[..., Any]) -> Callable[..., Any]:
    def loss(ws: Any, x: Any) -> Any:
        for i in range(0, 20, 5):
            x = f(x, ws[i:i + 5])
        return (x * x).sum()
    return loss


def segment(x: Any, ws: Any) -> Any:
    for w in ws:
        x = jnp.tanh(x @ w)
    return x


def test_a_deep_network_needs_less_memory_and_the_kernels_that_were_asked_for() -> None:
    x = RNG.standard_normal((256, 64)).astype("f4")
    ws = [RNG.standard_normal((64, 64)).astype("f4") / 8 for _ in range(20)]
    plain = fnx.jit(fnx.grad(network(segment)))
    less = fnx.jit(fnx.grad(network(fnx.checkpoint(segment))))
    for a, b in zip(plain(ws, x), less(ws, x)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    stages, fewer = plain.lower(ws, x), less.lower(ws, x)
    assert len(fewer.kernels) == len(stages.kernels) + 20  # one more of each product
    activation = x.nbytes
    assert stages.arena >= 19 * activation
    assert fewer.arena <= 10 * activation  # the inputs of three segments, and the inside of one


def test_what_is_computed_again_waits_for_its_cotangent() -> None:
    """The last segment is recomputed first, the first one last."""
    def f(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)

    def loss(w1: Any, w2: Any, x: Any) -> Any:
        g = fnx.checkpoint(lambda x, w: f(f(x, w), w))
        return (g(g(x, w1), w2) ** 2).sum()
    stages = fnx.jit(fnx.grad(loss)).lower(W, W + 1, X)
    commands = stages.commands.src
    reads = [{s.arg.index for s in c.src[1:] if s.op.name == "SLOT" and s.arg.kind == "in"}
             for c in commands]
    first = [i for i, r in enumerate(reads) if 0 in r]   # reads w1
    second = [i for i, r in enumerate(reads) if 1 in r]  # reads w2
    assert max(second) < first[2], "the first segment was computed again too early"


def test_without_prevent_cse_both_may_be_one() -> None:
    assert contractions(fnx.checkpoint(layer, prevent_cse=False)) <= \
        contractions(fnx.checkpoint(layer))


@pytest.mark.cases(3, of="scans")
def test_nested() -> None:
    inner = fnx.checkpoint(layer)
    outer = fnx.checkpoint(lambda x, w: inner(inner(x, w), w))
    got = fnx.jit(fnx.grad(lambda x, w: (outer(x, w) ** 2).sum(), (0, 1)))(X, W)
    for a, b in zip(got, fnx.grad(loss(layer), (0, 1))(X, W)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    stages = fnx.jit(fnx.grad(lambda x, w: (outer(x, w) ** 2).sum())).lower(X, W)
    assert sum(k.name.startswith("contract") for k in stages.kernels) >= 4 + 2 + 1


@pytest.mark.cases(3, of="scans")
def test_in_the_body_of_a_scan() -> None:
    def total(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w: (fnx.lax.scan(lambda x, _: (f(x, w), None), x, None, 4)[0] ** 2).sum()
    for transform in (lambda f: fnx.grad(f, (0, 1)), lambda f: fnx.jit(fnx.grad(f, (0, 1)))):
        got, want = (transform(total(f))(X, W) for f in (fnx.checkpoint(layer), layer))
        for a, b in zip(got, want):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_static_arguments_and_trees() -> None:
    @fnx.checkpoint
    def f(p: Any) -> Any:
        return {"y": jnp.sin(p["x"]) * p["n"]}
    assert float(fnx.grad(lambda x: f({"x": x, "n": 3})["y"])(0.0)) == 3

    g = fnx.remat(lambda x, n, flag: jnp.sin(x) * n if flag else x, static_argnums=(1, 2))
    assert float(fnx.grad(g)(0.0, 3, True)) == 3
    assert float(fnx.grad(g)(0.0, 3, False)) == 1
    h = fnx.checkpoint(static_argnames="n")(lambda x, *, n: x ** n)
    assert float(fnx.grad(h)(2.0, n=2)) == 4


def test_a_capture_is_differentiated() -> None:
    def outer(w: Any) -> Any:
        return fnx.checkpoint(lambda x: jnp.sin(w * x))(2.0)
    assert float(fnx.grad(outer)(0.0)) == 2


def test_random_numbers_come_again() -> None:
    key = fnx.random.key(0)

    def f(x: Any) -> Any:
        return x * x * fnx.random.bernoulli(key, 0.5, (64,))
    x = RNG.standard_normal(64).astype("f4")
    np.testing.assert_array_equal(fnx.grad(lambda x: fnx.checkpoint(f)(x).sum())(x),
                                  fnx.grad(lambda x: f(x).sum())(x))


def test_arguments() -> None:
    with pytest.raises(ArgumentError, match="concrete=False"):
        fnx.checkpoint(layer, concrete=True)
    with pytest.raises(ArgumentError, match=r"a policy of fnx.checkpoint_policies(.|\n)*names"):
        fnx.checkpoint(layer, policy=lambda *_: True)  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="expected names, got list"):
        POLICIES.save_only_these_names(["a"])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="checkpoint: expected a function, got int"):
        fnx.checkpoint(3)  # type: ignore[call-overload]


def test_optimization_barrier() -> None:
    def f(x: Any) -> Any:
        first = jnp.sum(x * x, -1)
        x, first = fnx.lax.optimization_barrier((x, first))
        return first * jnp.sum(x * x, -1)
    np.testing.assert_allclose(fnx.jit(f)(X), (X * X).sum(-1) ** 2, rtol=1e-5)
    np.testing.assert_allclose(fnx.vmap(f)(X), f(X), rtol=1e-6)
    np.testing.assert_allclose(fnx.grad(lambda x: f(x).sum())(X),
                               4 * X * (X * X).sum(-1, keepdims=True), rtol=1e-4)
    _, t = fnx.jvp(f, (X,), (X,))
    np.testing.assert_allclose(t, 4 * (X * X).sum(-1) ** 2, rtol=1e-4)


# ---- values in loops and branches ----------------------------------------------------------------


def recurrent(kind: str) -> Callable[..., Any]:
    """Return a loss of (x, w) whose steps have two products and a named value."""
    def step(h: Any, w: Any) -> Any:
        a = checkpoint_name(h @ w, "hidden")
        return jnp.tanh(jnp.sin(a) @ w)

    def scan(x: Any, w: Any) -> Any:
        return fnx.lax.scan(lambda h, _: (step(h, w), h.sum()), x, None, 5)

    def cond(x: Any, w: Any) -> Any:
        return fnx.lax.cond(x[0, 0] > 0, step, lambda h, w: h * w[0, 0], x, w)

    def both(x: Any, w: Any) -> Any:
        return fnx.lax.scan(lambda h, i: (fnx.lax.cond(i < 2, step, lambda h, w: jnp.sin(h),
                                                       h, w), None), x, jnp.arange(4))[0]

    def nested(x: Any, w: Any) -> Any:
        return fnx.lax.scan(lambda h, _: (scan(h, w)[0], None), x, None, 2)[0]

    def loop(x: Any, w: Any) -> Any:
        return fnx.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, step(c[1], w)),
                                  (0, x))[1]
    return {"scan": scan, "cond": cond, "cond in scan": both, "scan in scan": nested,
            "while": loop, "jit in scan": lambda x, w: fnx.lax.scan(
                lambda h, _: (fnx.jit(step)(h, w), None), x, None, 5)}[kind]


def squares(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w: sum((y ** 2).sum() for y in fnx.tree.leaves(f(x, w)))


KINDS = ["scan", "cond", "cond in scan", "scan in scan", "while", "jit in scan"]


def derivatives_through(f: Callable[..., Any], kind: str) -> list[Any]:
    """Return the derivatives of a function that ``recurrent`` makes, also batched, and by forward
    over reverse."""
    x, w = (jnp.asarray(a, dtype="float64") for a in (X, W))
    found = [fnx.jit(fnx.grad(squares(f), (0, 1)))(x, w),
             fnx.jit(fnx.vmap(fnx.grad(squares(f), (0, 1)), (0, None)))(jnp.stack([x, -x]), w)]
    if kind != "while":
        found.append(fnx.jit(lambda x, w: fnx.jvp(fnx.grad(squares(f), 1), (x, w), (x, w))[1])(
            x, w))
    return fnx.tree.leaves(found)


@cache
def derivatives_through_without(kind: str) -> list[Any]:
    """Return the derivatives without a checkpoint, which are the same for all policies."""
    with override(device="interp"):
        return [np.asarray(a) for a in derivatives_through(recurrent(kind), kind)]


@pytest.mark.cases(1)
# The other kinds have two policies: nothing is saved, and one of two values.
@pytest.mark.parametrize("kind, name", [
    (kind, name) for kind in KINDS for name in ("nothing", "dots", "names", "unnamed", "both")
    if kind == "scan" or name in ("nothing", "names")])
def test_derivatives_through_bodies_are_the_same(kind: str, name: str) -> None:
    with override(device=device_of(name)):
        got = derivatives_through(fnx.checkpoint(recurrent(kind), policy=ALL[name]), kind)
    for a, b in zip(got, derivatives_through_without(kind), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def products(f: Callable[..., Any]) -> int:
    """Count the launches of a gradient that multiply matrices; those in the body of a loop count
    once."""
    x, w = np.tile(X, (4, 4)), np.tile(W, (4, 4)) / 4  # too large for a loop in one kernel
    stages = fnx.jit(fnx.grad(squares(f), (0, 1))).lower(x, w)
    return sum(e.src[0].arg.name.startswith("contract")
               for e in accessors.all_execs(stages.commands))


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", ["scan", "cond", "jit in scan", "scan in scan"])
def test_policies_reach_into_bodies(kind: str) -> None:
    """Those of a step's two products that the policy saves are not recomputed."""
    f = recurrent(kind)
    plain = products(f)
    again = {name: products(fnx.checkpoint(f, policy=ALL[name])) - plain
             for name in ("nothing", "dots", "names", "unnamed")}
    assert again == {"nothing": 2, "dots": 0, "names": 1, "unnamed": 0}


def planned(f: Callable[..., Any], *args: Any) -> tuple[int, int]:
    """Return a gradient's number of launches that multiply matrices, and its planned peak in
    bytes."""
    stages = fnx.jit(fnx.grad(f)).lower(*args)
    launches = accessors.all_execs(stages.commands)
    return sum(e.src[0].arg.name.startswith("contract") for e in launches), stages.arena


@pytest.mark.cases(3, of="scans")
def test_several_loops_in_checkpoints_need_the_memory_of_one() -> None:
    x, w = RNG.standard_normal((64, 32)).astype("f4"), RNG.standard_normal((32, 32)).astype("f4")

    def recurrent(x: Any, w: Any, checkpoint: int | None = None) -> Any:
        return fnx.lax.scan(lambda h, _: (jnp.tanh(checkpoint_name(h @ w, "product") @ w), None),
                            x, None, 16, checkpoint=checkpoint)[0]

    def chain(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda w, x: (f(f(f(f(x, w), w), w), w) ** 2).sum()

    def segments(x: Any, w: Any) -> Any:
        return recurrent(x, w, 4)

    keep = POLICIES.save_only_these_names("product")
    plain, names, nothing, cut, both = (planned(chain(f), w, x) for f in (
        recurrent, fnx.checkpoint(recurrent, policy=keep), fnx.checkpoint(recurrent), segments,
        fnx.checkpoint(segments)))
    print(f"products, bytes: plain {plain}, names {names}, nothing {nothing}, "
          f"checkpoint=4 {cut}, checkpoint=4 in a checkpoint {both}")
    state = x.nbytes
    assert plain[1] > 4 * 2 * 16 * state       # two products of each step
    assert names[1] < 6.5 * 16 * state         # one of each step, and the inside of one loop
    assert nothing[1] < 4 * 16 * state         # the inside of one loop
    assert both[1] < cut[1] < plain[1] / 2
    assert plain[0] + 4 == names[0] and plain[0] + 8 == nothing[0], "what is not kept comes again"


@pytest.mark.cases(3, of="scans")
def test_a_checkpoint_in_a_scan_keeps_what_a_step_begins_with() -> None:
    x, w = RNG.standard_normal((64, 32)).astype("f4"), RNG.standard_normal((32, 32)).astype("f4")

    def layers(h: Any, w: Any) -> Any:
        for _ in range(4):
            h = jnp.sin(h @ w)
        return h

    def loss(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda w, x: (fnx.lax.scan(lambda h, _: (f(h, w), None), x, None, 16)[0] ** 2).sum()

    plain, kept = (planned(loss(f), w, x) for f in (layers, fnx.checkpoint(layers)))
    print(f"products, bytes: plain {plain}, checkpoint {kept}")
    assert kept[0] == plain[0] + 4
    assert plain[1] > 4 * 16 * x.nbytes
    assert kept[1] < 2.2 * 16 * x.nbytes
