"""User-written kernels: arguments by name, options, and the stages of a kernel on its own."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError, StaticArgumentError
from fnx.transforms.inspect.lowering import STEPS


@fnx.call(out=lambda a, x: x)
def scaled(a: Any, x: Any, o: Any, *, block: int = 4, shift: bool = False) -> None:
    i = k.range(o.shape[0], "i")
    o[i] = a[()] * x[i] + (block if shift else 0)


@fnx.call(out=lambda x, *, copies=2: fnx.ShapeDtypeStruct((copies, *x.shape), x.dtype))
def repeated(x: Any, o: Any, *, copies: int = 2) -> None:
    c, i = k.range(copies, "c"), k.range(x.shape[0], "i")
    o[c, i] = x[i]


def test_inputs_by_name_in_any_order() -> None:
    want = [2.0, 4.0]
    x = jnp.asarray([1.0, 2.0])
    for f in (scaled, fnx.jit(scaled)):
        assert f(2.0, x).tolist() == f(2.0, x=x).tolist() == f(x=x, a=2.0).tolist() == want


def test_options_are_values_of_the_trace_and_may_say_what_comes_out() -> None:
    x = jnp.asarray([1.0, 2.0])
    assert scaled(2.0, x, shift=True).tolist() == [6.0, 8.0]
    assert scaled(2.0, x, shift=True, block=1).tolist() == [3.0, 5.0]
    assert fnx.jit(scaled, static_argnames=("shift",))(2.0, x, shift=True).tolist() == [6.0, 8.0]
    assert fnx.vmap(lambda v: scaled(2.0, v, shift=True))(x[None]).tolist() == [[6.0, 8.0]]
    assert repeated(x).shape == (2, 2) and repeated(x, copies=3).shape == (3, 2)
    assert str(inspect.signature(scaled)) == "(a, x, *, block: 'int' = 4, shift: 'bool' = False)"


@pytest.mark.parametrize("f, error, match", [
    (lambda x: scaled(x), ArgumentError, "missing a required argument: 'x'"),
    (lambda x: scaled(x, x, 4), ArgumentError, "too many positional arguments"),
    (lambda x: scaled(x, x, width=4), ArgumentError, "unexpected keyword argument 'width'"),
    (lambda x: scaled(x, x, block=[4]), StaticArgumentError, "static argument 'block' of scaled"),
])
def test_wrong_arguments_are_refused_with_the_signature(f: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match) as found:
        f(jnp.ones(3))
    assert found.value.loc is not None and found.value.loc[0] == __file__


def test_a_kernel_shows_its_stages_as_jit_does(capsys: pytest.CaptureFixture[str]) -> None:
    x = jnp.ones((3, 4))
    stages, of_jit = [f.lower(2.0, x[0]) for f in (scaled, fnx.jit(scaled))]  # same line, same name
    assert stages.commands is of_jit.commands
    stages.show("all")
    text = capsys.readouterr().out
    assert all(f"==== {name}" in text for name in STEPS)
    assert "kernel scaled(a: float32[], x: float32[4], o: float32[4])" in text
    assert "define" in stages.llvm() and stages.assembly()
    assert "block" not in stages.text("kernels")
    assert "lane in seq(3)" in fnx.vmap(scaled, in_axes=(None, 0)).lower(2.0, x).text("kernels")
    assert stages.text("groups") == "group 0: scaled, as it is written"


def test_so_do_boundaries_and_functions_with_rules() -> None:
    ruled = fnx.call(lambda x: x * 2, vjp=lambda args, out, ct: (ct * 3,))
    assert "x[i] * 2" in ruled.lower(jnp.ones(2)).text("simplified")
    with override(device="interp"):
        assert ruled.lower(jnp.ones(2)).kernels
    np.testing.assert_array_equal(fnx.grad(lambda x: ruled(x).sum())(jnp.ones(2)), 3.0)


@fnx.call(out=lambda x: x, schedule=[k.parallel("i")])
def doubled_front(x: Any, o: Any) -> None:
    i = k.range(x.shape[0] // 2, "i")
    o[i] = x[i] * 2


def test_elements_that_nothing_writes_are_zeroed_by_a_kernel_of_their_own() -> None:
    x = np.arange(1, 9, dtype=np.float32)
    front = np.where(np.arange(8) < 4, 2 * x, 0)
    assert "doubled_front_fill" in str(fnx.jit(doubled_front).lower(x).text("commands"))
    assert doubled_front(x).tolist() == front.tolist()
    assert fnx.jit(doubled_front, donate_argnums=0)(jnp.asarray(x)).tolist() == front.tolist()
    assert fnx.jit(lambda x: doubled_front(x + 1))(x).tolist() == (front + 2 * (front > 0)).tolist()
    steps = fnx.jit(lambda x: fnx.lax.fori_loop(0, 2, lambda i, c: doubled_front(c) + 1, x))(x)
    assert steps.tolist() == [*(4 * x[:4] + 3), 1, 1, 1, 1]
    assert fnx.grad(lambda x: doubled_front(x).sum())(jnp.asarray(x)).tolist() == [2] * 4 + [0] * 4


def test_out_is_called_with_the_defaults_of_options() -> None:
    @fnx.call(out=lambda x, w, scale: fnx.ShapeDtypeStruct((x.shape[0] - w + 1,), x.dtype))
    def moving_sum(x: Any, o: Any, *, w: int, scale: float = 1.0) -> None:
        i, j = k.range(o.shape[0], "i"), k.range(w, "j")
        o[i] = k.sum(x[i + j], over=j) * scale

    x = jnp.arange(4.0)
    assert moving_sum(x, w=3).tolist() == [3, 6]
    assert moving_sum(x, w=3, scale=2.0).tolist() == [6, 12]


def test_a_kernel_has_an_output() -> None:
    with pytest.raises(fnx.errors.KernelError, match="at least one output, got None"):
        fnx.call(out=lambda x: None)(moving)(jnp.ones(3))


def moving(x: Any, o: Any) -> None:
    o[k.range(3)] = 1.0
