"""Signatures: values that Python considers equal do not share a trace; fast paths check the
same."""

import dataclasses
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import fnx.numpy as jnp
from fnx import jit
from fnx.core.array import pytree_registry
from fnx.core.array.array import Array
from fnx.core.support.errors import DonatedError, DTypeError, LeakedTracerError, OutOfMemoryError
from fnx.transforms.dispatch.fastpath import MISS


@dataclasses.dataclass(frozen=True)
class Options:
    scale: Any


@pytree_registry.register_dataclass
@dataclasses.dataclass
class Layer:
    w: Any
    scale: Any = dataclasses.field(default=1, metadata={"static": True})


class Swapped(namedtuple("Swapped", "a b")):
    """Named tuples whose children are in reverse order."""


pytree_registry.register_pytree_node(
    Swapped, lambda p: ((p.b, p.a), None), lambda d, xs: Swapped(*xs[::-1]))


@pytest.mark.parametrize("make", [lambda s: s, lambda s: (s,), lambda s: ((s, 1),), Options],
                         ids=["scalar", "tuple", "nested", "dataclass"])
@pytest.mark.parametrize("by_name", [False, True])
def test_static_values_are_told_apart_exactly(make: Any, by_name: bool) -> None:
    def scale(s: Any) -> Any:
        while isinstance(s, tuple):
            s = s[0]
        return s.scale if isinstance(s, Options) else s

    f = jit(lambda x, s: x * scale(s), static_argnames="s")
    x = jnp.arange(3)
    for s in (2, 2.0, 2, 1, True, 1.0, True):
        value = make(s)
        for _ in range(2):
            out = f(x, s=value) if by_name else f(x, value)
            want = x * s
            assert out.dtype == want.dtype and out.tolist() == want.tolist()
    assert f.cache_info().traces == 5


def test_zero_has_a_sign() -> None:
    f = jit(lambda x, s: x / s, static_argnums=1)
    x = jnp.ones(1)
    for s in (0.0, -0.0, 0.0, -0.0):
        with np.errstate(all="ignore"):
            assert f(x, s).tolist() == (np.ones(1) / s).tolist()


def test_static_fields_of_containers_are_told_apart() -> None:
    f = jit(lambda layer: layer.w * layer.scale)
    for scale, dtype in ((2, np.int32), (2.0, np.float32), (2, np.int32)):
        assert f(Layer(jnp.arange(3), scale)).dtype == dtype


def test_a_registered_named_tuple_is_what_its_functions_say() -> None:
    f = jit(lambda p: Swapped(p.a * 10, p.b))
    for _ in range(3):
        out = f(Swapped(jnp.ones(2), jnp.zeros(2)))
        assert type(out) is Swapped
        assert out.a.tolist() == [10, 10] and out.b.tolist() == [0, 0]


def test_trees_by_name_take_the_launcher() -> None:
    f = jit(lambda p: p["a"] + p["b"])
    p = {"a": jnp.ones(2), "b": jnp.ones(2)}
    for _ in range(2):
        f(p=p)
    launch, = f._launchers
    assert launch((), {"p": p}).tolist() == [2, 2]
    assert launch((p,), {}) is MISS and launch((), {"p": p, "q": 1}) is MISS


def test_registered_types_take_the_launcher() -> None:
    f = jit(lambda layer, more: (Layer(layer.w * layer.scale, layer.scale), more))
    x = jnp.ones(2)
    for _ in range(2):
        f(Layer(x, 2), [Swapped(x, x)])
    launch, = f._launchers
    layer, (pair,) = launch((Layer(x, 2), [Swapped(x * 3, x)]), {})
    assert type(layer) is Layer and layer.w.tolist() == [2, 2] and layer.scale == 2
    assert type(pair) is Swapped and pair.a.tolist() == [3, 3]
    for other in ((Layer(x, 2.0), [Swapped(x, x)]), (Layer(x, True), [Swapped(x, x)]),
                  (Layer((x, x), 2), [Swapped(x, x)]), ((x, 2), [Swapped(x, x)]),
                  (Layer(x, 2), [(x, x)]), (Layer(jnp.ones(3), 2), [Swapped(x, x)])):
        assert launch(other, {}) is MISS


class Row:
    """A container with any number of children."""

    def __init__(self, *xs: Any) -> None:
        self.xs = xs


pytree_registry.register_pytree_with_keys(
    Row, lambda r: ([(pytree_registry.SequenceKey(i), x) for i, x in enumerate(r.xs)], None),
    lambda _, xs: Row(*xs))


def test_a_registered_type_may_have_another_number_of_children() -> None:
    f = jit(lambda row: Row(*[x + 1 for x in row.xs]))
    for n in (2, 2, 3, 2, 0, 3):
        assert [x.tolist() for x in f(Row(*[jnp.ones(1)] * n)).xs] == [[2]] * n
    assert f.cache_info().traces == 3


