"""trace, lower, compile: a jitted function step by step, for one signature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, DonatedError, TracedValueError
from fnx.stages import Compiled, Lowered, Traced

X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def scaled(x: Any, n: int, *, shift: Any = 1.0) -> Any:
    return {"y": jnp.sin(x["x"]) * n + shift}


@pytest.fixture
def jitted() -> Any:
    return fnx.jit(scaled, static_argnums=1)


def test_stages_say_what_the_function_takes_and_returns(jitted: Any) -> None:
    given = {"x": jnp.asarray(X)}
    traced = jitted.trace(given, 3, shift=2.0)
    lowered = traced.lower()
    compiled = lowered.compile()
    assert (type(traced), type(lowered), type(compiled)) == (Traced, Lowered, Compiled)
    for stage in (traced, lowered, compiled):
        assert stage.fun_name == "scaled" and stage.donate_argnums == ()
        assert stage.in_tree == fnx.tree.structure((({"x": 0},), {"shift": 0}))
        assert str(stage.in_avals) == ("(({'x': ShapedArray(float32[2,3])},), "
                                       "{'shift': ShapedArray(float32[], weak_type=True)})")
        assert stage.args_info[0][0]["x"].shape == (2, 3)
        assert not stage.args_info[1]["shift"].donated
        assert stage.out_info == {"y": fnx.ShapeDtypeStruct((2, 3), "float32")}
        assert stage.out_tree == fnx.tree.structure({"y": 0})
    assert traced.out_avals["y"].str_short() == "float32[2,3]"
    assert "sin(" in traced.jaxpr.show()
    assert jitted.eval_shape(given, 3) == traced.out_info


def test_a_compiled_function_is_called_without_its_static_arguments(jitted: Any) -> None:
    seen = []

    def f(x: Any, n: int) -> Any:
        seen.append(n)
        return x * n

    compiled = fnx.jit(f, static_argnums=1).lower(jnp.ones(3), 4).compile()
    for _ in range(4):
        np.testing.assert_array_equal(compiled(jnp.arange(3.0)), [0, 4, 8])
    np.testing.assert_array_equal(compiled(np.ones(3, np.float32)), [4, 4, 4])
    assert seen == [4]
    got = jitted.lower({"x": fnx.ShapeDtypeStruct((2, 3), "float32")}, 2, shift=0).compile()(
        {"x": jnp.asarray(X)}, shift=5)
    np.testing.assert_allclose(got["y"], np.sin(X) * 2 + 5, rtol=1e-6)


@pytest.mark.parametrize(("args", "kwargs", "says"), [
    ((jnp.ones((2, 4)),), {"shift": 1.0}, r"compiled for float32\[2, 3\] as args\[0\], got .*2, 4"),
    ((jnp.ones((2, 3), "int32"),), {"shift": 1.0}, r"got int32\[2, 3\]"),
    ((jnp.ones((2, 3)), 3), {"shift": 1.0}, "omit static arguments"),
    ((jnp.ones((2, 3)),), {}, r"expected \{'shift': \*\}, got \{\}"),
    ((jnp.ones((2, 3)),), {"shift": "1"}, r"argument kwargs\['shift'\]")], ids=str)
def test_other_arguments_are_refused(args: Any, kwargs: Any, says: str) -> None:
    compiled = fnx.jit(lambda x, n, *, shift: x * n + shift, static_argnums=1).lower(
        jnp.ones((2, 3)), 2, shift=1.0).compile()
    with pytest.raises(TypeError, match=says):
        compiled(*args, **kwargs)
    compiled(jnp.ones((2, 3)), shift=2.0)


@pytest.mark.parametrize("transform", [fnx.jit, fnx.grad, fnx.vmap], ids=lambda f: f.__name__)
def test_no_transform_sees_inside(transform: Any) -> None:
    compiled = fnx.jit(jnp.sin).lower(1.0).compile()
    with pytest.raises(ArgumentError, match="got a traced array"):
        transform(compiled)(jnp.ones(2) if transform is fnx.vmap else 1.0)
    assert fnx.jit(lambda x: x + compiled(0.0))(2.0) == 2  # on values outside the trace


def test_what_it_closes_over_and_returns() -> None:
    w = jnp.asarray(X)
    compiled = fnx.jit(lambda x: (x @ w, x, 3)).lower(jnp.ones(2)).compile()
    y, x, n = compiled(jnp.asarray([1.0, 2.0]))
    np.testing.assert_array_equal(y, [6, 9, 12])
    assert x.tolist() == [1, 2] and n == 3


def test_donated_arguments() -> None:
    f = fnx.jit(lambda n, x, y: (x + n, y.sum()), static_argnums=0, donate_argnums=1)
    compiled = f.lower(2, jnp.ones(1000), jnp.ones(1000)).compile()
    assert compiled.donate_argnums == (0,) and compiled.args_info[0][0].donated
    x, y = jnp.ones(1000), jnp.ones(1000)
    assert compiled(x, y)[0][0] == 3
    assert x.is_deleted() and not y.is_deleted()
    with pytest.raises(DonatedError, match="each donated array once"):
        compiled(y, y)
    use = compiled.memory_analysis()
    assert (use.argument_size_in_bytes, use.alias_size_in_bytes) == (8000, 4000)
    assert use.output_size_in_bytes == 4004 and use.temp_size_in_bytes >= 0


def test_texts_and_costs() -> None:
    lowered = fnx.jit(lambda x: x @ x.T).lower(jnp.ones((8, 16)))
    compiled = lowered.compile()
    for cost in (lowered.cost_analysis(), compiled.cost_analysis()):
        assert cost["flops"] >= 2 * 8 * 8 * 16 and cost["bytes accessed"] >= 4 * (8 * 16 + 8 * 8)
    assert "function <lambda>" in lowered.as_text() and "define" in lowered.as_text("llvm")
    assert "kernel " in compiled.as_text()
    assert type(lowered.compiler_ir()) is UOp
    for call in (lambda: lowered.compiler_ir("chlo"), lambda: lowered.as_text("llhlo"),
                 lambda: lowered.compile({"flag": 1})):
        with pytest.raises(ArgumentError):
            call()


def test_a_graph_in_the_format_of_hlo() -> None:
    def f(x: Any, y: Any) -> Any:
        total, rows = fnx.lax.scan(lambda c, v: (c + v, jnp.exp(c)), 0.0, x)
        return jnp.where(x < y, x * y, rows), total

    module = fnx.jit(f).lower(jnp.ones(3), jnp.ones(3)).compiler_ir("hlo")
    text = module.as_hlo_text()
    assert text.startswith("HloModule jit_f, entry_computation_layout={(f32[3]{0}, f32[3]{0})->(")
    assert str(module) == text
    body, entry = text.partition("\n\n")[2].split("ENTRY f {")
    assert "= f32[] exponential(parameter." in body and "while(" in entry
    assert "= f32[3]{0} multiply(" in entry and "direction=LT" in entry
    assert "= (f32[], f32[3]{0}) while(" in entry and "ROOT tuple." in entry
    texts = [fnx.jit(square).lower(2.0).compiler_ir("hlo").as_hlo_text()
             for square in (lambda x: x * x, lambda x: x ** 2, jnp.square)]
    assert len({text.partition("ENTRY")[2].partition("{")[2] for text in texts}) == 1


def test_a_graph_in_the_format_of_stablehlo() -> None:
    @fnx.jit
    def inner(x: Any) -> Any:
        return jnp.sin(x)

    def f(unused: Any, x: Any) -> Any:
        total, rows = fnx.lax.scan(lambda c, v: (c + v, c * v), 0.0, x)
        top = fnx.lax.while_loop(lambda c: c < 3, lambda c: c + 1.0, total)
        best = fnx.lax.cond(top > 2, lambda: inner(top), lambda: -top)
        return {"rows": rows @ rows, "best": best}, jnp.where(x > 0, x[::-1], 2.0) + jnp.arange(3)

    lowered = fnx.jit(f, donate_argnums=1).lower(1.0, jnp.ones(3))
    text = lowered.as_text("stablehlo")
    for part in (
            "module @jit_f ", "@main(%arg0: tensor<3xf32> {tf.aliasing_output = 2 : i32})",
            '(tensor<f32> {jax.result_info = "result[0][\'best\']"}, ',
            "stablehlo.while(%iterArg = ",
            "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice", '"stablehlo.case"(',
            "call @inner(", "func.func private @inner(%arg0: tensor<f32>) -> tensor<f32> {",
            "stablehlo.sine %arg0 : tensor<f32>", "stablehlo.compare GT, ", "stablehlo.reverse",
            "stablehlo.constant dense<2.000000e+00> : tensor<f32>", "applies stablehlo.add across"):
        assert part in text, part
    assert str(lowered.compiler_ir("stablehlo")) == text and "loc(" not in text
    with_unused = fnx.jit(f, keep_unused=True).lower(1.0, jnp.ones(3))
    assert "@main(%arg0: tensor<f32>, %arg1: tensor<3xf32>)" in with_unused.as_text("stablehlo")
    located = fnx.jit(f).lower(1.0, jnp.ones(3)).as_text("stablehlo", debug_info=True)
    assert '%arg0: tensor<3xf32> loc("x")' in located and '"jit(f)/rev"("' in located


def test_other_transforms_lower_too() -> None:
    slope = fnx.grad(lambda x: (x ** 2).sum()).lower(jnp.asarray(X)).compile()
    np.testing.assert_array_equal(slope(jnp.asarray(X)), 2 * X)


# ---- arrays ---------------------------------------------------------------------------------


def test_deleted_arrays_have_no_value() -> None:
    x = jnp.asarray(X)
    y = x + 1
    x.delete()
    x.delete()
    assert x.is_deleted() and (x.shape, x.ndim, str(x.dtype)) == ((2, 3), 2, "float32")
    assert repr(x) == "<deleted Array float32[2, 3]>"
    for use in (lambda: x + 1, lambda: fnx.jit(jnp.sin)(x), lambda: np.asarray(x), lambda: x[0]):
        with pytest.raises(RuntimeError, match="one that was deleted"):
            use()
    np.testing.assert_array_equal(y, X + 1)
    with pytest.raises(TracedValueError, match="a traced one"):
        fnx.jit(lambda x: x.delete())(y)


def test_what_arrays_say_of_themselves() -> None:
    x = jnp.asarray(X)
    assert repr(x.aval) == "ShapedArray(float32[2,3])"
    assert jnp.asarray(2).aval.weak_type
    seen: list[Any] = []
    fnx.jit(lambda x: seen.append(x.aval) or x)(x)
    assert seen == [x.aval]
    shard, = x.addressable_shards
    assert shard.data is x and shard.device == x.device and x[shard.index].shape == x.shape
    assert x.clone().tolist() == X.tolist()
    assert x.unsafe_buffer_pointer() == np.asarray(x).ctypes.data
