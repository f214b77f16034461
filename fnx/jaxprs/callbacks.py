"""Calls of Python functions as equations, and back.

    CALLBACK(handle, token, x)  ->  y = io_callback[callback=... ordered=False ...] x

The handle of the function is in the params; where it is an argument of a body, it is an operand.
What a call is, is in the name that it has in errors: "io_callback of f".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.scope.callbacks import Handle
from fnx.core.tracing.host_callbacks import CallbackCall
from fnx.jaxprs.primitive import built_in, define
from fnx.jaxprs.syntax import (
    HOST_EFFECT,
    DebugEffect,
    Effect,
    IOEffect,
    JaxprEqn,
    OrderedDebugEffect,
    OrderedIOEffect,
)
from fnx.jaxprs.templates import View

debug_effect, ordered_debug_effect = DebugEffect(), OrderedDebugEffect()
io_effect, ordered_io_effect = IOEffect(), OrderedIOEffect()

_PRIMITIVES = {"pure_callback": "pure_callback", "io_callback": "io_callback",
               "debug.print": "debug_print", "debug.callback": "debug_callback"}
_EFFECTS = {"io_callback": (io_effect, ordered_io_effect),
            "debug_print": (debug_effect, ordered_debug_effect),
            "debug_callback": (debug_effect, ordered_debug_effect)}


class FlatCallback:
    """The function of a call, on the arrays among its arguments.

    Args:
        arg: the call.
        handle: the node of its handle; None if it is an operand.
    """

    def __init__(self, arg: op_args.Callback, handle: UOp | None) -> None:
        self.arg, self.handle = arg, handle
        owner = handle.arg.handle.call if handle is not None else None
        call = getattr(owner, "__self__", None)
        self.call = call if isinstance(call, CallbackCall) else None

    @property
    def callback_func(self) -> Callable[..., Any] | None:
        """The user's function."""
        return None if self.call is None else self.call.f

    @property
    def in_tree(self) -> Any:
        """The structure of ``(args, kwargs)``."""
        return None if self.call is None else self.call.tree

    @property
    def ordered(self) -> bool:
        """Whether the user asked for an order."""
        return self.call is not None and self.call.ordered

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        assert self.call is not None
        results = self.call.call([np.asarray(x) for x in arrays],
                                 [aval.shape for aval in self.call.results.avals])
        return tuple(results)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlatCallback) and (self.arg, self.handle) == (
            other.arg, other.handle)

    def __hash__(self) -> int:
        return hash((self.arg, self.handle))

    def __repr__(self) -> str:
        return f"_FlatCallback(callback_func={self.callback_func!r}, in_tree={self.in_tree!r})"


def callback_view(node: UOp) -> View:
    """Return a CALLBACK as an equation."""
    arg, handle = node.arg, node.src[0]
    in_params = handle.op is ops.BUFFER and type(handle.arg.handle) is Handle
    flat = FlatCallback(arg, handle if in_params else None)
    default = "debug_callback" if arg.effect else "pure_callback"
    name = _PRIMITIVES.get(arg.name.partition(" of ")[0], default)
    if name == "debug_print" and flat.call is None:
        name = "debug_callback"
    params = {"callback": flat, **_params(name, flat)}
    return View(built_in(name), node.src[1:] if in_params else node.src, params)


def _params(name: str, flat: FlatCallback) -> dict[str, Any]:
    arg = flat.arg
    avals = tuple([ShapedArray.of(Aval(*t)) for t in arg.outs[arg.effect:]])
    if name == "pure_callback":
        return {"result_avals": avals, "sharding": None, "vmap_method": arg.method or None}
    if name == "io_callback":
        return {"ordered": flat.ordered, "result_avals": avals, "sharding": None}
    if name == "debug_print":
        assert flat.call is not None
        args, kwargs = flat.call.tree.unflatten(range(flat.call.tree.num_leaves))
        fmt = str(flat.call.leaves[0])
        return {"fmt": fmt, "has_placeholders": "{" in fmt, "logging_record": None,
                "in_tree": tree.structure((args[1:], kwargs)), "ordered": flat.ordered,
                "np_printoptions": tuple(np.get_printoptions().items()), "partitioned": False,
                "static_args": ()}
    return {"effect": _EFFECTS[name][flat.ordered], "partitioned": False}


def effects_of_callback(eqn: JaxprEqn) -> set[Effect]:
    """Return the effects of the equation of a CALLBACK; of others none."""
    flat = eqn.params.get("callback")
    if not isinstance(flat, FlatCallback) or not flat.arg.effect:
        return set()
    kinds = _EFFECTS.get(eqn.primitive.name)
    return {HOST_EFFECT if kinds is None else kinds[flat.ordered]}


def _build(*args: Any, callback: FlatCallback, **_: Any) -> list[Array]:
    arg = callback.arg
    nodes = [asarray(x)._node for x in args]
    handle = callback.handle if callback.handle is not None else nodes.pop(0)
    token = [scope.current_token()] if arg.effect else []
    outs = build.results(UOp(ops.CALLBACK, dtypes.void, (handle, *token, *nodes), arg))
    if arg.effect:
        scope.set_token(outs[0])
    return [Array(x) for x in outs[arg.effect:]]


for _name in _PRIMITIVES.values():
    define(_name, _build, True)
