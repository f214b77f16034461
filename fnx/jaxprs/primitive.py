"""Primitive: what an equation computes. Built in (of fnx's ops), or the user's, with rules.

>>> from fnx.jaxprs.primitive import Primitive
>>> double = Primitive("double")
>>> _ = double.def_impl(lambda x: 2 * x)
>>> double.bind(3)
6
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fnx.core.array.api_boundary import public_api
from fnx.core.support.errors import ArgumentError, NotBuiltError
from fnx.core.support.process import lazy_import

user_rules = lazy_import("fnx.jaxprs.user_rules")

# JAX's params that say nothing to builders which take any
_CALLBACK = ("callback", "effect", "partitioned", "result_avals", "sharding", "ordered")
_SCATTER = ("update_jaxpr", "update_consts", "indices_are_sorted", "unique_indices")
_RULES = ("call_jaxpr", "num_consts", "symbolic_zeros")
_SAY_NOTHING: dict[str, tuple[str, ...]] = {
    "jit": ("in_shardings", "out_shardings", "in_layouts", "out_layouts", "donated_invars",
            "ctx_mesh", "keep_unused", "inline", "compiler_options_kvs"),
    "remat2": ("differentiated",), "cond": (), "scan": ("linear", "_split_transpose"),
    "custom_jvp_call": (*_RULES, "jvp_jaxpr_fun", "jvp_jaxpr_thunk"),
    "custom_vjp_call": (*_RULES, "fwd_jaxpr_thunk", "bwd", "out_trees"),
    "custom_vmap_call": ("call", "rule", "in_tree", "out_tree"),
    "pure_callback": (*_CALLBACK, "vmap_method"), "io_callback": _CALLBACK,
    "debug_callback": _CALLBACK,
    "debug_print": (*_CALLBACK, "fmt", "has_placeholders", "logging_record", "in_tree",
                    "np_printoptions", "static_args"),
    "gather": ("dimension_numbers", "slice_sizes", "mode", "fill_value", "indices_are_sorted",
               "unique_indices"),
    **dict.fromkeys(("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"),
                    _SCATTER)}

F = TypeVar("F", bound=Callable[..., Any])


class Primitive:
    """An operation with a name, which appears in jaxprs.

    Give it an implementation (``def_impl``), a rule for the types of its results
    (``def_abstract_eval``), and rules for transforms in ``interpreters``: ``ad``, ``batching``,
    ``mlir``.

    Args:
        name: its name in jaxprs.
    """

    multiple_results = False
    call_primitive = False
    map_primitive = False
    ref_primitive = False
    skip_canonicalization = False

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply it to arrays: outside of all traces call ``impl``, in a trace build a node.

        Args:
            args: arrays.
            params: static arguments, which its rules take as keywords.

        Returns:
            An Array; a list of them if ``multiple_results``.

        Raises:
            NotBuiltError: a rule that is needed is not defined.
            RuleError: a rule returned something else than it should.
        """
        return user_rules.bind(self, args, params)

    def def_impl(self, impl: F) -> F:
        """Define its value for concrete arrays: ``impl(*args, **params)``."""
        vars(self)["impl"] = impl
        return impl

    def def_abstract_eval(self, abstract_eval: F) -> F:
        """Define the types of its results: ``abstract_eval(*avals, **params)`` returns a
        ShapedArray, or a list of them if ``multiple_results``."""
        vars(self)["abstract_eval"] = abstract_eval
        return abstract_eval

    def def_effectful_abstract_eval(self, abstract_eval: F) -> F:
        """Define the types and the effects of its results: a pair of both."""
        vars(self)["abstract_eval"] = lambda *avals, **params: abstract_eval(*avals, **params)[0]
        vars(self)["effectful_abstract_eval"] = abstract_eval
        return abstract_eval

    def def_bind_with_trace(self, bind_with_trace: Callable[..., Any]) -> Any:
        """Raise: there are no trace objects to bind with."""
        raise NotBuiltError(f"def_bind_with_trace of {self.name}: fnx has no trace objects",
                            hint="define impl, abstract_eval and the rules that it needs")

    def impl(self, *args: Any, **params: Any) -> Any:
        """Compute its value; defined by ``def_impl``."""
        raise NotBuiltError(f"Evaluation rule for '{self.name}' not implemented",
                            hint=f"define it with {self.name}_p.def_impl(f)")

    def abstract_eval(self, *avals: Any, **params: Any) -> Any:
        """Compute the types of its results; defined by ``def_abstract_eval``."""
        raise NotBuiltError(f"Abstract evaluation for '{self.name}' not implemented",
                            hint=f"define it with {self.name}_p.def_abstract_eval(f)")

    def get_bind_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params to pass to ``bind``: those of the equation."""
        return dict(params)

    def is_high(self, *avals: Any, **params: Any) -> bool:
        """Return False: fnx has no types that lower to others."""
        return False


class BuiltInPrimitive(Primitive):
    """A primitive of fnx: ``build`` builds its nodes from arrays and params.

    Args:
        name: its name in jaxprs.
        build: takes arrays (or numbers) and params; returns an Array, or a list of them.
        multiple_results: whether it returns a list.
    """

    _params: frozenset[str] | None = None  # those that it takes; None: its builder tells

    def __init__(self, name: str, build: Callable[..., Any], multiple_results: bool = False
                 ) -> None:
        super().__init__(name)
        self.multiple_results = multiple_results
        self.set_build(build)

    def set_build(self, build: Callable[..., Any]) -> None:
        """Set the function that builds its nodes."""
        self.build = build
        names = inspect.signature(build).parameters.values()
        takes_any = any(x.kind is x.VAR_KEYWORD for x in names)
        declared = [x.name for x in names if x.kind in (x.KEYWORD_ONLY,
                                                        x.POSITIONAL_OR_KEYWORD)]
        self._params = None if takes_any and self.name not in _SAY_NOTHING else frozenset(
            [*declared, *_SAY_NOTHING.get(self.name, ())])
        self._compute = public_api(lambda *args, **params: build(*args, **params), self.name)

    def bind(self, *args: Any, **params: Any) -> Any:
        """Build its nodes; outside of all traces, compute them."""
        if self._params is not None and not self._params.issuperset(params):
            wrong = ", ".join([repr(x) for x in params if x not in self._params])
            raise ArgumentError(f"{self.name}: expected params among "
                                f"{', '.join(sorted(self._params)) or 'none'}, got {wrong}",
                                hint="take params from an equation that make_jaxpr makes")
        try:
            return self._compute(*args, **params)
        except TypeError as error:  # Python's, of params that are missing
            error.args = (*[re.sub(r"^\S+\(\) missing", f"{self.name}() missing", x)
                            if isinstance(x, str) else x for x in error.args],)
            raise

    impl = bind


_built_in: dict[str, BuiltInPrimitive] = {}


def define(name: str, build: Callable[..., Any], multiple_results: bool = False, *,
           replace: bool = False, kind: type[BuiltInPrimitive] = BuiltInPrimitive
           ) -> BuiltInPrimitive:
    """Define a primitive of fnx, unless there is one of this name; return it.

    ``replace``: whether its builder becomes this one, which takes all of JAX's params.
    """
    if name not in _built_in:
        _built_in[name] = kind(name, build, multiple_results)
    elif replace and _built_in[name].build is not build:
        _built_in[name].set_build(build)
    return _built_in[name]


def built_in(name: str) -> BuiltInPrimitive:
    """Return a primitive of fnx by its name."""
    return _built_in[name]


def is_built_in(name: str) -> bool:
    """Whether fnx has defined a primitive of this name."""
    return name in _built_in
