"""Calls of all public functions, as templates for random programs.

``{a}`` is an array, ``{b}`` one that broadcasts with it or a number, ``{n}`` one of its shape and
dtype, ``{axis}`` one of its axes; ``tests/attack/writer.py`` defines the rest.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp

# Functions that describe types and shapes, and make no array.
DESCRIBE = {"broadcast_shapes", "conv_dimension_numbers", "finfo", "iinfo", "issubdtype", "ndim",
            "promote_types", "result_type", "shape", "size", "fromfile", "fromiter",
            "get_printoptions", "printoptions", "set_printoptions", "load", "save", "savez",
            "frombuffer", "fromstring", "array_repr", "array_str", "isscalar", "iterable",
            "iscomplexobj", "isrealobj", "can_cast", "isdtype", "PrecisionLike", "dtype",
            "shape_as_value", "DotDimensionNumbers", "ConvGeneralDilatedDimensionNumbers",
            "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple",
            "conv_transpose_shape_tuple", "padtype_to_pads", "reduce_window_shape_tuple",
            "einsum_path", "key_dtype", "key_impl", "__array_namespace_info__",
            "ragged_dot_general"}


# Values determine shapes (or {a} stands for a shape): a trace rejects these.
VALUED = set("argwhere bartlett bincount blackman broadcast_to_rank choice choose collapse "
             "compress delete dsplit extract flatnonzero hamming hanning hsplit indices "
             "intersect1d kaiser mask_indices nonzero permutation resize select setdiff1d "
             "setxor1d split tile tril_indices trim_zeros triu_indices union1d unique unique_all "
             "unique_counts unique_inverse unique_values unravel_index vsplit".split())


class Call(NamedTuple):
    """One way to call a function.

    Attributes:
        text: Python with fields in braces.
        exact: its bits are defined (no transcendental function, no sum of floats).
        jumps: a tiny change of an operand may change the result a lot.
        numpy: NumPy's function of this name has the same bits.
        rank: fewest axes of ``{a}``.
        dtypes: what ``{a}`` should be, or "" for anything. (Others are tried, too: rejected.)
        dear: it has a loop of many steps.
    """

    text: str
    exact: bool = True
    jumps: bool = False
    numpy: bool = False
    rank: int | None = None
    dtypes: str = ""
    expensive: bool = False

    def takes(self, dtype: str) -> bool:
        return not self.dtypes or dtype in self.dtypes.split()


def _calls(names: str, text: str, **facts: Any) -> list[Call]:
    return [Call(text.replace("@", name), **facts) for name in names.split()]


F = "float32"
_JNP = [
    *_calls("union1d intersect1d setdiff1d setxor1d", "jnp.@({a}, {n}, size=3, fill_value=0)",
            jumps=True, rank=1),
    *_calls("unique unique_values", "jnp.@({a}, size=3, fill_value=0)", jumps=True, rank=1),
    *_calls("unique_all unique_counts unique_inverse", "jnp.@({a}, size=3, fill_value=0).values",
            jumps=True, rank=1),
    Call("jnp.frompyfunc(lambda x, y: x + y, 2, 1)({a}, {n})"),
    Call("jnp.lexsort([{a}, {n}])", jumps=True, rank=1),
    *_calls("partition argpartition", "jnp.@({a}, 0, {axis})", jumps=True, rank=1),
    *_calls("quantile nanquantile", "jnp.@({a}, 0.3, {axis})", exact=False, jumps=True, rank=1),
    *_calls("atleast_1d atleast_2d atleast_3d", "jnp.@({a})"),
    Call("jnp.apply_along_axis(jnp.sum, {axis}, {a})", exact=False, rank=1),
    Call("jnp.apply_over_axes(jnp.sum, {a}, [{axis}])", exact=False, rank=1),
    Call("jnp.insert({a}, 0, 1, {axis})", rank=1), Call("jnp.ix_({a}.ravel().astype(int))[0]"),
    Call("jnp.interp({a}, jnp.arange(4.0), jnp.arange(4.0) ** 2)", exact=False, dtypes=F),
    Call("jnp.piecewise({a}, [{a} > 1], [2, 3])", jumps=True),
    Call("jnp.place({a}, {a} > 1, jnp.ones(1), inplace=False)", jumps=True),
    Call("jnp.put({a}, 0, 1, inplace=False)", rank=1),
    Call("jnp.put_along_axis({a}, jnp.zeros_like({a}, int), 1, {axis}, inplace=False)", rank=1),
    *_calls("abs absolute negative positive square conj" .replace(" conj", ""), "jnp.@({a})",
            numpy=True, dtypes="float32 int32 uint32"),
    *_calls("fabs sqrt reciprocal", "jnp.@({a})", dtypes=F),
    *_calls("ceil floor trunc rint", "jnp.@({a})", jumps=True, numpy=True, dtypes=F),
    *_calls("sign isfinite isinf isnan logical_not", "jnp.@({a})", jumps=True),
    *_calls("cos cosh exp exp2 expm1 log log1p log2 log10 sin sinh tan tanh", "jnp.@({a})",
            exact=False),
    *_calls("bitwise_invert bitwise_not invert", "jnp.@({a})", numpy=True,
            dtypes="int32 uint32 bool"),
    *_calls("add subtract multiply maximum minimum", "jnp.@({a}, {b})", numpy=True),
    *_calls("divide true_divide", "jnp.@({a}, {b})"),
    *_calls("arctan2 pow power float_power hypot logaddexp logaddexp2", "jnp.@({a}, {b})",
            exact=False),
    *_calls("floor_divide fmod mod remainder", "jnp.@({a}, {b})", jumps=True),
    *_calls("equal not_equal less less_equal greater greater_equal logical_and logical_or "
            "logical_xor", "jnp.@({a}, {b})", jumps=True, numpy=True),
    *_calls("bitwise_and bitwise_or bitwise_xor", "jnp.@({a}, {b})", numpy=True,
            dtypes="int32 uint32 bool"),
    *_calls("bitwise_left_shift bitwise_right_shift left_shift right_shift",
            "jnp.@({a}, {b})", dtypes="int32 uint32"),
    Call("jnp.isclose({a}, {b})", jumps=True), Call("jnp.allclose({a}, {b})", jumps=True),
    Call("jnp.array_equal({a}, {b})", jumps=True),
    Call("jnp.clip({a}, {s}, {b})"), Call("jnp.nan_to_num({a})", jumps=True),
    Call("jnp.round({a}, {count})", jumps=True, exact=False),
    Call("jnp.where({a} > 0, {a}, {b})", jumps=True), Call("jnp.where({a}, {b}, {s})", jumps=True),
    # reductions
    *_calls("sum mean std var prod", "jnp.@({a}, axis={axes}, keepdims={keep})", exact=False),
    *_calls("max min amax amin ptp", "jnp.@({a}, axis={axes}, keepdims={keep})"),
    *_calls("all any count_nonzero", "jnp.@({a}, axis={axes}, keepdims={keep})", jumps=True,
            numpy=True),
    *_calls("argmax argmin", "jnp.@({a}, axis={axis})", jumps=True, rank=1),
    *_calls("cumsum cumprod", "jnp.@({a}, axis={axis})", exact=False, rank=1),
    Call("jnp.trace({a})", exact=False, rank=2),
    Call("jnp.linalg.norm({a})", exact=False),
    # movement
    *_calls("ravel transpose squeeze flip", "jnp.@({a})", numpy=True),
    Call("jnp.permute_dims({a}, {order})"), Call("jnp.transpose({a}, {order})", numpy=True),
    Call("jnp.reshape({a}, -1)", numpy=True), Call("jnp.reshape({a}, (1, {size}))", numpy=True),
    Call("jnp.flip({a}, {axis})", numpy=True, rank=1),
    Call("jnp.roll({a}, {int})", numpy=True), Call("jnp.roll({a}, {int}, {axis})", rank=1),
    Call("jnp.moveaxis({a}, {axis}, 0)", numpy=True, rank=1),
    Call("jnp.swapaxes({a}, {axis}, 0)", numpy=True, rank=1),
    Call("jnp.expand_dims({a}, 0)", numpy=True), Call("jnp.broadcast_to({a}, {wide})", numpy=True),
    Call("jnp.broadcast_arrays({a}, {b})[0]"), Call("jnp.tile({a}, 2)", numpy=True),
    Call("jnp.repeat({a}, 2, axis={axis})", numpy=True, rank=1),
    Call("jnp.pad({a}, 1)", numpy=True, rank=1),
    Call("jnp.diag({a})", rank=1), Call("jnp.diagonal({a})", rank=2),
    Call("jnp.tri(3, 4, {int})", numpy=True),
    *_calls("tril triu", "jnp.@({a}, {int})", rank=2),
    *_calls("concatenate concat", "jnp.@([{a}, {n}], axis={axis})", rank=1),
    *_calls("stack hstack vstack column_stack", "jnp.@([{a}, {n}])"),
    Call("jnp.split({a}, [1], axis={axis})[0]", rank=1),
    Call("jnp.array_split({a}, 2, axis={axis})[1]", rank=1),
    Call("jnp.meshgrid({a}, {n})[0]"), Call("jnp.astype({a}, {dtype})", jumps=True),
    Call("jnp.asarray({a}, {dtype})", jumps=True), Call("jnp.array({a})"),
    *_calls("ones_like zeros_like empty_like", "jnp.@({a})"), Call("jnp.full_like({a}, {s})"),
    *_calls("zeros ones", "jnp.@({shape}, {dtype})"), Call("jnp.empty({shape}) * 0"),
    Call("jnp.full({shape}, {s})"), Call("jnp.eye(3, {count})"), Call("jnp.identity({count})"),
    Call("jnp.arange({int}, 5) + {b}"), Call("jnp.linspace(0, {s}, 5)", exact=False),
    # indexing
    Call("jnp.take({a}, {index}, axis={axis})", rank=1), Call("jnp.take({a}, {index})"),
    Call("jnp.take_along_axis({a}, jnp.zeros({shape}, int), axis={axis})", rank=1),
    Call("{a}[{index}]", rank=1), Call("{a}[::2]", rank=1), Call("{a}[..., ::-1]", rank=1),
    Call("{a}[1:, None]", rank=1), Call("{a}[0]", rank=1), Call("{a}[-1, {index}]", rank=2),
    Call("{a}[..., {index}]", rank=1),
    *_calls("set add multiply min max", "{a}.at[{index}].@({s})", exact=False, rank=1),
    Call("{a}.at[1:].set({s})", rank=1), Call("{a}.at[{index}].get()", rank=1),
    # higher-order functions, and indices
    Call("jnp.fromfunction(lambda i: i * 2, ({size} % 5,))"),
    Call("jnp.choose(jnp.zeros_like({a}, int), [{a}, {n}])"),
    Call("jnp.apply_along_axis(jnp.cumsum, {axis}, {a})", exact=False, rank=1),
    Call("jnp.apply_over_axes(jnp.max, {a}, [0])", rank=1),
    *_calls("atleast_1d atleast_2d atleast_3d", "jnp.@({a})", numpy=True),
    Call("jnp.insert({a}, 0, {s}, axis={axis})", exact=False, rank=1),
    Call("jnp.interp({a}, jnp.arange(4.0), jnp.arange(4.0) * 2)", exact=False, jumps=True,
         dtypes=F),
    Call("jnp.ix_(jnp.arange({count} + 1), jnp.arange(2))[0]"),
    Call("jnp.piecewise({a}, [{a} > 0], [lambda z: z * 2, lambda z: -z])", jumps=True, dtypes=F),
    Call("jnp.place({a}, {a} > 0, jnp.asarray([1, 2]), inplace=False)", jumps=True, rank=1),
    Call("jnp.put({a}, {index}, {s}, inplace=False)", exact=False, rank=1),
    Call("jnp.put_along_axis({a}, jnp.zeros({shape}, int), {s}, {axis}, inplace=False)",
         exact=False, rank=1),
    # contractions
    Call("jnp.matmul({a}, {a}.T)", exact=False, rank=1), Call("{a} @ {n}.T", exact=False, rank=1),
    *_calls("dot inner", "jnp.@({a}, {n})", exact=False), Call("jnp.dot({a}, {a}.T)", exact=False),
    *_calls("vdot kron outer", "jnp.@({a}, {n})", exact=False),
    Call("jnp.tensordot({a}, {n}, {rank})", exact=False),
    # factors that may be moved out of a sum of products
    Call("jnp.sum({a}[..., :, None] * {n}[..., None, :] * {s}, axis=0)", exact=False, rank=2),
    Call("jnp.sum({a}[..., :, None] * {n}[..., None, :] * {a}[:1, ..., None], axis=0)",
         exact=False, rank=2),
    Call("jnp.sum({a} * {n} * {b}, axis=0)", exact=False, rank=1),
    Call("jnp.einsum('...i,...i->...', {a}, {n})", exact=False, rank=1),
    Call("jnp.einsum('ij,kj->ik', {a}, {n})", exact=False, rank=2),
    # methods
    *_calls("sum mean prod", "{a}.@()", exact=False), *_calls("max min", "{a}.@()"),
    Call("{a}.astype({dtype})", jumps=True), Call("-{a}"), Call("{a} ** 2"), Call("{a} ** {b}",
                                                                               exact=False),
    Call("{a} + {b}"), Call("{s} - {a}"), Call("{a} * {b}"), Call("{a} / {b}"), Call("abs({a})"),
]
_LAX = [
    Call("lax.betainc(abs({a}) + 1, 2.0, 0.5)", exact=False, dtypes=F),
    *_calls("abs neg sign square", "lax.@({a})", jumps=True),
    *_calls("ceil floor round", "lax.@({a})", jumps=True, dtypes=F),
    *_calls("is_finite", "lax.@({a})", dtypes=F),
    *_calls("cos cosh erf erf_inv erfc exp exp2 expm1 log log1p logistic reciprocal rsqrt sin "
            "sinh sqrt tan tanh", "lax.@({a})", exact=False, dtypes=F),
    *_calls("bitwise_not", "lax.@({a})", dtypes="int32 uint32 bool"),
    *_calls("add sub mul max min", "lax.@({a}, {n})"), Call("lax.div({a}, {n})", jumps=True),
    Call("lax.rem({a}, {n})", jumps=True), Call("lax.pow({a}, {n})", exact=False, dtypes=F),
    *_calls("eq ne lt le gt ge", "lax.@({a}, {n})", jumps=True),
    *_calls("bitwise_and bitwise_or bitwise_xor", "lax.@({a}, {n})", dtypes="int32 uint32 bool"),
    *_calls("shift_left shift_right_arithmetic shift_right_logical", "lax.@({a}, {n})",
            dtypes="int32 uint32"),
    Call("lax.integer_pow({a}, {int})", exact=False),
    Call("lax.clamp({scalar_of}, {a}, {n})"), Call("lax.select({a} == {n}, {a}, {n})", jumps=True),
    Call("lax.select_n({a} == {n}, {a}, {n})", jumps=True),
    *_calls("argmax argmin", "lax.@({a}, {axis} % {rank}, 'int32')", jumps=True, rank=1),
    *_calls("cumprod cumsum", "lax.@({a}, {axis} % {rank})", exact=False, rank=1),
    *_calls("cummax cummin", "lax.@({a}, {axis} % {rank})", rank=1),
    Call("lax.cumlogsumexp({a}, {axis} % {rank})", exact=False, rank=1, dtypes=F),
    Call("lax.associative_scan(jnp.maximum, {a}, axis={axis})", rank=1),
    Call("lax.reduce({a}, {a}.ravel()[0], jnp.maximum, (0,))", rank=1),
    Call("lax.reduce_window({a}, {a}.ravel()[0], jnp.minimum, (2,) * {rank}, (1,) * {rank}, "
         "'SAME')", rank=1),
    *_calls("reduce_max reduce_min", "lax.@({a}, (0,))", rank=1),
    *_calls("reduce_sum reduce_prod", "lax.@({a}, (0,))", exact=False, rank=1),
    *_calls("reduce_and reduce_or reduce_xor", "lax.@({a}, (0,))", rank=1,
            dtypes="int32 uint32 bool"),
    Call("lax.batch_matmul({a}, {a})", exact=False, rank=3),
    Call("lax.dot({a}, {a})", exact=False, rank=1),
    Call("lax.dot_general({a}, {n}, (((0,), (0,)), ((), ())))", exact=False, rank=1),
    # the bits of a computed NaN are not defined, those of a constant are
    Call("lax.bitcast_convert_type(jnp.where({a} == {a}, {a}, jnp.nan), 'int32')", jumps=True,
         dtypes=F),
    Call("lax.convert_element_type({a}, {dtype})", jumps=True), Call("lax.broadcast({a}, (2,))"),
    Call("lax.broadcast_in_dim({a}, {wide}, tuple(range(1, {rank} + 1)))"),
    Call("lax.broadcasted_iota('int32', {shape}, 0) + {a}", rank=1), Call("lax.iota('int32', 5)"),
    Call("lax.concatenate([{a}, {n}], 0)", rank=1), Call("lax.expand_dims({a}, (0,))"),
    Call("lax.squeeze(lax.expand_dims({a}, (0,)), (0,))"),
    Call("lax.dynamic_index_in_dim({a}, {int}, 0)", rank=1),
    Call("lax.index_in_dim({a}, 0, {axis})", rank=1),
    Call("lax.dynamic_slice({a}, ({int},) * {rank}, (1,) * {rank})", rank=1),
    Call("lax.dynamic_slice_in_dim({a}, {int}, 1)", rank=1),
    Call("lax.dynamic_update_index_in_dim({a}, {a}[0], {int}, 0)", rank=1),
    Call("lax.dynamic_update_slice({a}, {a}[:1], ({int},) + (0,) * ({rank} - 1))", rank=1),
    Call("lax.dynamic_update_slice_in_dim({a}, {a}[:1], {int}, 0)", rank=1),
    Call("lax.full({shape}, {s})"), Call("lax.full_like({a}, {s})"),
    Call("lax.pad({a}, {scalar_of}, ((1, 0, 0),) * {rank})"),
    Call("lax.reshape({a}, ({size},))"), Call("lax.rev({a}, (0,))", rank=1),
    Call("lax.slice({a}, (0,) * {rank}, {shape})"), Call("lax.slice_in_dim({a}, 0, 1)", rank=1),
    Call("lax.stop_gradient({a})"), Call("lax.transpose({a}, {order})"),
    *_calls("conv conv_general_dilated", "lax.@({a}.ravel()[None, None], "
            "{a}.ravel()[:2][None, None], (2,), 'SAME')", exact=False, rank=1),
    Call("lax.conv_with_general_padding({a}.ravel()[None, None], {a}.ravel()[:2][None, None], "
         "(1,), [(1, 2)], (2,), (1,))", exact=False, rank=1),
    Call("lax.conv_transpose({a}.ravel()[None, :, None], {a}.ravel()[:2][:, None, None], (2,), "
         "'SAME')", exact=False, rank=1),
    Call("lax.conv_general_dilated({a}[None], {n}[None], (1, 2), 'SAME')", exact=False, rank=3),
    Call("lax.conv_general_dilated_patches({a}.ravel()[None, None], (2,), (1,), 'SAME')", rank=1),
    Call("lax.sort({a})", rank=1), Call("lax.sort(({a}, {n}), 0, num_keys=2)[1]", jumps=True,
                                        rank=1),
    Call("lax.sort_key_val({a}, {n})[1]", jumps=True, rank=1),
    Call("lax.top_k({a}, 1)[0]", rank=1),
    Call("lax.fft({a} + 0j, 'fft', ({a}.shape[-1],))", exact=False, rank=1, dtypes=F),
    Call("lax.ragged_dot({a}.reshape(-1, 1), jnp.ones((1, 1, 2), {a}.dtype), "
         "jnp.asarray([{size}]))", exact=False, rank=1, dtypes=F),
    Call("jnp.polyfit(jnp.arange({size}), {a}.ravel(), 1)", exact=False, jumps=True, rank=1,
         dtypes=F),
    *_calls("approx_max_k approx_min_k", "lax.@({a}, 1)[0]", rank=1, dtypes=F),
    Call("lax.gather({a}, jnp.zeros((2, 1), 'int32'), lax.GatherDimensionNumbers("
         "tuple(range(1, {rank})), (0,), (0,)), (1, *{shape}[1:]))", rank=1),
    *_calls("clip fill", "lax.gather({a}, jnp.asarray([[{int}], [1]]), lax.GatherDimensionNumbers("
            "tuple(range(1, {rank})), (0,), (0,)), (1, *{shape}[1:]), mode='@')", rank=1),
    *_calls("scatter scatter_add scatter_mul scatter_max",
            "lax.@({a}, jnp.asarray([[{int}], [1]]), jnp.stack([{a}[0], {a}[-1]]), "
            "lax.ScatterDimensionNumbers(tuple(range(1, {rank})), (0,), (0,)))", exact=False,
            rank=1),
    *_calls("scatter scatter_add scatter_sub scatter_mul scatter_min scatter_max",
            "lax.@({a}, jnp.zeros((1, 1), 'int32'), {a}[:1], lax.ScatterDimensionNumbers("
            "tuple(range(1, {rank})), (0,), (0,)))", exact=False, rank=1),
    Call("lax.scatter_apply({a}, jnp.zeros((1, 1), 'int32'), lambda x: x + x, "
         "lax.ScatterDimensionNumbers(tuple(range(1, {rank})), (0,), (0,)), "
         "update_shape=(1, *{shape}[1:]))", rank=1),
]
_LOOPS = [
    Call("lax.scan(lambda c, x: (c * x - {s}, c + x), {a}[0], {a})[1]", exact=False, rank=1,
         dtypes=F),
    Call("lax.scan(lambda c, x: (c * x, c + x), {a}[0], {a}, reverse=True)[1]", exact=False,
         rank=1, dtypes="float32 int32 uint32"),
    Call("lax.scan(lambda c, _: (jnp.sin(c) + {n}, None), {a}, None, {count})[0]", exact=False,
         dtypes=F),
    Call("lax.map(lambda x: x * x - {s}, {a})", rank=1),
    Call("lax.fori_loop(0, {count}, lambda i, x: x * i - {n}, {a})"),
    Call("lax.fori_loop({int}, jnp.asarray({count}), lambda i, x: {n} - x * i, {a})"),
    Call("lax.while_loop(lambda c: c[0] < {count}, lambda c: (c[0] + 1, c[1] - {n}), (0, {a}))[1]"),
    Call("lax.cond(jnp.max({a}) > 0, lambda x: x * x, lambda x: -x, {a})", jumps=True),
    Call("lax.cond({int} > 0, jnp.tanh, lambda x: x - {n}, {a})", exact=False, dtypes=F),
    Call("lax.custom_root(lambda x: x - {a}, {a} * 0, lambda f, x: x - f(x), "
         "lambda g, y: y)", exact=False, dtypes=F),
    Call("lax.custom_linear_solve(lambda x: x * 2, {a}, lambda f, b: b / 2, symmetric=True)",
         dtypes=F),
    Call("lax.switch({int}, [lambda x: x - x, lambda x: -x, lambda x: x * x], {a})"),
]
_LANES = [
    *_calls("psum pmean", "fnx.vmap(lambda x: x - lax.@(x, 'i'), axis_name='i')({a})",
            exact=False, rank=1, dtypes=F),
    *_calls("pmax pmin", "fnx.vmap(lambda x: x - lax.@(x, 'i'), axis_name='i')({a})", rank=1),
    Call("fnx.vmap(lambda x: lax.all_gather(x, 'i') - x, axis_name='i')({a})", rank=1),
    Call("fnx.vmap(lambda x: lax.ppermute(x, 'i', [(0, 0)]) - x, axis_name='i')({a})", rank=1),
    Call("fnx.vmap(lambda x: lax.pshuffle(x, 'i', range(len({a}))) - x, axis_name='i')({a})",
         rank=1),
    *_calls("all_to_all", "fnx.vmap(lambda x: lax.@({a}, 'i', 0, 0) * x, axis_name='i')({a})",
            rank=1),
    *_calls("psum_scatter", "fnx.vmap(lambda x: lax.@({a}, 'i') * x, axis_name='i')({a})",
            exact=False, rank=1, dtypes=F),
    *_calls("pswapaxes", "fnx.vmap(lambda x: lax.@({a}, 'i', 0) * x, axis_name='i')({a})", rank=1),
    Call("fnx.vmap(lambda x: lax.pbroadcast(x, 'i', 0) - x, axis_name='i')({a})", rank=1),
    Call("fnx.vmap(lambda x: lax.axis_index('i') * x + lax.axis_size('i'), axis_name='i')({a})",
         rank=1),
]
_NN = [
    *_calls("celu elu gelu leaky_relu log_sigmoid mish selu sigmoid silu soft_sign softplus "
            "squareplus swish tanh", "nn.@({a})", exact=False, dtypes=F),
    *_calls("hard_sigmoid hard_silu hard_swish hard_tanh identity relu relu6", "nn.@({a})",
            exact=False, dtypes=F),
    *_calls("log_softmax softmax logsumexp standardize", "nn.@({a}, axis={axis})", exact=False,
            rank=1, dtypes=F),
    Call("nn.glu({a}, {axis})", exact=False, rank=1, dtypes=F),
    Call("nn.one_hot({a}, 4)", dtypes="int32 uint32"),
    *_calls("glorot_normal() he_uniform() lecun_normal() glorot_uniform()",
            "nn.initializers.@(random.key({seed}), (3, 4))", exact=False),
]
_NN.append(Call("nn.dot_product_attention({x}, {x}, {x}, is_causal=True)".replace(
    "{x}", "jnp.ones((1, 2, 1, 4))"), exact=False))
_LAX += [
    Call("lax.conv_general_dilated_local(jnp.ones((1, 2, 5)), jnp.ones((3, 4, 4)), (1,), 'VALID', "
         "(2,))", exact=False),
    Call("lax.index_take({a}, (jnp.arange(2),), ({axis},))", rank=1),
    Call("lax.reduce_precision({a}, 5, 4)", jumps=True, dtypes=F),
    Call("lax.platform_dependent({a}, cpu=jnp.negative)"), Call("lax.stack([{a}, {n}])"),
    Call("lax.empty((2,), 'float32') * 0"), Call("lax.broadcast_like({s}, {a})"),
    *_calls("igamma_grad_a random_gamma_grad", "lax.@(2.0, 0.5)", exact=False),
]
# Rejection samplers: an ulp may decide what is drawn.
_SAMPLERS = [call._replace(exact=False, jumps=True, expensive=True) for call in [
    *_calls("cauchy maxwell", "random.@(random.key({seed}), (3,))"),
    *_calls("beta f", "random.@(random.key({seed}), 2.0, 3.0, (3,))"),
    *_calls("chisquare gamma generalized_normal loggamma lognormal pareto rayleigh t wald",
            "random.@(random.key({seed}), 2.0, (3,))"),
    *_calls("double_sided_maxwell weibull_min", "random.@(random.key({seed}), 1.0, 2.0, (3,))"),
    Call("random.geometric(random.key({seed}), 0.4, (3,))"),
    Call("random.poisson(random.key({seed}), 3.0, (3,))"),
    Call("random.binomial(random.key({seed}), 5, 0.4, (3,))"),
    Call("random.multinomial(random.key({seed}), 5, jnp.asarray([0.5, 0.5]))"),
    Call("random.ball(random.key({seed}), 2, 2.0, (3,))"),
    Call("random.orthogonal(random.key({seed}), 3)", exact=False, jumps=True),
    Call("random.dirichlet(random.key({seed}), jnp.ones(3))"),
    Call("random.multivariate_normal(random.key({seed}), jnp.zeros(2), jnp.eye(2))"),
    Call("random.triangular(random.key({seed}), 0.0, 0.5, 1.0, (3,))"),
]]
_RANDOM = [
    Call("random.key_data(random.clone(random.key({seed})))"),
    *_calls("cauchy maxwell", "random.@(random.key({seed}), (3,))", exact=False, jumps=True),
    *_calls("gamma loggamma chisquare t pareto rayleigh wald geometric poisson lognormal "
            "generalized_normal", "random.@(random.key({seed}), 0.5, (3,))", exact=False,
            jumps=True),
    *_calls("beta f weibull_min double_sided_maxwell binomial",
            "random.@(random.key({seed}), 2.0, 0.5, (3,))", exact=False, jumps=True),
    Call("random.triangular(random.key({seed}), 0.0, 1.0, 2.0, (3,))", exact=False, jumps=True),
    Call("random.dirichlet(random.key({seed}), jnp.ones(3))", exact=False, jumps=True),
    Call("random.ball(random.key({seed}), 3)", exact=False, jumps=True),
    Call("random.multinomial(random.key({seed}), 5.0, jnp.ones(3) / 3)", exact=False, jumps=True),
    Call("random.multivariate_normal(random.key({seed}), jnp.zeros(2), jnp.eye(2))",
         exact=False, jumps=True),
    *_calls("exponential gumbel laplace logistic normal uniform", "random.@(random.key({seed}), "
            "{shape})", exact=False),
    Call("random.truncated_normal(random.key({seed}), -1.0, 2.0, {shape})", exact=False),
    *_calls("bits rademacher", "random.@(random.key({seed}), {shape})"),
    *_SAMPLERS,
    Call("random.bernoulli(random.key({seed}), 0.4, {shape})"),
    Call("random.randint(random.PRNGKey({seed}), {shape}, 0, 9)"),
    Call("random.permutation(random.key({seed}), {a})", rank=1),
    Call("random.choice(random.key({seed}), {a})", rank=1),
    Call("random.categorical(random.key({seed}), {a})", jumps=True, rank=1, dtypes=F),
    Call("random.key_data(random.fold_in(random.split(random.key({seed}))[0], 3))"),
    Call("random.uniform(random.wrap_key_data(random.key_data(random.key({seed}))))",
         exact=False),
]


class Word(NamedTuple):
    """A transform or a loop around a function ``{f}`` of one array ``{a}``.

    Attributes:
        rows: the function takes a row of the array.
        exact: it has the bits that the function has.
        floats: it differentiates.
    """

    text: str
    rows: bool = False
    exact: bool = True
    floats: bool = False


WORDS = (
    Word("fnx.jit({f})({a})"), Word("fnx.checkpoint({f})({a})"), Word("fnx.call({f})({a})"),
    Word("own_rule({f})({a})"), Word("own_pullback({f})({a})"), Word("with_effect({f})({a})"),
    Word("fnx.jit({f}, donate_argnums=0)(jnp.copy({a}))"),
    Word("fnx.vmap({f})({a})", rows=True), Word("lax.map({f}, {a})", rows=True),
    Word("fnx.vmap({f}, in_axes=-1, out_axes=-1)(jnp.moveaxis({a}, 0, -1))", rows=True),
    Word("lax.scan(lambda c, z: (c + 1, ({f})(z)), 0, {a})[1]", rows=True),
    Word("lax.scan(lambda c, z: (({f})(z), c), ({f})({a}[0]), {a}, reverse=True)[0]", rows=True),
    Word("lax.cond({int} > jnp.asarray(0), {f}, {f}, {a})"),
    Word("lax.switch(jnp.asarray({int}), [{f}, {f}, {f}], {a})"),
    Word("lax.fori_loop(0, 2, lambda i, c: ({f})({a}), ({f})({a}))"),
    Word("lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, ({f})({a})), "
         "(0, ({f})({a})))[1]"),
    Word("fnx.vmap(lambda z: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, ({f})(z)), "
         "(0, ({f})(z)))[1])({a})", rows=True),
    Word("fnx.jvp({f}, ({a},), ({n},))[1]", exact=False, floats=True),
    Word("fnx.linearize({f}, {a})[1]({n})", exact=False, floats=True),
    Word("fnx.grad(lambda z: total(({f})(z)))({a})", exact=False, floats=True),
    Word("fnx.vmap(fnx.grad(lambda z: total(({f})(z))))({a})", rows=True, exact=False, floats=True),
    Word("fnx.jacfwd({f})({a})", exact=False, floats=True),
    Word("fnx.jacrev({f})({a})", exact=False, floats=True),
)


def _unlisted(module: Any, name: str, listed: str) -> list[Call]:
    """Return calls of public functions of one or two arrays that the tables above do not name, so
    that a new op is attacked at once."""
    out = []
    for f in module.__all__:
        function = getattr(module, f)
        if not inspect.isfunction(function) or f in DESCRIBE or f"{name}.{f}(" in listed:
            continue
        needed = [p for p in inspect.signature(function).parameters.values()
                  if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY,
                                                         p.POSITIONAL_OR_KEYWORD)]
        operands = {1: "{a}", 2: "{a}, {n}"}.get(len(needed))
        if any("Array" not in str(p.annotation) for p in needed):
            VALUED.add(f)  # an array stands for a number or a shape
        if operands is not None:
            out.append(Call(f"{name}.{f}({operands})", exact=False, jumps=True))
    return out


_LISTED = " ".join(call.text for call in (*_JNP, *_LAX, *_LOOPS, *_LANES, *_NN, *_RANDOM))
_SERIES = re.compile(r"\.(betainc|igamma\w*|random_gamma_grad|zeta|polygamma)\(")
CALLS: tuple[Call, ...] = tuple([
    call._replace(expensive=call.expensive or bool(_SERIES.search(call.text)))
    for call in (*_JNP, *_LAX, *_LOOPS, *_LANES, *_NN, *_RANDOM, *_unlisted(jnp, "jnp", _LISTED),
                 *_unlisted(lax, "lax", _LISTED), *_unlisted(nn, "nn", _LISTED))])
