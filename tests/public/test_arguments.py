"""No argument is ignored: unknown keywords, misspelled ones and nonsense values are refused.

Generated for every public callable of numpy, lax, nn, random and tree, and for the methods of Array
and ``x.at[...]``: ``call`` passes valid arguments, so a refusal is due to the one that was changed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, FnxError
from tests.public import surface, valid_arguments

ROOMS = ("fnx.numpy.", "fnx.lax.", "fnx.nn.", "fnx.random.", "fnx.scipy.", "Array.", "At.",
         "fnx.experimental.sparse.linalg.")
TREES = ("fnx.tree.", "fnx.tree_util.")


def chosen(rooms: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    return {name: f for name, f in surface.callables().items()
            if name.startswith(rooms) and not isinstance(f, type)}


CALLABLES = {name: f for name, f in chosen(ROOMS).items()
             if name not in {f"fnx.numpy.{n}" for n in valid_arguments.NUMPYS}}

# Methods that compute nothing: Python itself refuses their arguments.
PLAIN = [f"Array.{n}" for n in (
    "addressable_data", "block_until_ready", "clone", "copy", "copy_to_host_async", "delete",
    "devices", "is_deleted", "unsafe_buffer_pointer",
    "is_ready", "item", "on_device_size_in_bytes", "platform", "tobytes", "tolist")]

# ---- valid arguments --------------------------------------------------------------------------

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
SQUARE = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
WHOLE = np.asarray([1, 0, 2], np.int32)
KEY = np.asarray([0, 7], np.uint32)

BY_NAME: dict[str, Any] = {
    "a": SQUARE, "b": SQUARE, "x": X, "y": X, "m": SQUARE, "v": WHOLE, "arr": X, "array": X,
    "A": X, "ary": X, "operand": X, "lhs": SQUARE, "rhs": SQUARE, "a1": X, "a2": X,
    "object": X, "condition": X > 2, "indices": WHOLE, "shape": (2, 3), "fill_value": 1.0,
    "start": 0.0, "stop": 3.0, "N": 3, "n": 3, "axis": 0, "axis1": 0, "axis2": 1, "source": 0,
    "destination": 1, "arrays": [X, X], "tup": [X, X], "indices_or_sections": 1, "shift": 1,
    "pad_width": 1, "reps": 2, "repeats": 2, "subscripts": "ij->i", "dtype": "float32",
    "key": KEY, "keys": KEY, "seed": 0, "data": 1, "num": 2, "key_bits_array": KEY, "minval": 0,
    "maxval": 5, "lower": -1.0, "upper": 1.0, "logits": X, "num_classes": 3, "value": 1.0,
    "scale": 1.0, "mode": "fan_in", "distribution": "normal", "arg1": np.float32,
    "arg2": np.floating, "prototype": X, "int_type": "int32", "index_dtype": "int32",
    "pred": X > 2, "on_true": X, "on_false": X, "which": X > 2, "min": 1,
    "max": 2, "new_dtype": "float32", "broadcast_dimensions": (0, 1), "sizes": (2,),
    "new_sizes": (3, 2), "permutation": (1, 0), "dimensions": (0,), "operands": [X, X],
    "dimension": 0, "padding_value": 0.0, "padding_config": [(0, 0, 0)] * 2, "size": 3,
    "dimension_numbers": (((1,), (0,)), ((), ())), "start_indices": (0, 0),
    "limit_indices": (1, 1), "start_index": 0, "limit_index": 1, "index": 0, "slice_size": 1,
    "slice_sizes": (1, 1), "update": np.ones((1, 3), np.float32), "xi": WHOLE, "axes": (0,),
    "axis_name": "lanes", "inputs": X, "window_shape": (2,)}
CONVOLUTION: dict[str, Any] = {
    "lhs": X[None], "rhs": X[None], "window_strides": (1,), "strides": (1,), "padding": "VALID",
    "filter_shape": (1,), "lhs_dilation": None, "rhs_dilation": None, "dimension_numbers": None}
SCATTER: dict[str, Any] = {
    "operand": X[0], "scatter_indices": WHOLE[:, None], "updates": X[0], "func": lambda x: x + x,
    "dimension_numbers": fnx.lax.ScatterDimensionNumbers((), (0,), (0,))}
BY_FUNCTION: dict[str, dict[str, Any]] = {
    **{f"fnx.numpy.{n}": {"x": WHOLE, "y": WHOLE} for n in (
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_invert", "invert",
        "left_shift", "right_shift", "bitwise_left_shift", "bitwise_right_shift")},
    **{f"fnx.lax.{n}": {"x": WHOLE, "y": WHOLE} for n in (
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left",
        "shift_right_logical", "shift_right_arithmetic")},
    **{f"fnx.lax.reduce_{n}": {"operand": WHOLE} for n in ("and", "or", "xor")},
    **{f"fnx.numpy.{n}": {"args": X} for n in ("result_type", "promote_types",
                                               "broadcast_arrays")},
    "fnx.numpy.where": {"x": X, "y": X}, "fnx.numpy.reshape": {"shape": 9},
    "fnx.numpy.permute_dims": {"axes": (1, 0)}, "fnx.lax.polygamma": {"m": 1.0},
    "fnx.numpy.linalg.matmul": {"x1": SQUARE, "x2": SQUARE},
    "fnx.numpy.squeeze": {"axis": None}, "fnx.numpy.expand_dims": {"axis": 0},
    "fnx.numpy.broadcast_shapes": {"shapes": (2,)}, "fnx.numpy.take_along_axis": {
        "arr": WHOLE, "indices": WHOLE},
    "fnx.numpy.inner": {"b": SQUARE}, "fnx.numpy.einsum": {"operands": X},
    "fnx.lax.integer_pow": {"y": 2}, "fnx.lax.squeeze": {"array": X[None]},
    "fnx.lax.select_n": {"cases": X}, "fnx.lax.iota": {"dtype": "int32"},
    "fnx.nn.glu": {"x": np.ones((2, 2), np.float32)}, "fnx.nn.one_hot": {"x": WHOLE},
    "fnx.lax.dynamic_update_index_in_dim": {"update": np.ones(3, np.float32)},
    "fnx.nn.initializers.zeros": {"key": None}, "fnx.nn.initializers.ones": {"key": None},
    "fnx.random.randint": {"shape": (2,)}, "fnx.random.choice": {"a": 5},
    "fnx.lax.associative_scan": {"fn": jnp.add, "elems": X},
    "fnx.lax.reduce": {"operands": X, "init_values": 0.0, "computation": jnp.add},
    "fnx.lax.reduce_window": {"operand": X, "init_value": 0.0, "computation": jnp.add,
                              "window_dimensions": (1, 2)},
    "fnx.lax.batch_matmul": {}, "Array.view": {"dtype": "int32"},
    "Array.reshape": {"shape": (9,)}, "Array.transpose": {"axes": (1, 0)},
    "Array.item": {"index": 0}, "fnx.numpy.tensordot": {"axes": 1},
    "fnx.numpy.vectorize": {"pyfunc": lambda x: x},
    "fnx.lax.scan": {"f": lambda c, x: (c, x), "init": 1.0, "xs": X},
    "fnx.lax.map": {"f": lambda x: -x, "xs": X},
    "fnx.lax.fori_loop": {"lower": 0, "upper": 2, "body_fun": lambda i, x: x, "init_val": X},
    "fnx.lax.while_loop": {"cond_fun": lambda x: x < 3, "body_fun": lambda x: x + 1,
                           "init_val": 0},
    "fnx.lax.cond": {"pred": True, "true_fun": lambda x: x, "false_fun": lambda x: -x,
                     "operands": X},
    "fnx.lax.switch": {"index": 0, "branches": [lambda x: x], "operands": X},
    "fnx.lax.custom_root": {"f": lambda x: x * x - 2, "initial_guess": 1.0,
                            "solve": lambda f, x: x, "tangent_solve": lambda g, y: y / g(1.0)},
    "fnx.lax.custom_linear_solve": {"matvec": lambda x: 2 * x, "b": X,
                                    "solve": lambda matvec, b: b / 2,
                                    "transpose_solve": lambda matvec, b: b / 2},
    "fnx.lax.ppermute": {"perm": [(0, 1)]},
    "fnx.lax.conv_dimension_numbers": {"lhs_shape": (1, 1, 3), "rhs_shape": (1, 1, 2),
                                       "dimension_numbers": None},
    **{f"fnx.lax.{n}": CONVOLUTION for n in (
        "conv", "conv_general_dilated", "conv_general_dilated_patches",
        "conv_with_general_padding")},
    "fnx.lax.conv_transpose": {**CONVOLUTION, "rhs": X.T[None]},
    **{f"fnx.lax.{n}": {"k": 1} for n in ("approx_max_k", "approx_min_k", "top_k")},
    "fnx.lax.sort_key_val": {"keys": X, "values": X},
    "fnx.lax.gather": {"start_indices": WHOLE[:, None], "slice_sizes": (1,), "operand": X[0],
                       "dimension_numbers": fnx.lax.GatherDimensionNumbers((), (0,), (0,))},
    **{f"fnx.lax.scatter{n}": SCATTER for n in (
        "", "_add", "_max", "_min", "_mul", "_sub")},
    "fnx.lax.scatter_apply": {**SCATTER, "scatter_indices": WHOLE[:1]},
    "fnx.lax.pshuffle": {"perm": [1, 0]},
    "fnx.lax.all_to_all": {"x": WHOLE[:2], "split_axis": 0, "concat_axis": 0},
    "fnx.lax.psum_scatter": {"x": WHOLE[:2]}, "fnx.lax.pswapaxes": {"x": WHOLE[:2], "axis": 0},
}


def receiver(name: str) -> tuple[Any, ...]:
    """Return the object that a method is called on."""
    if name.startswith("At."):
        return (jnp.asarray(SQUARE).at[0],)
    if name in valid_arguments.RECEIVERS:
        return (jnp.asarray(valid_arguments.RECEIVERS[name]),)
    return (jnp.asarray(SQUARE),) if name.startswith("Array.") else ()


def arguments(name: str, f: Callable[..., Any]) -> list[Any]:
    """Return valid required arguments, by position; for ``*args`` one."""
    known = {**BY_NAME, **valid_arguments.BY_NAME, **valid_arguments.BY_FUNCTION.get(name, {}),
             **BY_FUNCTION.get(name, {})}
    args: list[Any] = []
    parameters = list(inspect.signature(f).parameters.values())[len(receiver(name)):]
    for p in parameters:
        wanted = p.default is p.empty and p.kind is not p.VAR_KEYWORD \
            or p.name in BY_FUNCTION.get(name, {}) \
            or p.name in valid_arguments.BY_FUNCTION.get(name, {})
        if wanted and p.kind is not p.KEYWORD_ONLY:
            args.append(known[p.name])
    return args


def call(name: str, extra: dict[str, Any], args: list[Any] | None = None) -> Any:
    """Call the function with valid arguments, or with the given ones, and ``extra``."""
    f = CALLABLES[name]
    extra = {**valid_arguments.KEYWORDS.get(name, {}), **extra}
    args = arguments(name, f) if args is None else args
    if "axis_name" not in inspect.signature(f).parameters:
        return f(*receiver(name), *args, **extra)
    return fnx.vmap(lambda _: f(*args, **extra), axis_name="lanes")(np.zeros(2))


def short(name: str) -> str:
    return name.rpartition(".")[2]


def keywords(name: str) -> list[str]:
    parameters = list(inspect.signature(CALLABLES[name]).parameters.values())
    return [p.name for p in parameters[len(receiver(name)):]
            if p.default is not p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


# ---- laws -------------------------------------------------------------------------------------


def test_there_is_a_surface() -> None:
    assert len(CALLABLES) > 290


@pytest.mark.parametrize("name", PLAIN)
def test_plain_methods_refuse_unknown_keywords(name: str) -> None:
    with pytest.raises(TypeError, match=f"{short(name)}.*nonsense"):
        call(name, {"nonsense": 1})


def takes_all_keywords(f: Callable[..., Any]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(f).parameters.values())


def refuse_unknown_and_misspelt_keywords(name: str) -> None:
    """The function is named as it was called."""
    f = CALLABLES[name]
    known = [p.name for p in inspect.signature(f).parameters.values()]
    for given in ["nonsense", *[f"{k}e" for k in keywords(name) if f"{k}e" not in known]]:
        with pytest.raises(ArgumentError) as caught:
            call(name, {given: None})
        error = caught.value
        assert repr(given) in error.message and "expected" in error.message
        assert error.message.startswith((f"{short(name)}: ", f"{f.__qualname__}: "))
        assert error.loc is not None and error.loc[0] == __file__
        if given != "nonsense":
            assert given[:-1] in f"{error.message} {error.hint}"


class Nonsense:
    """An object that no parameter accepts."""

    def __repr__(self) -> str:
        return "Nonsense()"


NONSENSE: list[Any] = [Nonsense(), "nonsense"]


def refuse_nonsense_values(name: str) -> None:
    for keyword in keywords(name):
        if keyword in valid_arguments.ANYTHING_IS_TAKEN.get(name, ()):
            continue
        for value in NONSENSE:
            with pytest.raises(FnxError) as caught:
                call(name, {keyword: value})
            assert caught.value.message


NOT_LOOKED_AT = {  # arguments that are passed on, or that nothing depends on
    "fnx.numpy.piecewise": ("args",), "fnx.lax.platform_dependent": ("args",),
    "fnx.nn.initializers.ones": ("key",), "fnx.nn.initializers.zeros": ("key",)}


def refuse_nonsense_in_the_place_of_what_is_needed(name: str) -> None:
    f = CALLABLES[name]
    args = arguments(name, f)
    parameters = list(inspect.signature(f).parameters.values())[len(receiver(name)):]
    for i in range(len(args)):
        p = parameters[min(i, len(parameters) - 1)]
        if p.name in NOT_LOOKED_AT.get(name, ()):
            continue
        functions = "Callable" in str(p.annotation) and "None" not in str(p.annotation)
        for value in [*NONSENSE, *([jnp.ones(3), 3, None] if functions else [])]:
            with pytest.raises(FnxError) as caught:
                call(name, {}, [*args[:i], value, *args[i + 1:]])
            assert caught.value.message and caught.value.loc is not None
            assert caught.value.loc[0] == __file__


@pytest.mark.parametrize("name", CALLABLES)
def test_each_argument_is_taken_or_refused(name: str) -> None:
    call(name, {})  # else a refusal would not be due to the argument that is changed
    refuse_nonsense_values(name)
    if name not in PLAIN:
        refuse_nonsense_in_the_place_of_what_is_needed(name)
        if not takes_all_keywords(CALLABLES[name]):
            refuse_unknown_and_misspelt_keywords(name)


@pytest.mark.parametrize("name", [n for n, f in chosen(TREES).items() if not takes_all_keywords(f)])
def test_trees_refuse_unknown_keywords(name: str) -> None:
    with pytest.raises(ArgumentError, match="nonsense"):
        chosen(TREES)[name]([1], nonsense=1)


def test_the_issue_s_examples() -> None:
    x = jnp.ones(3)
    for act, part in (
            (lambda: x.at[0].set(1, modee="clip"), "did you mean 'mode'?"),  # type: ignore
            (lambda: jnp.sum(x, out=3), "arrays are immutable"),  # type: ignore
            (lambda: jnp.matmul(x, x, precision="nonsense"), "'highest'"),  # type: ignore
            (lambda: x.sum(axes=0), "did you mean 'axis'?"),  # type: ignore
            (lambda: x.mean(axs=0), "did you mean 'axis'?"),  # type: ignore
            (lambda: lax.neg(x, y=x), "neg: expected no keywords"),
            (lambda: fnx.nn.one_hot([1], 2, axes=1), "did you mean 'axis'?")):  # type: ignore
        with pytest.raises(ArgumentError) as caught:
            act()
        assert part in str(caught.value)
