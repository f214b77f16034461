"""A jitted function specialized to one signature, and what it takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fnx.core.array import tree
from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.support.record import Record
from fnx.transforms.dispatch.executable import CachedTrace
from fnx.transforms.dispatch.memory_use import MemoryUse
from fnx.transforms.dispatch.signature import CallKey, Donation


class ArgInfo(Record):
    """Description of one array among the arguments.

    Attributes:
        aval: shape, dtype and weak type.
        donated: whether its memory is donated to the call.
    """

    aval: ShapedArray
    donated: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self.aval.dtype


class SpecializedCall(Record):
    """A jitted function specialized to one signature.

    Attributes:
        name: the name of the function.
        function: the Python function.
        cached_trace: its trace.
        key: the signature.
        donated: the numbers of the donated leaves.
        donation: the donation of the dynamic arguments.
    """

    name: str
    function: Callable[..., Any]
    cached_trace: CachedTrace
    key: CallKey
    donated: tuple[int, ...]
    donation: Donation


class SignatureInfo:
    """Mixin of the traced, lowered and compiled stages of a jitted function: its signature."""

    _specialized: SpecializedCall

    @property
    def fun_name(self) -> str:
        """The name of the function."""
        return self._specialized.name

    @property
    def in_tree(self) -> tree.TreeDef:
        """The structure of ``(args, kwargs)``, without static arguments."""
        return self._specialized.key.in_tree

    @property
    def out_tree(self) -> tree.TreeDef:
        """The structure of the result."""
        return self._specialized.cached_trace.closed.out_tree

    @property
    def in_avals(self) -> Any:
        """The shapes and dtypes of ``(args, kwargs)``."""
        return self.in_tree.unflatten([ShapedArray.of(a) for a in self._specialized.key.avals])

    @property
    def args_info(self) -> Any:
        """An ArgInfo for each array of ``(args, kwargs)``."""
        donated = self._specialized.donated
        return self.in_tree.unflatten([ArgInfo(ShapedArray.of(a), i in donated)
                                       for i, a in enumerate(self._specialized.key.avals)])

    @property
    def out_info(self) -> Any:
        """A ShapeDtypeStruct for each array of the result."""
        return self.out_tree.unflatten([ShapeDtypeStruct(a.shape, a.dtype.np, weak_type=a.weak)
                                        for a in self._specialized.cached_trace.closed.outs])

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The numbers of the donated leaves."""
        return self._specialized.donated


class CompiledLike(Protocol):
    """The type that ``Lowering.compile`` returns."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def as_text(self) -> str: ...
    def cost_analysis(self) -> Mapping[str, float]: ...
    def memory_analysis(self) -> MemoryUse: ...
