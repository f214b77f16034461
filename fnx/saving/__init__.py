"""Pytrees in files: ``fnx.save`` and ``fnx.load``, as safetensors or npz by the file's suffix, or
as a folder of blocks of several processes (shards.py).

Nothing in a file is ever executed, and damaged files are rejected: the error names the file, the
byte, what was expected and what is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import arguments, convert, tree, zero_copy
from fnx.core.array.array import Array, from_numpy
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.array.call_validation import validate_call
from fnx.core.ir import dtypes, low_precision
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import (
    ArgumentError,
    CheckpointError,
    DTypeError,
    TracedValueError,
    lazy_module,
)
from fnx.core.support.name_hints import suggestion
from fnx.core.support.process import lazy_import
from fnx.saving import files, npz, safetensors

__all__ = ["load", "save"]

shards = lazy_import("fnx.saving.shards")
constraints = lazy_import("fnx.sharding.constraints")

_SHARDS = ".shards"
_FORMATS: dict[str, ModuleType] = {".safetensors": safetensors, ".npz": npz}
_NUMBER_TYPES: dict[type, DType] = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64,
                                  complex: dtypes.complex128}
_SINGLE_LEAF = "value"  # the name of the leaf if the tree is a single leaf


def _find_format(path: Any) -> tuple[str, ModuleType]:
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"expected a path, got {type(path).__name__}",
                            hint="the path comes first: fnx.save(path, tree)")
    name = os.fspath(path)
    module = _FORMATS.get(os.path.splitext(name)[1]) if isinstance(name, str) else None
    if module is None:
        raise ArgumentError(f"expected a path that ends in {' or '.join(_FORMATS)}, got {name!r}",
                            hint="the suffix says the format: model.safetensors or model.npz; "
                                 "model.shards is a folder that several processes write")
    return name, module


def _named_leaves(structure: Any) -> dict[str, Any]:
    """Return the leaves of a tree by their names in a file."""
    leaves: dict[str, Any] = {}
    for path, leaf in tree.flatten_with_path(structure)[0]:
        name = ".".join([k.name_only for k in path]) if path else _SINGLE_LEAF
        if name in leaves:
            raise CheckpointError(f"expected unique leaf names, got {name} again at "
                                  f"{tree.keystr(path)}",
                                  hint="rename a key of the tree")
        leaves[name] = leaf
    return leaves


def _leaf_data(name: str, leaf: Any) -> NDArray:
    """Return a leaf as row-major NumPy data of a type that fnx supports."""
    try:
        if type(leaf) is Array:
            return leaf._numpy()
        t = _NUMBER_TYPES.get(type(leaf))
        if t is None and not isinstance(leaf, np.ndarray | np.generic):
            raise DTypeError(f"expected an array or a number, got {type(leaf).__name__}",
                             hint="save the arrays and numbers only, such as {'params': params}; "
                                  "build the rest again when you load")
        data = np.asarray(leaf, None if t is None else t.np)
        return np.ascontiguousarray(convert.to_numpy(
            data, dtypes.as_dtype(data.dtype.newbyteorder("=")))).reshape(data.shape)
    except TracedValueError as error:
        error.set_hint("return it, and save the result of the call; in a loop pass it to "
                       "fnx.debug.callback, which calls a function that saves")
        raise
    except DTypeError as error:
        error.message = f"leaf {name}: {error.message}"
        raise
    except OverflowError:
        raise CheckpointError(f"leaf {name}: expected an integer of 64 bits, got {leaf}",
                              hint="save it as a float, or as text beside the file") from None


@validate_call
def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write the leaves of a tree into one file, atomically.

    The file is written under a temporary name in its folder, flushed to the disk, and renamed: a
    reader sees the old content or the new, at any time, even if the process is killed. So it is
    with a folder ``.shards``, to which all processes of a program write: each its blocks of arrays
    that are sharded over several.

    Args:
        path: of the file; the suffix ``.safetensors`` or ``.npz`` selects the format, ``.shards`` a
            folder. A link is replaced.
        tree: a pytree of Arrays, NumPy arrays and numbers. The name of a leaf is its path with
            dots: that of ``{"layers": [{"w": x}]}`` is ``layers.0.w``.

    Raises:
        ArgumentError: another suffix.
        CheckpointError: two leaves of one name, or a type that the format lacks (int4 in
            safetensors).
        DTypeError: a leaf that is not a number.

    >>> import os, tempfile
    >>> import fnx, fnx.numpy as jnp
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> fnx.save(path, {"w": jnp.ones((2, 2)), "step": 7})
    >>> fnx.load(path)["w"]
    Array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    if _is_sharded(path):
        shards.save(os.fspath(path), _named_leaves(tree), _leaf_data)
        return
    name, format_ = _find_format(path)
    values = {leaf: _leaf_data(leaf, x) for leaf, x in _named_leaves(tree).items()}
    for leaf, value in values.items():
        format_.check(leaf, dtypes.as_dtype(value.dtype))
    write: Callable[..., None] = format_.write
    files.write(name, partial(write, arrays=values))


@validate_call
def load(path: str | os.PathLike[str], like: Any = None, *, verify: bool = True) -> Any:
    """Load the tree that ``save`` wrote, or a file of the same format from another program.

    Loading reads no elements, except for checksums (``verify``) and booleans: arrays are read when
    they are used. Those that lie at a multiple of 64 bytes in the file, as ``save`` aligns large
    ones, are used in the mapped file, without a copy; others are copied at their first use, and a
    device with memory of its own gets its copy at once, in pieces. Do not write to a file that is
    in use (``save`` does not: it replaces it). At a first use that is an error; what is used in
    place would change, and the process would end if the file is cut.

    Args:
        path: of a ``.safetensors`` or ``.npz`` file, or of a ``.shards`` folder, which any number
            of processes may have written.
        like: a tree with the expected structure, shapes and dtypes, such as the initial state of a
            training; its leaves may be ``ShapeDtypeStruct``. From a folder, a leaf has the sharding
            that it has there, and a process reads its block only. A leaf that is a number, a NumPy
            array or weakly typed there is so in the result; if a number became an array of its kind
            (a count, in a jitted step), it is that. None: return a dict of Arrays by name.
        verify: whether to check the elements against the checksums in the file, which reads all of
            it.

    Returns:
        A tree like ``like``, or a dict.

    Raises:
        ArgumentError: another suffix.
        CheckpointError: the file is damaged, or does not match ``like``: names the file and the
            byte or the leaf.

    >>> import os, tempfile
    >>> import fnx, fnx.numpy as jnp
    >>> path = os.path.join(tempfile.mkdtemp(), "state.npz")
    >>> start = {"w": jnp.zeros(2), "step": 0}
    >>> fnx.save(path, {"w": jnp.ones(2), "step": 7})
    >>> fnx.load(path, like=start)
    {'step': 7, 'w': Array([1., 1.], dtype=float32)}
    """
    arguments.check_bool("verify", verify)
    if _is_sharded(path):
        return _load_shards(os.fspath(path), like, verify)
    name, format_ = _find_format(path)
    arrays: dict[str, NDArray] = format_.read(files.MappedFile(name), verify)
    if like is None:
        return {leaf: _to_array(value, False) for leaf, value in arrays.items()}
    expected = _named_leaves(like)
    _check_names(name, expected, arrays)
    leaves = [_restore_leaf(name, leaf, arrays[leaf], x) for leaf, x in expected.items()]
    return tree.unflatten(tree.structure(like), leaves)


def _is_sharded(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and str(os.fspath(path)).endswith(_SHARDS)


def _load_shards(path: str, like: Any, verify: bool) -> Any:
    checkpoint = shards.Checkpoint(path, verify)
    if like is None:
        return {leaf: _to_array(checkpoint.whole(leaf), False) for leaf in checkpoint.leaves}
    expected = _named_leaves(like)
    _check_names(path, expected, checkpoint.leaves)
    leaves = []
    for name, x in expected.items():
        sharding: Any = getattr(x, "sharding", None)
        t, shape = checkpoint.leaves[name].dtype, checkpoint.leaves[name].shape
        if getattr(sharding, "mesh", None) is None:
            leaves.append(_restore_leaf(path, name, checkpoint.whole(name), x))
        elif sharding.is_fully_addressable:
            whole = _restore_leaf(path, name, checkpoint.whole(name), x)
            leaves.append(constraints.move(whole, sharding))
        else:
            weak = _check_leaf(path, name, t, shape, x)
            block = checkpoint.read(name, sharding._block(shape))
            leaves.append(constraints.from_block(block, sharding, shape, t, weak))
    return tree.unflatten(tree.structure(like), leaves)


def _check_names(path: str, expected: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    missing = [n for n in expected if n not in present]
    extra = [n for n in present if n not in expected]
    if missing or extra:
        first = missing or extra
        others = f" and {len(first) - 1} more" if len(first) > 1 else ""
        raise CheckpointError(
            f"{path}: expected the leaf {missing[0]}{others}, got a file without it" if missing else
            f"{path}: expected only the {len(expected)} leaves of like, got {extra[0]}{others}",
            hint=(suggestion(missing[0], extra) if missing else "") or
            "load without like= for a dict of all leaves")


def _to_array(value: NDArray, weak: bool) -> Array:
    borrowed = zero_copy.borrow_array(value, weak)
    return from_numpy(value, weak) if borrowed is None else borrowed


def _restore_leaf(path: str, name: str, value: NDArray, like: Any) -> Any:
    """Return a leaf as the type that is expected, after checking dtype and shape."""
    actual = dtypes.as_dtype(value.dtype)
    t = _NUMBER_TYPES.get(type(like))
    if t is not None and actual != t and (actual.kind, value.shape) == (t.kind, ()):
        return _to_array(value, False)  # a number that became an array in the first step
    weak = _check_leaf(path, name, actual, value.shape, like)
    if t is not None:
        return value.item()
    if isinstance(like, np.ndarray):
        return np.array(low_precision.as_public_array(value, actual))
    return value[()] if isinstance(like, np.generic) else _to_array(value, weak)


def _check_leaf(path: str, name: str, actual: DType, actual_shape: Shape, like: Any) -> bool:
    """Check dtype and shape of a leaf, and return whether it is weakly typed."""
    t: DType
    shape: Shape
    if isinstance(like, ShapeDtypeStruct) or type(like) is Array:
        shape, t, weak = like._aval
    elif isinstance(like, np.ndarray | np.generic):
        t, shape, weak = dtypes.as_dtype(like.dtype.newbyteorder("=")), like.shape, False
    elif type(like) in _NUMBER_TYPES:
        t, shape, weak = _NUMBER_TYPES[type(like)], (), False
    else:
        raise CheckpointError(f"leaf {name} of like: expected an array or a number, got "
                              f"{type(like).__name__}")
    if (actual, actual_shape) != (t, shape):
        raise CheckpointError(
            f"{path}: expected {t}{list(shape)} at {name}, got {actual}{list(actual_shape)}",
            hint="load without like= and convert" if actual_shape == shape else
            "the file is from a model of other shapes: build like= as that model does, or load "
            "without like= and convert")
    return weak


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__)
