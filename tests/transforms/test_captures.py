"""Captures: which outside values a trace depends on, and that each is seen when it is rebound."""

import collections
import dis
import functools
from types import CodeType
from typing import Any

import pytest

from fnx import grad, jit
from fnx.core.array import indexing, tree
from fnx.core.array.array import Array, asarray
from fnx.transforms import grad as grad_module
from fnx.transforms.replay import captures
from fnx.transforms.replay.captures import Captures

SCALE = 2.0
FIRST = SECOND = None
RENAMED: Any = None


def scaled(x: Any) -> Any:
    return x * SCALE


def squared(x: Any) -> Any:
    return x * x * SCALE


LOSS = jit(squared)
SLOPE, CURVE = grad(LOSS), grad(grad(squared))


def applied(f: Any, x: Any) -> Any:
    return f(x)


def of_default(x: Any, f: Any = scaled) -> Any:
    return f(x)


def of_keyword(x: Any, *, f: Any = scaled) -> Any:
    return f(x)


@pytest.mark.parametrize("f", [
    scaled,
    lambda x: SLOPE(x),
    lambda x: CURVE(x),
    of_default,
    of_keyword,
    functools.partial(applied, scaled),
    functools.partial(applied, f=scaled),
    lambda x: [scaled(x) for _ in range(2)][1],
], ids=["global", "grad of jit", "grad of grad", "default", "keyword default", "partial",
        "partial by name", "inner function"])
def test_a_global_is_watched_however_its_reader_is_reached(f: Any) -> None:
    global SCALE
    named = isinstance(f, functools.partial) and f.keywords
    g = jit(f)
    x = asarray(3.0)
    call = (lambda: g(x=x)) if named else (lambda: g(x))
    try:
        before = [float(call()) for _ in range(2)]
        SCALE = 20.0
        assert [float(call()) for _ in range(2)] == [10 * y for y in before]
    finally:
        SCALE = 2.0


def test_of_two_names_of_one_array_each_may_be_rebound() -> None:
    global FIRST, SECOND
    FIRST = SECOND = asarray([1.0])
    f = jit(lambda x: x + FIRST - SECOND)
    assert f(asarray([0.0])).tolist() == [0]
    FIRST = asarray([5.0])
    assert f(asarray([0.0])).tolist() == [4]
    SECOND = asarray([2.0])
    assert f(asarray([0.0])).tolist() == [3]


def test_an_attribute_is_not_the_global_of_its_name() -> None:
    global RENAMED
    holder = collections.namedtuple("holder", "RENAMED")(asarray([1.0]))
    RENAMED = holder.RENAMED
    f = jit(lambda x: x * holder.RENAMED)
    assert f(asarray([3.0])).tolist() == [3]
    RENAMED = asarray([7.0])
    assert f(asarray([3.0])).tolist() == [3] and f.cache_info().traces == 1


def test_a_global_that_comes_later_hides_a_builtin() -> None:
    f = jit(lambda x: x * abs(-2))
    x = asarray([1.0])
    assert f(x).tolist() == [2]
    try:
        globals()["abs"] = lambda value: 7
        assert f(x).tolist() == [7]
    finally:
        del globals()["abs"]
    assert f(x).tolist() == [2]


def test_a_place_is_watched_once() -> None:
    def other(x: Array) -> Array:
        return scaled(x) * SCALE

    names = [name for _, name, _ in Captures(lambda x: other(scaled(x)) * SCALE).entries]
    assert sorted(names) == ["SCALE", "other", "scaled"]


def _codes(code: CodeType) -> list[CodeType]:
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [code, *[d for c in inner for d in _codes(c)]]


@pytest.mark.parametrize("module", [tree, indexing, captures, grad_module])
def test_global_names_are_those_that_dis_shows(module: Any) -> None:
    with open(module.__file__) as f:
        whole = compile(f.read(), module.__file__, "exec")
    for code in _codes(whole):
        shown = {i.argval for c in _codes(code) for i in dis.get_instructions(c)
                 if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        assert set(captures._global_names(code)) == shown
