"""Captures: which outer values a trace depends on, and that rebinding each is noticed."""

import collections
import dis
import functools
import warnings
import weakref
from types import CodeType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx import grad, jit
from fnx.core.array import indexing, tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.numpy import ufuncs as elementwise
from fnx.transforms import grad as grad_module
from fnx.transforms.dispatch import captures
from fnx.transforms.dispatch.captures import Captures

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


# ---- random programs that read outer variables, which are rebound between calls ------------------


class Holder:
    """A mutable object: traces depend on its identity, not on its contents."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _made(kind: str, number: int, arrays: list[Array]) -> Any:
    """Return a value to bind a name to. Arrays come from a pool, so that names share storage."""
    array = arrays[number]
    return {"array": array, "float": number / 2, "int": number, "flag": number % 2 == 0,
            "text": "abcd"[number], "dict": {"value": array}, "object": Holder(array),
            "function": lambda x: x * number + array,
            "jitted": jit(lambda x: x * number + array), "tuple": (array, number)}[kind]


def _used(x: Any, value: Any) -> Any:
    """Use a value that the program reads."""
    if isinstance(value, bool):
        return x + 1 if value else x - 1
    if isinstance(value, str):
        return x + len(value) + ord(value[0])
    if isinstance(value, dict):
        return x * 3 + value["value"]
    if isinstance(value, Holder):
        return x * 5 + value.value
    if isinstance(value, tuple):
        return x * 7 + value[0] * value[1]
    return value(x) if callable(value) else x * 2 + value


KINDS = st.sampled_from(["array", "array", "float", "int", "flag", "text", "dict", "object",
                         "function", "jitted", "tuple"])
VALUES = st.tuples(KINDS, st.integers(0, 3))
READS = st.lists(st.integers(0, 5), min_size=1, max_size=5)
REBINDINGS = st.lists(st.tuples(st.integers(0, 5), VALUES), max_size=12)
G0: Any = None
G1: Any = None
USED = _used


@settings(max_examples=120, deadline=None)
@given(st.lists(VALUES, min_size=6, max_size=6), READS, READS, REBINDINGS, st.booleans())
def test_jit_is_a_fresh_evaluation(start: list[Any], reads: list[int], deeper: list[int],
                                   steps: list[Any], nested: bool) -> None:
    """Two globals and four closure cells, some read through a helper or a nested jit."""
    global G0, G1
    arrays = [asarray([float(i + 1), -float(i)]) for i in range(4)]
    c0 = c1 = c2 = c3 = None

    def bind(place: int, value: Any) -> None:
        nonlocal c0, c1, c2, c3
        global G0, G1
        if place == 0:
            c0 = value
        elif place == 1:
            c1 = value
        elif place == 2:
            c2 = value
        elif place == 3:
            c3 = value
        elif place == 4:
            G0 = value
        else:
            G1 = value

    def helper(x: Any) -> Any:
        for k in deeper:
            x = USED(x, [c0, c1, c2, c3, G0, G1][k])
        return x

    inner = jit(helper) if nested else helper

    def program(x: Any) -> Any:
        for k in reads:
            x = USED(x, [c0, c1, c2, c3, G0, G1][k])
        return inner(x)

    f = jit(program)
    x = asarray([0.5, 2.0])
    for place, value in enumerate(start):
        bind(place, _made(*value, arrays))
    for place, value in [*steps[:1], *steps]:
        bind(place, _made(*value, arrays))
        for _ in range(2):  # the general path, then perhaps the fast path
            assert f(x).tolist() == program(x).tolist()


def test_a_name_is_never_put_in_the_place_of_another_read() -> None:
    w = asarray([1.0, 1.0])
    d, o = {"w": w}, Holder(w)
    f = jit(lambda x: x * w + d["w"] + o.value)
    x = asarray([1.0, 1.0])
    assert f(x).tolist() == [3, 3]
    w = asarray([0.0, 0.0])
    assert f(x).tolist() == [2, 2]
    assert f.cache_info().compiles == 2  # of one array, then of two


def test_what_toggles_is_neither_traced_nor_compiled_again() -> None:
    flag, rate = True, 0.5
    f = jit(lambda x: x * rate if flag else x - rate)
    x = asarray([4.0])
    for _ in range(5):
        for flag, rate in [(True, 0.5), (False, 0.5), (True, 0.25), (False, 0.25)]:
            assert f(x).tolist() == ([4 * rate] if flag else [4 - rate])
            rate = float(str(rate))  # equal, but another object
            assert f(x).tolist() == ([4 * rate] if flag else [4 - rate])
    assert (f.cache_info().traces, f.cache_info().compiles) == (4, 4)


def test_a_name_that_is_rebound_at_each_call_is_named_once() -> None:
    rate = 0.0
    f = jit(lambda x: x * rate)
    x = asarray([1.0])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for i in range(12):
            rate = i / 3
            f(x)
    assert [(w.category, w.filename) for w in said] == [(RuntimeWarning, __file__)]
    assert "'rate'" in str(said[0].message) and "pass it as an argument" in str(said[0].message)


def test_an_array_that_is_rebound_compiles_once_and_is_not_kept() -> None:
    w = asarray([0.0])
    f = jit(lambda x: x + w)
    gone = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(20):
            w = asarray([float(i)])
            gone.append(weakref.ref(w))
            assert f(asarray([1.0])).tolist() == [i + 1]
    assert f.cache_info().compiles == 1 and f.cache_info().entries <= 2
    assert sum(r() is not None for r in gone) <= 1


def test_without_an_array_a_name_is_none_and_not_the_array() -> None:
    w: Any = asarray([2.0])
    f = jit(lambda x: x if w is None else x * w)
    x = asarray([3.0])
    for _ in range(3):
        assert f(x).tolist() == [6]
    w = None
    for _ in range(3):
        assert f(x).tolist() == [3]


def test_what_public_functions_read_is_not_watched() -> None:
    """They are fnx's own, and fnx's own globals do not change."""
    activation = elementwise.tanh
    f = jit(lambda x: activation(x))
    assert [name for _, name, _ in Captures(f).entries] == ["activation"]
