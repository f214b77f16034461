"""Degenerate parameters and arrays: counts of 0, no elements, a mask that selects none, as many
degrees of freedom as numbers.

``scripts/compare_jax.py degenerate`` evaluates the expressions with JAX and fnx, in both modes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable


def _all(templates: Iterable[str], **choices: str) -> list[str]:
    """Fill each template with each combination of its choices, which are separated by spaces."""
    found = []
    for template in templates:
        named = [n for n in choices if "{" + n + "}" in template]
        for words in itertools.product(*(choices[n].split() for n in named)):
            found.append(template.format(**dict(zip(named, words))))
    return found


_FOLDS = "all any sum prod max min mean var std ptp median argmax argmin count_nonzero average " \
    "nansum nanprod nanmax nanmin nanmean nanvar nanstd nanmedian nanargmax nanargmin"
_WITH_AXES = "all any sum prod max min mean var std amax amin average count_nonzero nansum " \
    "nanprod nanmax nanmin nanmean nanvar nanstd ptp"
# none: no elements; e: (0, 3); i, f, m, x: of 3, 3, (2, 3) and (2, 3, 4); z: a number.
FOLDED = _all([
    "jnp.{f}({x})", "jnp.{f}({x}, axis=0)", "jnp.{f}({x}, axis=-1)", "jnp.{f}({x}, None)",
    "jnp.{f}({x}, axis=-1, keepdims=True)",
], f=_FOLDS, x="f32_none i32_none e e.T z b[:0] f16_1") + _all([
    "jnp.{f}({x}, axis=())", "jnp.{f}({x}, (), keepdims=True)",
], f=_WITH_AXES, x="m e z i") + _all([
    "jnp.{f}({x}, where=False)", "jnp.{f}({x}, where={x} > 99)", "jnp.{f}({x}, 0, where={x} > 0)",
    "jnp.{f}({x}, 0, where={x} == 1, keepdims=True)",
], f="all any sum prod mean var std nansum nanprod nanmean nanvar nanstd",
    x="m i f16_2x3 nans e") + _all([
    "jnp.{f}({x}, initial=2, where={x} > 99)", "jnp.{f}({x}, 0, initial=2, where=False)",
], f="max min sum prod nanmax nanmin", x="m i nans e") + _all([
    "jnp.{f}({x}, ddof={n})", "jnp.{f}({x}, axis=0, ddof={n})", "jnp.{f}({x}, -1, None, None, {n})",
    "jnp.{f}({x}, 0, ddof={n}, where={x} > 0)", "jax.jit(lambda v: jnp.{f}(v, 0, ddof={n}))({x})",
], f="var std nanvar nanstd", x="f m i e nans f16_2x3 f32_1", n="0 1 2 3 4 99 2.5 -1") + _all([
    "jnp.var({x}, correction={n})", "jnp.std({x}, 0, correction={n})",
], x="f m", n="0 3 4") + _all([
    "jnp.cov({x}, ddof={n})", "jnp.cov({x}, {x}, ddof={n})", "jnp.cov({x}, rowvar=False, ddof={n})",
    "jnp.cov({x}, bias=True)", "jnp.corrcoef({x})", "jnp.corrcoef({x}, rowvar=False)",
], x="f m m[:,:1] m[:,:0] m[:1] f32_1", n="0 1 2 3") + [
    "jnp.cov(m, fweights=i * 0)", "jnp.cov(m, aweights=f * 0)", "jnp.cov(m, fweights=i // 3)",
    "jnp.average(f, weights=f * 0)", "jnp.average(e, 0, weights=e)", "jnp.average(m, 1, weights=i"
    " * 0, returned=True)", "jnp.average(e, 0, returned=True)",
    *_all(["stats.sem({x}, {a}, {n})", "stats.sem({x}, {a}, {n}, 'omit')"],
          x="m f nans i", a="0 None -1", n="0 1 2 3 9")]
_QUANTILES = _all([
    "jnp.{f}({x}, {q})", "jnp.{f}({x}, {q}, axis=0)", "jnp.{f}({x}, {q}, -1, keepdims=True)",
], f="quantile percentile nanquantile nanpercentile", x="m z f32_1 e.T nans f32_none",
    q="0 1.0 f[:0] e")
STATISTICS = [*FOLDED, *_QUANTILES, *_all([
    "jnp.{f}({x})", "jnp.{f}({x}, axis=0)", "jnp.{f}({x}, axis=-1)"],
    f="cumsum cumprod nancumsum nancumprod cumulative_sum cumulative_prod sort argsort unique "
      "diff flip unwrap", x="f32_none i32_none e e.T z b[:0]"), *_all(
    ["jnp.{f}({x}, axis=0, include_initial=True)"], f="cumulative_sum cumulative_prod",
    x="e e.T f32_none i32_none b[:0]")]
_DIFF = _all([
    "jnp.diff({x}, {n})", "jnp.diff({x}, n={n}, axis=0)", "jnp.diff({x}, {n}, prepend=1)",
    "jnp.diff({x}, {n}, append=2.5)", "jnp.diff({x}, {n}, -1, {x}, {x})",
], x="i v m x b e e.T f32_1 u8_3", n="0 1 2 3 9")
CALCULUS = [*_DIFF, *_all([
    "jnp.ediff1d({x})", "jnp.ediff1d({x}, {y})", "jnp.ediff1d({x}, to_begin={y})",
    "jnp.trapezoid({x})", "jnp.trapezoid({x}, {x})", "jnp.trapezoid({x}, dx=0)",
    "jnp.gradient({x})", "jnp.cross({x}, {x})", "jnp.interp({x}, f, f)", "jnp.interp(f, {x}, {x})",
    "jnp.convolve({x}, f)", "jnp.correlate({x}, {x}, 'full')", "jnp.unwrap({x})",
    "jnp.nan_to_num({x})", "jnp.clip({x}, None, None)", "jnp.clip({x})", "jnp.round({x}, 0)",
    "jnp.interp({x}, v, v, left=-1, right=2, period=3)",
], x="f32_none i32_none f32_1 z e", y="f32_none 1 i"), *_all([
    "jnp.polyval({x}, {y})", "jnp.polyadd({x}, {y})", "jnp.polysub({x}, {y})",
    "jnp.polymul({x}, {y})", "jnp.polyder({x}, {n})", "jnp.polyint({x}, {n})",
    "jnp.vander({x}, {n})", "jnp.poly({x})", "jnp.polydiv({x}, f)"],
    x="f32_none f32_1 v i[:0]", y="f32_none v z", n="0 1 2 9")]
_SIZED = _all([
    "jnp.{f}({n})", "jnp.{f}({n}, dtype=int)", "jnp.{f}(({n}, 2))", "jnp.{f}((2, {n}), 'int8')",
], f="zeros ones empty", n="0 1") + _all([
    "jnp.arange({n})", "jnp.arange({n}, 0)", "jnp.arange(0, {n}, 2)", "jnp.arange(3, {n})",
    "jnp.arange({n}, dtype='float16')", "jnp.arange({n}, 4, -1)",
    "jnp.linspace(1, 2, {n})", "jnp.linspace(1, 2, {n}, endpoint=False)",
    "jnp.linspace(1, 2, {n}, retstep=True)", "jnp.linspace(f, v[:3], {n}, axis=-1)",
    "jnp.linspace(1, 2, {n}, endpoint=False, retstep=True)", "jnp.linspace(0, 5, {n}, dtype=int)",
    "jnp.logspace(0, 2, {n})", "jnp.logspace(0, 2, {n}, False, 2.0)", "jnp.geomspace(1, 8, {n})",
    "jnp.geomspace(1, 8, {n}, endpoint=False)", "jnp.eye({n})", "jnp.eye(3, {n})",
    "jnp.eye({n}, 3, 1)", "jnp.eye(2, k={n})", "jnp.identity({n})", "jnp.tri({n})",
    "jnp.tri(3, {n})", "jnp.tri({n}, 3, -1)", "jnp.full({n}, 7)", "jnp.full(({n}, 2), i[:2])",
    "jnp.indices(({n},))", "jnp.indices((2, {n}))", "jnp.diag_indices({n})",
    "jnp.diag_indices(2, {n})", "jnp.tril_indices({n})", "jnp.triu_indices({n}, 1, 3)",
    "jnp.hamming({n})", "jnp.hanning({n})", "jnp.bartlett({n})", "jnp.blackman({n})",
    "jnp.kaiser({n}, 3)", "jnp.mask_indices({n}, jnp.triu)",
    "jnp.fromfunction(lambda i: i, ({n},))",
    "random.normal(k, ({n},)).shape", "random.permutation(k, {n})", "random.split(k, {n})",
    "random.randint(k, (), 0, {n})", "random.uniform(k, ({n}, 2))", "random.choice(k, 5, ({n},))",
    "random.bits(k, ({n},))", "random.categorical(k, f, shape=({n},))",
    "random.gamma(k, 2.0, ({n},))", "random.dirichlet(k, f, ({n},))",
    "random.multivariate_normal(k, f, s @ s.T, ({n},)).shape",
    "nn.one_hot(i, {n})", "nn.one_hot(i[:0], {n})", "top.ops.segment_sum(f, i - 1, {n})",
    "top.ops.segment_max(f, i - 1, {n})", "top.ops.segment_prod(m[:0], i[:0], {n})",
    "lax.iota('int32', {n})", "lax.broadcasted_iota('int32', (2, {n}), 1)",
    "lax.top_k(v, {n})", "lax.top_k(m, {n})", "lax.full(({n},), 3.0)",
    "lax.scan(lambda c, _: (c + 1, c), 0, None, {n})",
    "lax.fori_loop(0, {n}, lambda i, c: c + i, 5)",
    "lax.fori_loop({n}, 0, lambda i, c: c * 2.0, f)",
], n="0 1")
_COUNTS = _all([
    "jnp.repeat({x}, {n})", "jnp.repeat({x}, {n}, 0)", "jnp.tile({x}, {n})",
    "jnp.tile({x}, (2, {n}))", "jnp.roll({x}, {n})", "jnp.roll({x}, {n}, 0)",
    "jnp.rot90({x}, {n})", "jnp.pad({x}, {n})", "jnp.pad({x}, {n}, 'edge')",
    "jnp.pad({x}, {n}, 'wrap')", "jnp.pad({x}, {n}, 'reflect')", "jnp.pad({x}, {n}, 'mean')",
    "jnp.resize({x}, {n})", "jnp.resize({x}, ({n}, 2))", "jnp.triu({x}, {n})", "jnp.diag({x}, {n})",
    "jnp.diagflat({x}, {n})", "jnp.diagonal({x}, {n})", "jnp.trace({x}, {n})",
    "jnp.partition({x}, {n})[{n}]", "jnp.split({x}, {n})", "jnp.array_split({x}, {n})",
    "jnp.array_split({x}, 3)", "jnp.tensordot({x}, {x}, {n})", "jnp.nonzero({x}, size={n})",
    "jnp.flatnonzero({x}, size={n}, fill_value=3)", "jnp.argwhere({x}, size={n})",
    "jnp.unique({x}, size={n})", "jnp.unique({x}, size={n}, fill_value=9)",
    "jnp.union1d({x}, {x}, size={n})", "jnp.take({x}, {n}, mode='clip')",
    "lax.dynamic_slice_in_dim({x}, 0, {n})", "lax.slice_in_dim({x}, {n}, {n})",
    "lax.integer_pow({x}, {n})", "jnp.round({x}, {n})", "jnp.moveaxis({x}, (), ())",
    "jnp.expand_dims({x}, ())", "jnp.squeeze({x}, ())", "jnp.flip({x}, ())", "jnp.rollaxis({x}, 0)",
    "{x}[:{n}]", "{x}[{n}:{n}]", "{x}[...]", "{x}[()]", "{x}[None, :{n}]",
    "{x}.at[:{n}].set(9)", "{x}.at[:0].add(1)", "{x}.at[...].multiply(2)", "{x}[np.zeros(0, int)]",
    "{x}.at[np.zeros(0, int)].set(3)",
    "{x}.at[np.zeros(0, int)].add({x}[:0])", "jnp.take({x}, np.zeros(0, int))",
    "jnp.take({x}, np.zeros((2, 0), int), 0)", "jnp.delete({x}, np.zeros(0, int))",
    "jnp.delete({x}, slice(0, 0), 0)", "jnp.insert({x}, np.zeros(0, int), np.zeros(0))",
    "jnp.append({x}, np.zeros(0))", "jnp.append({x}, {x}[:0], 0)", "jnp.trim_zeros({x} * 0)",
    "jnp.histogram({x}, {n})", "jnp.concatenate([{x}])", "jnp.stack([{x}], -1)",
], x="v m e i32_none f32_0d", n="0 1") + _all(
    ["{x}[np.zeros({x}.shape, bool)]", "{x}.at[np.zeros({x}.shape, bool)].set(5)"], x="v m e")
_OTHERS = _all([
    "jnp.bincount({x})", "jnp.bincount({x}, length=0)", "jnp.bincount({x}, minlength=2)",
    "jnp.bincount({x}, weights={x})", "jnp.searchsorted({x}, v)", "jnp.searchsorted(v, {x})",
    "jnp.digitize({x}, v)", "jnp.histogram({x})", "jnp.histogram_bin_edges({x})",
    "jnp.isin({x}, i)", "jnp.isin(i, {x})", "jnp.setdiff1d(i, {x})", "jnp.setdiff1d({x}, i)",
    "jnp.union1d({x}, i)", "jnp.intersect1d({x}, i)", "jnp.setxor1d({x}, i)",
    "jnp.unique_all({x})", "jnp.unique_counts({x})", "jnp.lexsort(({x}, {x}))",
    "jnp.outer({x}, f)", "jnp.inner({x}, {x})", "jnp.dot({x}, {x})", "jnp.vdot({x}, {x})",
    "jnp.kron({x}, f)", "jnp.meshgrid({x}, f)", "jnp.ix_({x}, i)", "jnp.where({x} > 0)",
    "jnp.select([{x} > 0], [{x}])", "jnp.extract({x} > 0, {x})", "jnp.argwhere({x})",
    "jnp.nonzero({x})", "jnp.array_equal({x}, {x})", "jnp.allclose({x}, {x})",
    "jnp.vstack([{x}])", "jnp.hstack([{x}, f])", "jnp.column_stack([{x}])", "jnp.block([{x}, f])",
    "jnp.dstack([{x}])", "jnp.einsum('i,i->', {x}, {x})", "jnp.einsum('i,j->ij', {x}, f)",
    "jnp.apply_along_axis(jnp.sum, 0, {x})", "jnp.vectorize(jnp.sin)({x})", "jnp.linalg.norm({x})",
    "jnp.linalg.norm({x}, 1)", "jnp.linalg.norm({x}, 0)", "jnp.ravel_multi_index(({x},), (4,))",
    "jnp.unravel_index({x}, (2, 3))", "jnp.place(f, f > 9, {x}, inplace=False)",
    "jnp.put(f, {x}, {x}, inplace=False)", "jnp.compress(b[:0], {x})", "nn.one_hot({x}, 3)",
    "lax.associative_scan(jnp.add, {x})", "lax.sort({x})", "lax.rev({x}, (0,))",
    "lax.map(lambda v: v + 1, {x})", "lax.scan(lambda c, v: (c + v, v * 2), {x}.sum(), {x})",
    "lax.reduce({x}, {x}.dtype.type(0), lax.add, (0,))", "lax.argmax({x}, 0, 'int32')",
    "lax.pad({x}, {x}.dtype.type(0), [(0, 0, 0)])", "lax.pad({x}, {x}.dtype.type(0), [(2, 1, 3)])",
    "vmap(lambda v: v * 2)({x})", "vmap(lambda v: (v, 1))({x})", "lax.cumsum({x})",
    "stats.rankdata({x})", "stats.mode({x})", "random.permutation(k, {x})",
    "random.choice(k, {x}, (0,))", "lax.concatenate([{x}, {x}], 0)", "jnp.array_split({x}, 2)",
], x="i32_none i[:1] f32_none.astype(int)") + _all([
    "nn.{f}({x})", "nn.{f}({x}, axis=0)", "nn.{f}({x}, -1)", "nn.{f}({x}, where={x} > 99)",
], f="softmax log_softmax logsumexp standardize logmeanexp", x="m e e.T f z f32_1 f32_none")
_OTHERS += _all([
    "special.logsumexp({x})", "special.logsumexp({x}, 0, b={x})", "special.softmax({x})",
    "special.logsumexp({x}, (), keepdims=True)", "special.logsumexp({x}, where={x} > 99)"],
    x="m e e.T z f32_none") + [
    "jnp.meshgrid()", "jnp.broadcast_arrays()", "jnp.atleast_1d()", "jnp.ix_()",
    "jnp.indices(())", "jnp.array([])", "jnp.array([[]])", "jnp.array([[], []], 'int8')",
    "jnp.array(())", "jnp.asarray([], int)", "jnp.concatenate([])", "jnp.stack([])",
    "jnp.einsum('', 2, 3)", "jnp.einsum('ij->', e)", "jnp.einsum('ij,jk->ik', e.T, e)",
    "jnp.matmul(e.T, e)", "jnp.matmul(e, e.T)", "jnp.dot(e.T, e)", "jnp.linalg.multi_dot([m, m.T])",
    "jnp.linalg.matrix_power(s, 0)", "jnp.linalg.matrix_power(e[:, :0], 2)",
    "lax.reduce_window(f, 0.0, lax.add, (1,), (1,), 'VALID')", "jnp.transpose(w, ())",
    "lax.reduce_window(f, 0.0, lax.add, (4,), (1,), 'VALID')", "lax.conv(x[:, :, :0], x, (1,), "
    "'VALID')", "top.image.resize(m, (0, 3), 'linear')", "top.image.resize(m, (1, 1), 'nearest')",
    "lax.broadcast(f, (0,))", "lax.collapse(e, 0)", "lax.cond(True, lambda: e, lambda: e)",
    "lax.while_loop(lambda c: False, lambda c: c + 1, f)", "lax.select_n(b, f, f)",
    "jnp.matrix_transpose(e)", "jnp.bitwise_count(i[:0])", "jnp.fill_diagonal(e, 1, inplace=False)",
    "jnp.packbits(b[:0])", "jnp.unpackbits(u8_3[:0])", "jnp.choose(i[:0], [f[:0], 1])",
    "jnp.put_along_axis(m, i[None, :0], 3, 1, inplace=False)",
    "jnp.take_along_axis(m, i[None, :0], 1)", "jnp.trapezoid(m[:, :0])", "jnp.nextafter(e, e)"]
FAMILIES = {"degenerate statistics": STATISTICS, "degenerate calculus": CALCULUS,
            "degenerate sizes": _SIZED, "degenerate counts": _COUNTS,
            "degenerate others": _OTHERS}