def test_donation_counts_from_the_end() -> None:
    f = jit(lambda x, y: x + y, donate_argnums=-1)
    x = jnp.ones(3)
    for _ in range(3):
        y = jnp.ones(3)
        f(x, y)
        assert y.is_deleted() and not x.is_deleted()
    with pytest.raises(DonatedError):
        f(x, y)


def test_an_array_rebound_at_each_call_makes_no_launcher_each_time(monkeypatch: Any) -> None:
    from fnx.transforms import jit as module

    made: list[Any] = []

    def counted(*args: Any) -> Any:
        made.append(args)
        return make(*args)

    make = module.make_fastpath
    monkeypatch.setattr(module, "make_fastpath", counted)
    w: Array = jnp.ones(2)
    f = jit(lambda x: x * w)
    for i in range(5):
        w = jnp.ones(2) * i
        assert f(jnp.ones(2)).tolist() == [i, i]
    assert not made
    for _ in range(3):
        assert f(jnp.ones(2)).tolist() == [4, 4]
    assert len(made) == 1


def test_a_signature_without_launcher_is_not_tried_again(monkeypatch: Any) -> None:
    from fnx.transforms import jit as module

    f = jit(lambda p: p[0,] + 1)
    for _ in range(2):
        f({(0,): jnp.ones(2)})
    monkeypatch.setattr(module, "make_fastpath", None)
    assert f({(0,): jnp.ones(2)}).tolist() == [2, 2]


def test_recently_used_signatures_stay(monkeypatch: Any) -> None:
    from fnx.transforms.dispatch import trace_cache

    monkeypatch.setattr(trace_cache, "MAX_SIGNATURES", 2)
    f = jit(lambda p: p[0,] + 1)  # no fast path: keys that are neither str nor int
    for n in (1, 2, 1, 3, 1):
        f({(0,): jnp.ones(n)})
    assert f.cache_info().traces == 3


def test_a_value_that_cannot_be_printed_does_not_fail_the_call() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError

    value: Any = Mute()
    f = jit(lambda x: x if value is None else x + 1)
    assert f(jnp.ones(1)).tolist() == [2]
    value = None
    assert f(jnp.ones(1)).tolist() == [1]


def test_a_tracer_left_in_a_variable_is_refused_also_where_its_trace_is_kept() -> None:
    box: Any = None
    inner = jit(lambda x: x * box)

    def outer(x: Array) -> Array:
        nonlocal box
        box = x
        return inner(x)

    assert jit(outer)(jnp.ones(2)).tolist() == [1, 1]
    for _ in range(2):
        with pytest.raises(LeakedTracerError):
            inner(jnp.ones(2))


def test_keys_that_are_equal_but_of_another_type_are_another_signature() -> None:
    f = jit(lambda p: {k: v + 1 for k, v in p.items()})
    for _ in range(3):
        for key in (1, True, 1.0, "1"):
            found, = f({key: jnp.ones(2)})
            assert (found, type(found)) == (key, type(key))


def test_static_arguments_by_name_have_a_launcher() -> None:
    f = jit(lambda x, n, y=0: x * n + y, static_argnames="n")
    for n in (2, 2.0, True, 2, 3):
        for named in ({}, {"y": jnp.ones(2)}):
            for _ in range(2):
                got = f(jnp.arange(2), n=n, **named)
                want = jnp.arange(2) * n + named.get("y", 0)
                assert (got.dtype, got.tolist()) == (want.dtype, want.tolist())
    assert len(f._launchers) == 1 and f.cache_info().hits == 12


def test_many_signatures_in_turn_have_launchers() -> None:
    f = jit(lambda x, y: x + y)
    for _ in range(4):
        for n in range(1, 12):
            for y in (1, 1.0, jnp.ones(n), np.float32(1)):
                assert f(jnp.ones(n), y).shape == (n,)
    assert f.cache_info().traces == 44 and f.cache_info().hits == 3 * 44


@pytest.mark.parametrize("x", [1.5, -0.0, 1e300, -1e39, 1e-45, float("inf"), float("nan"), 3, -7,
                               2 ** 31 - 1, -2 ** 31, True, np.float32(2), np.float64(1e300),
                               np.float64(0.1), np.int8(-3), np.uint32(2 ** 32 - 1), np.bool_(1),
                               np.float16(1.5), np.int64(7), np.array(4.0)])
def test_numbers_are_the_same_by_way_of_the_launcher(x: Any) -> None:
    f = jit(lambda x: x)
    first, then = f(x), f(x)
    want = jnp.asarray(x)
    for got in (first, then):
        assert (got.dtype, got.weak_type) == (want.dtype, want.weak_type)
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


def test_an_argument_that_has_no_memory_is_no_argument_of_a_wrong_type() -> None:
    large = np.broadcast_to(np.float32(1), (1 << 44,))
    f = jit(lambda x, y: x[0] + y)
    with pytest.raises(OutOfMemoryError, match="argument kwargs.* of .*: .* bytes") as why:
        f(jnp.ones(2), y=large)
    assert "static" not in why.value.hint
    with pytest.raises(DTypeError, match="argument .* of .*: expected an array or a number"):
        f("text", 1.0)
