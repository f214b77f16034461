"""Lists of mixed numbers as arguments: Python numbers, NumPy scalars and arrays, weak and strong
Arrays, traced and not. dtypes, weak types and values are compared, in both modes.

``scripts/compare_jax.py free_lists`` evaluates the expressions with JAX and fnx.
"""

from __future__ import annotations

import itertools

_PYTHON = ("1", "True", "2.5", "-3")
_NUMPY = ("np.bool_(True)", "np.int8(7)", "np.uint8(200)", "np.int16(-5)", "np.uint16(9)",
          "np.int32(4)", "np.uint32(3)", "np.int64(6)", "np.uint64(8)", "np.float16(0.5)",
          "np.float32(0.25)", "np.float64(1.5)", "np.asarray(f32_0d).astype(bf16_0d.dtype)")
_ARRAYS = ("i8_0d", "u8_0d", "i32_0d", "bf16_0d", "f16_0d", "f32_0d", "b_odd[0]", "w", "weak",
           "whole", "np.array(3, np.int16)", "np.array(0.5, np.float16)")
_ALL = (*_PYTHON, *_NUMPY, *_ARRAYS)
_FEW = ("1", "2.5", "True", "np.int8(7)", "np.uint16(9)", "np.float16(0.5)", "np.float64(1.5)",
        "np.int64(6)", "i8_0d", "bf16_0d", "f32_0d", "weak", "whole")


def _with_names(expression: str) -> str:
    """Return an expression that may name a weak float and a weak int."""
    if "weak" not in expression and "whole" not in expression:
        return expression
    return f"(lambda weak, whole: {expression})(jnp.asarray(2.5), jnp.asarray(3))"


def _every(templates: tuple[str, ...], *choices: tuple[str, ...]) -> list[str]:
    return [_with_names(text.format(*words)) for words in itertools.product(*choices)
            for text in templates]


_MAKERS = ("jnp.array([{0}, {1}])", "jnp.asarray(({0}, {1}))", "jnp.array([[{0}], [{1}]])",
           "jnp.array([[{0}, {1}], ({1}, {0})])")
MADE = [
    *_every(("jnp.array([{0}])", "jnp.asarray({0})", "jnp.array({0})", "jnp.array([[{0}]])",
             "jnp.array({0}, ndmin=1)", "jnp.array([{0}, {0}], copy=False)",
             "jnp.array([{0}], 'float16')", "jnp.asarray([{0}], dtype=float)",
             "jnp.asarray([{0}], dtype=int)", "jnp.full((2,), {0})", "jnp.full_like({0}, 1)",
             "jnp.zeros_like({0})", "jnp.full((2,), {0}, dtype='float16')",
             "jnp.ones_like({0})", "jnp.atleast_1d({0})", "jnp.arange({0})",
             "jnp.linspace({0}, 9, 3)", "jnp.broadcast_to({0}, (2,))", "jnp.tile({0}, 2)",
             "jnp.repeat({0}, 2)", "jnp.result_type({0})", "jnp.copy({0})"), _ALL),
    *_every(_MAKERS, _ALL, _ALL), *_every(("jnp.array([{0}, {1}, {2}])",), _FEW, _FEW, _FEW)]
_JOINS = ("jnp.stack([{0}, {1}])", "jnp.hstack([{0}, {1}])", "jnp.vstack([{0}, {1}])",
          "jnp.dstack([{0}, {1}])", "jnp.column_stack([{0}, {1}])", "jnp.append({0}, {1})",
          "jnp.concatenate([jnp.atleast_1d({0}), jnp.atleast_1d({1})])", "jnp.block([{0}, {1}])",
          "jnp.where(b[0], {0}, {1})", "jnp.where(b, {0}, {1})", "jnp.full_like({0}, {1})",
          "jnp.select([b], [{0}], {1})", "jnp.select([b, b], [{0}, {1}])",
          "jnp.choose(i - 1, [{0}, {1}, 0])", "jnp.linspace({0}, {1}, 4)",
          "jnp.logspace({0}, {1}, 3)", "jnp.arange({0}, {1})", "jnp.clip(f, {0}, {1})",
          "jnp.meshgrid(jnp.atleast_1d({0}), jnp.atleast_1d({1}))", "jnp.result_type({0}, {1})",
          "jnp.insert(jnp.atleast_1d({0}), 0, {1})", "jnp.broadcast_arrays({0}, {1})",
          "jnp.concatenate([{0}, {1}], axis=None)", "jnp.interp({0}, f, f, left={1})",
          "jnp.piecewise(f, [b], [{0}, {1}])", "jnp.pad(f, 1, constant_values={0})",
          "f.at[0].set({0})", "jnp.polyval(jnp.array([{0}, {1}]), 2)")
