"""User-written kernels with loops: what they reject, and how their arguments are passed."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.support.errors import DTypeError, KernelError, OutOfBoundsError
from fnx.kernel import Reference, Value
from tests.transforms.kernel_arguments import normal

# ---- rejected kernels ---------------------------------------------------------------------------

def another_type(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = k.loop(3, lambda t, s: k.cast(s, "int32"), x[i])


def another_number(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = k.loop(3, lambda t, s: (s, s), x[i])


def nothing_carried(x: Any, o: Any) -> None:
    k.loop(3, lambda t: None)


def other_values(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = k.when(x[i] > 0, lambda: (x[i], x[i]), 0)


def used_after(x: Any, o: Any) -> None:
    i = k.range(4)
    inside: list[Any] = []
    k.loop(3, lambda t, s: inside.append(s) or s, x[i])
    o[i] = inside[0]


def written_in_each(x: Any, o: Any) -> None:
    i = k.range(4)

    def step(t: Value, s: Value) -> Value:
        o[i] = s
        return s + 1
    k.loop(3, step, x[i])


def written_where_data_says(x: Any, o: Any) -> None:
    def step(t: Value, at: Value) -> Value:
        o[at] = x[t]
        return at * 2 % 4
    k.loop(4, step, 1)


def outside_of_a_loop(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = k.loop(5, lambda t, s: s + x[t], 0.0)


def until_a_number(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = k.loop(5, lambda t, s: s, x[i], until=lambda t, s: s)


def length_is_data(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = k.loop(k.cast(x[i], "int32"), lambda t, s: s, x[i])


REFUSED = [(another_type, DTypeError, "next value 0 to be float32"),
           (another_number, KernelError, "1 next values, got 2"),
           (nothing_carried, KernelError, "expected first values"),
           (other_values, KernelError, "expected 2 values"),
           (used_after, KernelError, "got a store after it"),
           (written_in_each, KernelError, "a write in each iteration of the range made at"),
           (written_where_data_says, KernelError, "two iterations may share"),
           (outside_of_a_loop, OutOfBoundsError, "got 0 to 4"),
           (until_a_number, KernelError, "expected a condition"),
           (length_is_data, KernelError, "depends on")]


@pytest.mark.parametrize("body,error,message", REFUSED, ids=[b[0].__name__ for b in REFUSED])
def test_errors_name_the_line(body: Any, error: type[fnx.FnxError], message: str) -> None:
    with pytest.raises(error) as e:
        fnx.call(body, out=lambda x: x)(normal(4))
    assert message in e.value.message and e.value.hint
    path, line = e.value.loc
    lines, first = inspect.getsourcelines(body)
    assert path == __file__ and first <= line < first + len(lines)


def test_what_a_kernel_made_stays_in_it() -> None:
    kept: list[Any] = []

    @fnx.call(out=lambda x: x)
    def kernel(x: Reference, o: Reference) -> None:
        i = k.range(x.shape[0])
        o[i] = x[i]
        kept[:] = [x, o, x[i]]

    kernel(normal(3))
    x, o, value = kept
    for use in (lambda: x[0], lambda: o.store(0, value=1), lambda: value + 1):
        with pytest.raises(KernelError, match="used inside it, got a use after it|in a kernel"):
            use()

    with pytest.raises(KernelError, match="got the whole array 'x'"):
        np.asarray(x)

    @fnx.call(out=lambda x: x)
    def another(y: Reference, o: Reference) -> None:
        o[k.range(3)] = y[0] + value

    with pytest.raises(KernelError, match="of kernel 'kernel' .* in kernel 'another'"):
        another(normal(3))


# ---- arguments ----------------------------------------------------------------------------------


def test_a_range_has_no_start() -> None:
    @fnx.call(out=lambda x: x)
    def inner(x: Reference, o: Reference) -> None:
        i = k.range(1, x.shape[0])  # type: ignore[arg-type]
        o[i] = x[i]

    with pytest.raises(KernelError, match="expected a length and a name, got 1 and 5") as error:
        inner(normal(5))
    assert "a range starts at 0" in str(error.value)


def test_arguments_by_name() -> None:
    @fnx.call(out=lambda a, x: x)
    def scaled(a: Reference, x: Reference, o: Reference) -> None:
        i = k.range(x.shape[0])
        o[i] = a[()] * x[i]

    x = normal(5)
    for made in (scaled(x=x, a=2.0), scaled(2.0, x=x), fnx.jit(scaled)(x=x, a=2.0)):
        np.testing.assert_array_equal(made, 2 * x)
    for args, named in (((), {"x": x}), ((2.0, x), {"x": x}), ((2.0, x), {"y": x})):
        with pytest.raises(fnx.FnxError, match="expected arguments of .a, x."):
            scaled(*args, **named)


def test_a_kernel_alone_is_shown() -> None:
    @fnx.call(out=lambda x: x)
    def total(x: Reference, o: Reference) -> None:
        i = k.range(x.shape[0])
        o[i] = k.loop(3, lambda t, s: s + x[i], 0.0)

    stages = fnx.jit(total).lower(normal(40))
    assert [kernel.name.split()[0] for kernel in stages.kernels] == ["total"]
    assert "in seq(3)" in stages.text("tiled")


def both(x: Any, o: Any) -> None:
    i = k.range(8)
    o[i] = k.where((i > 2) and (i < 5), x[i], 0)


def chained(x: Any, o: Any) -> None:
    i = k.range(8)
    o[i] = x[i] if 0 <= i < 4 else 0


def larger(x: Any, o: Any) -> None:
    i = k.range(8)
    o[i] = k.max(x[i], 0)


def average(x: Any, o: Any) -> None:
    o[0] = k.mean(x[0], 0)  # type: ignore[attr-defined]


def step_first(x: Any, o: Any) -> None:
    k.loop(lambda i, total: total + x[i], 8, 0.0)  # type: ignore[arg-type]


def start_and_stop(x: Any, o: Any) -> None:
    k.loop(0, 8, lambda i, total: total + x[i], 0.0)  # type: ignore[arg-type]


def with_option(x: Any, o: Any, *, scale: Any = 1) -> None:
    i = k.range(8)
    o[i] = x[i] * scale


@pytest.mark.parametrize("body, options, cure", [
    (both, {}, "write (a > 0) & (b > 0)"), (chained, {}, "(0 <= i) & (i < n) instead of 0 <= i"),
    (larger, {}, "of two values: k.maximum(a, b)"), (average, {}, "write k.sum(value, over=i) / n"),
    (step_first, {}, "write k.loop(n, lambda i, value: ..., first)"),
    (start_and_stop, {}, "iterations are counted from 0"),
    (with_option, {"scale": jnp.ones(())}, "read it as scale[()]")])
def test_what_python_and_numpy_write_otherwise_has_a_cure(body: Any, options: Any, cure: str
                                                          ) -> None:
    with pytest.raises(fnx.FnxError) as caught:
        fnx.call(body, out=lambda x: x)(jnp.ones(8), **options)
    assert cure in str(caught.value) and "test_errors.py" in str(caught.value)


def test_of_two_stores_in_the_code_the_later_counts() -> None:
    @fnx.call(out=lambda x: x)
    def twice(x: Any, o: Any) -> None:
        i = k.range(8)
        o[i] = x[i]
        o[i] = x[i] * 2
    np.testing.assert_array_equal(twice(jnp.ones(8)), np.full(8, 2))
