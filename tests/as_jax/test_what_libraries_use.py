"""``jax.example_libraries.optimizers``, and what libraries lean on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.as_jax import optimizers, stax
from fnx.as_jax.internal_names import INTERNAL
from fnx.as_jax.messages import words_of_jax
from fnx.core.array.abstract_values import JVPTracer, get_aval
from fnx.core.scope import scope
from fnx.errors import FnxError, LeakedTracerError, NotBuiltError
from fnx.experimental import checkify
from fnx.interpreters import ad, batching


@pytest.mark.cases(1)
@pytest.mark.parametrize("make", [
    lambda: optimizers.sgd(0.1), lambda: optimizers.momentum(0.05, 0.9),
    lambda: optimizers.nesterov(0.05, 0.9), lambda: optimizers.adagrad(0.5),
    lambda: optimizers.rmsprop(0.05), lambda: optimizers.rmsprop_momentum(0.02),
    lambda: optimizers.adam(optimizers.polynomial_decay(0.3, 60, 0.01)),
    lambda: optimizers.adamax(0.3), lambda: optimizers.sm3(0.5)])
def test_optimizers_find_a_minimum(make: Callable[[], optimizers.Optimizer]) -> None:
    init, update, get_params = make()
    state = init({"a": jnp.array([1.0, -2.0]), "b": [jnp.array([[3.0]])]})
    start = optimizers.l2_norm(get_params(state))
    for i in range(60):
        state = update(i, get_params(state), state)  # the gradient of half the squares
    assert optimizers.l2_norm(get_params(state)) < 0.2 * start
    packed = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state))
    assert packed.tree_def == state.tree_def and packed.subtree_defs == state.subtree_defs


def test_choice_by_weights_without_replacement() -> None:
    draws = fnx.vmap(lambda key: fnx.random.choice(
        key, 5, (3,), replace=False, p=jnp.array([0.0, 1.0, 1.0, 2.0, 4.0])))(
            fnx.random.split(fnx.random.key(0), 200))
    assert all(len(set(row)) == 3 and 0 not in row for row in draws.tolist())
    counts = np.bincount(np.asarray(draws).ravel(), minlength=5)
    assert counts[4] > counts[3] > max(counts[1], counts[2])


def test_types_of_tangents_and_structs() -> None:
    assert get_aval(jnp.ones(2, int)).to_tangent_aval().str_short() == "float0[2]"
    assert get_aval(jnp.ones(2)).at_least_vspace().shape == (2,)
    struct = fnx.ShapeDtypeStruct((2,), "int32")
    assert fnx.eval_shape(lambda x: (struct, x), 1.0)[0] == struct
    assert jnp.reshape(jnp.ones(4), np.array([2, -1])).shape == (2, 2)

    @fnx.jit
    def rank(x: Any) -> Any:
        with fnx.ensure_compile_time_eval():
            return x * fnx.eval_shape(lambda: x).ndim
    assert rank(jnp.ones(2)).tolist() == [1.0, 1.0]


def test_rules_call_their_function_with_lists_as_static_arguments() -> None:
    def plain(options: Any, x: Any) -> Any:
        return x * options["scale"][0]
    f = fnx.custom_jvp(plain, nondiff_argnums=(0,))
    f.defjvp(lambda options, xs, ts: (f({**options}, xs[0]), f({**options}, ts[0])))
    assert fnx.jit(fnx.grad(lambda x: f({"scale": [3.0]}, x)))(2.0) == 3.0


def test_traced_values_belong_to_their_trace() -> None:
    seen = []

    def f(x: Any) -> Any:
        other = jnp.ones(2)
        main = scope.innermost().main
        seen.append([isinstance(y, JVPTracer) and y._trace.main is main for y in (x, x * 2, other)])
        return x
    fnx.jvp(f, (1.0,), (1.0,))
    assert seen == [[True, True, False]]
    assert ad.instantiate_zeros(ad.Zero(get_aval(jnp.ones(2, int)).to_tangent_aval())).shape == (2,)


def test_types_with_batching_rules_of_their_own_are_not_mapped_as_pytrees() -> None:
    class Pair(NamedTuple):
        x: Any
        shared: Any

    pair = Pair(jnp.ones(3), jnp.ones(3))
    assert fnx.vmap(lambda p: p.x + p.shared)(pair).shape == (3,)
    batching.register_vmappable(Pair, int, int, lambda *_: None, lambda *_: None, None)
    try:
        with pytest.raises(NotBuiltError, match="got a Pair"):
            fnx.vmap(lambda p: p.x + p.shared)(pair)
    finally:
        batching.unregister_vmappable(Pair)


def test_device_get_leaves_traced_arrays_as_they_are() -> None:
    fetched = fnx.vmap(fnx.grad(lambda x: 3 * fnx.device_get(x)))(jnp.ones(2))
    assert fetched.tolist() == [3, 3]


def test_types_of_arrays_have_a_sharding() -> None:
    sharding = fnx.typeof(jnp.ones((2, 3))).sharding
    assert sharding.is_fully_replicated and sharding.mesh.empty
    assert tuple(sharding.spec) == (None, None)


def test_layers_of_stax() -> None:
    init, apply = stax.serial(
        stax.Conv(4, (3, 3), padding="SAME"), stax.BatchNorm(), stax.Relu, stax.AvgPool((2, 2)),
        stax.FanOut(2), stax.parallel(stax.Identity, stax.Dropout(0.5)), stax.FanInConcat(),
        stax.Flatten, stax.shape_dependent(lambda shape: stax.Dense(shape[-1] // 8)), stax.Softmax)
    shape, params = init(fnx.random.key(0), (2, 5, 5, 3))
    out = apply(params, fnx.random.normal(fnx.random.key(1), (2, 5, 5, 3)), rng=fnx.random.key(2))
    assert shape == out.shape == (2, 16)
    np.testing.assert_allclose(np.asarray(out.sum(1)), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="PRNG key"):
        stax.Dropout(0.5)[1]((), jnp.ones(2))


def test_leaks_are_found_where_they_are_checked() -> None:
    held = []

    def keep(x: Any) -> Any:
        held.append(x)
        return x
    for transform in (fnx.jit, fnx.grad):
        transform(lambda x: keep(x) * 1.0)(1.0)
        with fnx.checking_leaks(), pytest.raises(LeakedTracerError, match="Leaked trace: "):
            transform(lambda x: keep(x) * 2.0)(1.0)
    with fnx.checking_leaks():
        assert fnx.jit(lambda x: (x, x * 3.0))(1.0)[1] == 3


def test_jaxprs_name_arguments_and_results() -> None:
    info = fnx.make_jaxpr(lambda a, n, *b, c: {"r": a, "s": c}, static_argnums=1)(
        1.0, 2, (3.0,), c=[4.0]).jaxpr.debug_info
    assert info.arg_names == ("a", "b[0][0]", "c[0]")
    assert info.result_paths == ("result['r']", "result['s'][0]")
    traced = fnx.jit(lambda x, n, y: x + y, static_argnums=1).trace(1.0, 2, 3.0)
    assert traced.jaxpr.jaxpr.debug_info.arg_names == ("x", "y")


def test_inline_puts_equations_in_the_place_of_a_call() -> None:
    for inline, names in ((True, ["sin", "neg"]), (False, ["jit", "neg"])):
        f = fnx.jit(jnp.sin, inline=inline)
        jaxpr = fnx.make_jaxpr(lambda x, f=f: -f(x))(1.0)
        assert [eqn.primitive.name for eqn in jaxpr.eqns] == names
        assert fnx.jit(fnx.grad(f))(0.0) == 1


def test_segments_and_pmap_broadcast_and_map_as_libraries_expect() -> None:
    assert fnx.ops.segment_sum(jnp.float32(2), jnp.array([0, 2, 0]), 3).tolist() == [4, 0, 2]
    x = jnp.ones((1, 2))
    assert fnx.pmap(lambda x, y: x + y)(x, y=x).tolist() == [[2, 2]]
    with pytest.raises(ValueError, match="^x is 3"):
        checkify.check(False, "x is {}", jnp.array(3))


def test_a_transformed_function_has_the_signature_of_the_function() -> None:
    """chex binds arguments by it, without the functions that a wrapper wraps."""
    def f(a: Any, *, b: int = 2) -> Any:
        return a * b
    for made in (fnx.jit(f, static_argnames="b"), fnx.vmap(f), fnx.jit(fnx.jit(f))):
        assert inspect.signature(made, follow_wrapped=False) == inspect.signature(f)
        assert list(inspect.signature(type(made)).parameters)


def test_messages_of_checks_have_arrays_and_keys() -> None:
    def f(x: Any, key: Any) -> Any:
        checkify.check(x > 0, "{!r} of {}", x, key)
        return x
    for checked in (checkify.checkify(f), fnx.jit(checkify.checkify(f))):
        error, _ = checked(jnp.float32(-1), fnx.random.key(3))
        assert error.get().startswith("Array(-1., dtype=float32) of Array((), dtype=key<fry>)")


@pytest.mark.parametrize(("call", "words"), [
    (lambda: jnp.broadcast_shapes((2,), (3,)),
     "Incompatible shapes for broadcasting: shapes=[(2,), (3,)]"),
    (lambda: jnp.broadcast_arrays(jnp.ones(2), jnp.ones(3)),
     "Incompatible shapes for broadcasting: shapes=[(2,), (3,)]"),
    (lambda: fnx.devices("tpu"), "Unknown backend tpu.")])
def test_errors_have_words_of_jax(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(FnxError) as raised:
        call()
    assert words_of_jax(str(raised.value)) == words


def test_safe_map_where_libraries_look_for_it() -> None:
    for module in ("jax.api_util", "jax._src.util"):
        assert INTERNAL[module]["safe_map"](lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6]
