"""``vectorize``: map a function of arrays with a few axes over arrays with more.

    vectorize(f, signature="(n),(n)->()")    x (5, 1, n), y (4, n)  ->  f on each of (5, 4) pairs
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec

from fnx.core.array import axes, tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.call_validation import validate_call
from fnx.core.ir import build
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.transforms.transformed import Transformed
from fnx.transforms.vmap import vmap

__all__ = ["vectorize"]

P = ParamSpec("P")
CoreDims = tuple[str, ...]

_DIMS = r"\((?:\w+(?:,\w+)*)?\)"
_SIGNATURE = re.compile(rf"{_DIMS}(?:,{_DIMS})*->{_DIMS}(?:,{_DIMS})*")


@validate_call
def vectorize(pyfunc: Callable[P, Any], *, excluded: Iterable[int | str] = frozenset(),
              signature: str | None = None) -> Transformed[P, Any]:
    """Vectorize a function over the broadcast leading axes of its arguments.

    Args:
        pyfunc: a function of arrays with the core axes that ``signature`` names, by default none.
        excluded: positions and names of arguments that are passed through unmapped.
        signature: the core (last) axes of each argument and result, as in ``"(n),(n,k)->(k)"``.
            Equal names have equal lengths; a number is a fixed length.

    Returns:
        A function of arrays with further leading axes, which broadcast against each other.

    Raises:
        ArgumentError: the signature is malformed or does not match the arguments or results, or a
            keyword argument is not excluded.
        ShapeError: lengths differ, or the leading axes do not broadcast.

    >>> import fnx.numpy as jnp
    >>> dots = jnp.vectorize(jnp.vdot, signature="(n),(n)->()")
    >>> dots(jnp.ones((2, 1, 3)), jnp.ones((4, 3))).shape
    (2, 4)
    """
    excluded_set = None if isinstance(excluded, str) or not isinstance(excluded, Iterable) else \
        frozenset(excluded)
    if excluded_set is None or any(not isinstance(i, int | str) or isinstance(i, int) and i < 0
                                   for i in excluded_set):
        raise ArgumentError("vectorize: expected excluded as a set of positions >= 0 and names, "
                            f"got {excluded!r}")
    if signature is not None:
        _parse_signature(signature)
    return _Vectorized(pyfunc, excluded=excluded_set, signature=signature)


def _parse_signature(signature: str) -> tuple[list[CoreDims], list[CoreDims]]:
    """Parse a signature to the axis names of the arguments, and of the results."""
    text = signature.replace(" ", "") if isinstance(signature, str) else ""
    if not _SIGNATURE.fullmatch(text):
        raise ArgumentError(f"vectorize: expected a signature as '(n),(n,k)->(k)', got "
                            f"{signature!r}")
    ins, outs = ([tuple(filter(None, dims.split(","))) for dims in re.findall(r"\(([^)]*)\)", side)]
                 for side in text.split("->"))
    return ins, outs


class _Vectorized(Transformed[P, Any]):
    kind = "vectorize"
    summary = "Runs over all broadcast axes of its arguments."

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        excluded, signature = self._options.values()
        for name in kwargs:
            if name not in excluded:
                raise ArgumentError(f"{self._title}: expected positional arguments, got {name!r} "
                                    "by keyword", hint="pass it by position, or name it in "
                                                       f"excluded={{{name!r}}}")
        positions = [i for i, x in enumerate(args) if i not in excluded]
        ins: list[CoreDims] = [()] * len(positions)
        outs: list[CoreDims] | None = None
        if signature is not None:
            ins, outs = _parse_signature(signature)
            if len(ins) != len(positions):
                raise ArgumentError(f"{self._title}: expected {len(ins)} arguments, got "
                                    f"{len(positions)}")
        mapped = [(i, dims) for i, dims in zip(positions, ins) if args[i] is not None or dims]
        arrays = [asarray(args[i]) for i, _ in mapped]
        sizes: dict[str, int] = {}
        leading = [self._outer(f"argument {i}", x._shape, dims, sizes)
                   for (i, dims), x in zip(mapped, arrays)]

        def once(*elements: Any) -> Any:
            filled = list(args)
            for (i, _), x in zip(mapped, elements):
                filled[i] = x
            result = self._f(*filled, **kwargs)
            if outs is not None:
                self._check_results(result, outs, dict(sizes))
            return result

        once.__name__ = self._name
        return _vmap_over(once, arrays, leading)

    @property
    def _title(self) -> str:
        signature = self._options["signature"]
        return f"vectorize of {self._name}" + (f" ({signature})" if signature else "")

    def _outer(self, what: str, shape: Shape, dims: CoreDims, sizes: dict[str, int]) -> Shape:
        """Return the leading axes; record the lengths of the core axes in ``sizes``."""
        n = len(shape) - len(dims)
        if n < 0:
            raise ShapeError(f"{self._title}: expected {what} with at least {len(dims)} axes, got "
                             f"shape {shape}")
        for name, length in zip(dims, shape[n:]):
            expected = int(name) if name.isdigit() else sizes.setdefault(name, length)
            if expected != length:
                raise ShapeError(f"{self._title}: expected length {expected} of axis {name!r} in "
                                 f"{what}, got shape {shape}")
        return shape[:n]

    def _check_results(self, results: Any, outs: Sequence[CoreDims], sizes: dict[str, int]) -> None:
        several = isinstance(results, tuple | list)
        if several != (len(outs) > 1) or several and len(results) != len(outs):
            got = f"{len(results)} results" if several else "one result"
            raise ArgumentError(f"{self._title}: expected {len(outs)} results, got {got}",
                                hint="return one array per output of the signature")
        for i, (x, dims) in enumerate(zip(results if several else [results], outs)):
            array = asarray(x)
            if self._outer(f"result {i}", array._shape, dims, sizes):
                raise ShapeError(f"{self._title}: expected result {i} with the axes "
                                 f"({','.join(dims)}), got shape {array._shape}")


def _vmap_over(f: Callable[..., Any], arrays: Sequence[Array], leads: Sequence[Shape]) -> Any:
    """Map f over the broadcast leading axes, with one vmap for each that is longer than 1."""
    shape = axes.broadcast_shapes(*leads)
    missing: list[int] = []
    for axis in range(-1, -len(shape) - 1, -1):
        mapped = [len(loop) >= -axis and loop[axis] != 1 for loop in leads]
        if any(mapped):
            f = vmap(f, in_axes=tuple([0 if m else None for m in mapped]))
        else:
            missing.insert(0, len(shape) + axis)
    squeezed = []
    for x, lead in zip(arrays, leads):
        squeezed_shape = tuple([n for n in lead if n != 1]) + x._shape[len(lead):]
        squeezed.append(Array(build.reshape(x._node, squeezed_shape), x.weak))
    out = f(*squeezed)
    return tree.map(lambda y: _insert_axes(asarray(y), missing), out) if missing else out


def _insert_axes(x: Array, positions: Sequence[int]) -> Array:
    shape = list(x._shape)
    for position in positions:
        shape.insert(position, 1)
    return Array(build.reshape(x._node, tuple(shape)), x.weak)