JOINED = _every(_JOINS, _FEW, _FEW)
_TRACED = ("top.jit(lambda x: jnp.array([x, {1}]))({0})", "top.jit(lambda x: jnp.array([[x], [{1}]"
           "]))({0})", "top.jit(lambda x: jnp.asarray([{1}, x * 2, 1]))({0})",
           "top.jit(lambda x: jnp.stack([x, {1}]))({0})", "top.jit(lambda x, y: jnp.array([x, y]))"
           "({0}, {1})", "top.jit(lambda x: jnp.where(x > 0, x, {1}))({0})",
           "top.jit(lambda x: jnp.full((2,), x))({0})",
           "vmap(lambda x: jnp.array([x, {1}]))(jnp.atleast_1d({0}))",
           "vmap(lambda x: jnp.array([x, {1}]))(jnp.array([{0}, {0}]))",
           "lax.scan(lambda c, _: (c, jnp.array([c, {1}])), {0}, None, 2)[1]")
TRACED = _every(_TRACED, _FEW, _FEW)
_ROWS = ("f16_3", "np.arange(3)", "np.ones(3)", "np.ones(3, np.float16)", "[1, 2.5, True]", "i8_3",
         "(np.int8(1), 2, 3)", "np.array([True, False, True])", "f32_3", "bf16_3", "u8_3",
         "[weak, 1, whole]", "jnp.full(3, 2)", "range(3)")
NESTED = _every(("jnp.array([{0}, {1}])", "jnp.asarray([[{0}], [{1}]])",
                 "top.jit(lambda v: jnp.array([{0}, v, {1}]))(f16_3)"), _ROWS, _ROWS) + [
    "jnp.array([[1, 2], [3, 4.5]])", "jnp.array([[True], [2]])", "jnp.array([[], []])",
    "jnp.array([300, np.int8(1)])", "jnp.array([-1, np.uint8(1)])", "jnp.array([2**40])",
    "jnp.array([2**40, 1.0])", "jnp.array([np.int64(2**40)])", "jnp.array([1e300])",
    "jnp.array([1, None])", "jnp.array(['a'])", "jnp.array([1j])", "jnp.array([[1], [2, 3]])",
    "jnp.array([f, 1])", "jnp.array([f, f[:2]])", "jnp.array(range(4))", "jnp.array([range(2)])",
    "jnp.array([b, f])", "jnp.array([f16_3, i8_3, 1.0 * i8_3])", "jnp.array([k, k])",
    "jnp.array([np.float16(1e-8), 1])", "jnp.array([1e-8, np.float16(1)])"]
WIDTHS = _every((
    "jnp.zeros(2, {0})", "jnp.ones((), dtype={0})", "f.astype({0})", "i.astype({0})",
    "jnp.astype(f, {0})", "jnp.asarray([1, 2], {0})", "jnp.array(2.5, dtype={0})",
    "jnp.arange(3, dtype={0})", "jnp.full(2, 7, {0})", "jnp.eye(2, dtype={0})",
    "jnp.linspace(0, 1, 3, dtype={0})", "jnp.sum(f, dtype={0})", "jnp.cumsum(i, dtype={0})",
    "jnp.result_type({0}, 'int8')", "jnp.zeros_like(f, {0})", "lax.full((2,), 3, {0})",
    "jnp.concatenate([f, i], dtype={0})", "jnp.full_like(i, 3, dtype={0})",
    "lax.convert_element_type(f, {0})", "jnp.tri(2, dtype={0})", "jnp.prod(i, dtype={0})",
    "jnp.identity(2, {0})", "jnp.indices((2,), {0})", "jnp.empty(0, {0})"),
    ("float", "int", "'float'", "'int'", "'uint'"))
FAMILIES = {"lists widths": WIDTHS, "lists made": MADE, "lists joined": JOINED,
            "lists traced": TRACED, "lists nested": NESTED}
