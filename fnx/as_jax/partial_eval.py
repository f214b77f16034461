"""``trace_to_jaxpr_nounits`` for flax: which results of a function need no unknown value.

>>> import fnx.numpy as jnp
>>> from fnx.core.array.abstract_values import ShapedArray
>>> from fnx.as_jax.linear_util import flatten_fun_nokwargs, wrap_init
>>> from fnx.core.array import tree
>>> f, out_tree = flatten_fun_nokwargs(wrap_init(lambda x: (x + 1, jnp.ones(2))),
...                                    tree.structure((1.0,)))
>>> unknown = PartialVal.unknown(ShapedArray((), "float32"))
>>> _, found, _ = trace_to_jaxpr_nounits(f, [unknown])
>>> [(p.is_known(), p.get_aval().shape) for p in found], found[1].get_known()
([(False, ()), (True, (2,))], Array([1., 1.], dtype=float32))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.as_jax.linear_util import WrappedFun
from fnx.core.array import api_boundary
from fnx.core.array.abstract_values import ShapedArray, get_aval
from fnx.core.array.array import Array
from fnx.core.ir import dtypes
from fnx.core.ir.uop import toposort
from fnx.core.scope import scope


class PartialVal(tuple[Any, Any]):
    """(aval, None) of an unknown value, or (None, value) of a known one."""

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        """Return a value of which only shape and dtype are known."""
        return cls((aval, None))

    @classmethod
    def known(cls, value: Any) -> PartialVal:
        """Return a known value."""
        return cls((None, value))

    def is_known(self) -> bool:
        """Whether the value is known."""
        return self[0] is None

    def get_known(self) -> Any:
        """Return the value, or None."""
        return self[1]

    def get_aval(self) -> ShapedArray:
        """Return its shape and dtype."""
        return get_aval(api_boundary.asarray(self[1])) if self.is_known() else self[0]


def trace_to_jaxpr_nounits(fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool = False
                           ) -> tuple[None, list[PartialVal], list[Any]]:
    """Run a function on values of which some are unknown.

    Args:
        fun: a function of leaves.
        pvals: its arguments, known or unknown.
        instantiate: accepted for JAX compatibility.

    Returns:
        None in place of a jaxpr, the results, known or unknown, and no constants.
    """
    with scope.Scope("partial evaluation") as traced_scope:
        args = [p.get_known() if p.is_known() else
                Array(traced_scope.leaf(dtypes.as_dtype(p[0].dtype), p[0].shape), p[0].weak_type)
                for p in map(PartialVal, pvals)]
        outs = [api_boundary.asarray(x) for x in fun.call_wrapped(*args)]
        unknown = set(traced_scope.leaves)
    results = []
    for out in outs:
        if out._uop is not None and not unknown.isdisjoint(toposort([out._uop])):
            results.append(PartialVal.unknown(get_aval(out)))
        else:
            if not scope.is_open():
                api_boundary.evaluate_pending(out)
            results.append(PartialVal.known(out))
    return None, results, []
