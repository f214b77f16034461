"""Intended differences from JAX in idiom programs, which a comparison ignores."""

from __future__ import annotations

import re

# (pattern in the program, pattern in the difference, reason)
_ROWS: tuple[tuple[str, str, str], ...] = (
    ("", "JAX refuses: (Tracer(Array|Bool|Integer)Conversion|ConcretizationType"
     "|NonConcreteBooleanIndex)Error", "eager transforms give values where they know them"),
    ("", "JAX refuses: TypeError can't apply forward-mode", "a custom_vjp is transposed"),
    ("", "JAX refuses: AttributeError 'TypedNdArray'", "NumPy data is an Array to what is traced"),
    ("", "JAX refuses: NotImplementedError", "not built in JAX"),
    ("", "JAX refuses: TypeError primal and tangent arguments", "weak tangents take the dtype"),
    ("", "JAX refuses: ValueError XLA operations do not allow negative", "axes are as NumPy's"),
    ("custom_vjp", "^weak True, JAX False", "a gradient has the weak type of its argument"),
    (r"grad\(lambda s: \w+\(x \* s\)\)\(2\.0\)", "^weak True, JAX False",
     "the same; JAX's loses it in the slices of x * s, and keeps it under jit for some"),
    ("custom_vjp", r"refuses: RuleError .* of \w+ to return cotangent.* like the argument, "
     "[a-z]+[0-9]+", "a cotangent has the dtype of its argument"),
    (r"nn\.sigmoid", "JAX refuses: TypeError logistic does not accept dtype int",
     "activations take integers as floats"),
    (r"lax\.select", "JAX refuses: TypeError lax.select requires arguments to have the same dtypes",
     "a weak operand takes the dtype of the other"),
    ("", "JAX refuses: ValueError Reverse-mode differentiation does not work for lax.while_loop",
     "loops have derivatives in both modes"),
    (r"linalg\.norm", r"values: .*, JAX \[.*nan", "the gradient of a norm at 0 is 0"),
    (r"class Layer_", "JAX refuses: TypeError unhashable type", "callables need not be hashable"),
)


def on_purpose(text: str, difference: str) -> str:
    """Return the reason for an intended difference; empty if there is none."""
    return next((why for what, how, why in _ROWS
                 if difference and re.search(what, text) and re.search(how, difference)), "")
