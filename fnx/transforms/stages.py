"""The stages of a jitted function: traced, lowered, compiled, each for one signature.

    f.trace(x)                 the types of arguments and results, and the graph
     .lower()                  these, and kernels, commands, text (inspect/lowering.py)
     .compile()(y)             a function of arguments of these types: it is never traced again

Static arguments are part of the trace: the compiled function takes only the other arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fnx.core.array import array, tree
from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.array import Array, sharding_on
from fnx.core.array.aval import Aval
from fnx.core.array.placement import (
    LocalProgram,
    Placement,
    commit,
    local_program,
    placement_of,
)
from fnx.core.ir.uop import UOp
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError, PlacementError
from fnx.transforms.dispatch.executable import Executable
from fnx.transforms.dispatch.memory_use import MemoryUse
from fnx.transforms.dispatch.signature import ArgFlattener, device_of_call, leaf_path
from fnx.transforms.dispatch.specialized_call import SignatureInfo, SpecializedCall
from fnx.transforms.inspect.lowering import Lowering
from fnx.transforms.transformed import annotate_error


class TracedCall(SignatureInfo):
    """A jitted function traced for one signature: what ``jit(f).trace(*args)`` returns.

    >>> import fnx, fnx.numpy as jnp
    >>> traced = fnx.jit(lambda x: x.sum()).trace(jnp.ones(3))
    >>> traced.out_info, traced.lower().compile()(jnp.ones(3))
    (ShapeDtypeStruct(shape=(), dtype=float32), Array(3., dtype=float32))
    """

    def __init__(self, signed: SpecializedCall, graph: Callable[[], Any],
                 lower: Callable[[], Lowering]
                 ) -> None:
        self._specialized, self._graph, self._lower = signed, graph, lower

    def __repr__(self) -> str:
        return f"<trace of {self.fun_name}>"

    @property
    def out_avals(self) -> Any:
        """Shapes and dtypes of the result."""
        return self.out_tree.unflatten([ShapedArray.of(a)
                                        for a in self._specialized.cached_trace.closed.outs])

    @property
    def jaxpr(self) -> Any:
        """The graph, as ``make_jaxpr`` returns it."""
        return self._graph()

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowering:
        """Lower the graph to machine code, and return all steps.

        Args:
            lowering_platforms: accepted for JAX's sake: it is lowered for the device that runs it.

        Returns:
            A Lowering.
        """
        return self._lower()


_propagations: list[Callable[[UOp, Sequence[Any]], Sequence[Any]]] = []


def register_propagation(shardings: Callable[[UOp, Sequence[Any]], Sequence[Any]]) -> None:
    """Register how the shardings of the results of a FUNCTION follow from those of arguments."""
    _propagations.append(shardings)


class Compiled(SignatureInfo):
    """A function compiled for one signature: what ``jit(f).lower(*args).compile()`` returns.

    It takes the non-static arguments and is never traced again, so the Python code of the function
    does not run.

    Raises:
        ArgumentError: arguments of another structure, shape or dtype, or traced arrays.

    >>> import fnx, fnx.numpy as jnp
    >>> double = fnx.jit(lambda x: 2 * x).lower(jnp.ones(3)).compile()
    >>> double(jnp.ones(3))
    Array([2., 2., 2.], dtype=float32)
    """

    def __init__(self, signed: SpecializedCall, arguments: ArgFlattener, executable: Executable,
                 local: LocalProgram | None, lowering: Lowering, memory: Callable[[], MemoryUse],
                 device: str, chosen: Placement | None, shardings: Sequence[Any] = ()) -> None:
        self._specialized, self._arguments, self._executable = signed, arguments, executable
        self._lowering, self._memory, self._device = lowering, memory, device
        self._local = local
        self._chosen, self._shardings = chosen, shardings

    def __repr__(self) -> str:
        return f"<{self.fun_name}, compiled for {', '.join(map(str, self._specialized.key.avals))}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._run(args, kwargs)
        except Exception as error:
            annotate_error(error, self._specialized.function)
            raise

    call = __call__

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        closed, key = self._specialized.cached_trace.closed, self._specialized.key
        arrays = self._arrays(args, kwargs)
        donation = self._specialized.donation
        donation.check(args, kwargs)
        memory = [*[x._storage for x in arrays], *self._specialized.cached_trace.storages]
        if None in memory:
            raise self._traced("an array of the function around it, which it captures")
        placement = self._chosen or device_of_call(self.fun_name, key, memory)
        if placement is not None and placement.device != self._device:
            raise PlacementError(f"{self.fun_name} is compiled for {self._device}, got arrays on "
                                 f"{placement.device}", hint="lower it for arrays on that device")
        local = local_program(closed.function, memory) if config.placing else None
        if (local and local.function) is not (self._local and self._local.function):
            raise PlacementError(
                f"{self.fun_name}: expected arguments with the shardings that it was compiled for, "
                "got others", hint="lower it for arrays with these shardings, or call the jitted "
                                   "function")
        outs = self._executable.run(memory, donation.consumer_of(args, kwargs))
        if local is None:
            commit(outs, placement, memory, closed.function)
        else:
            local.commit(outs, memory)
        return closed.out_tree.unflatten([array.from_storage(s, *aval)
                                          for s, aval in zip(outs, closed.outs)])

    def _arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Array]:
        """Return the arguments as Arrays, checked against the signature."""
        in_tree, expected = self._specialized.key.in_tree, self._specialized.key.avals
        leaves, got = tree.flatten((args, kwargs))
        if got != in_tree:
            raise ArgumentError(
                f"{self.fun_name}: expected arguments like {in_tree}, for which it was compiled; "
                f"got {got}", hint=f"{tree.first_difference(in_tree, got)}; omit static "
                                   "arguments: they are part of the compiled function")
        for i, x in enumerate(leaves):
            if type(x) is Array and x._storage is None and not x.is_deleted():
                raise self._traced(f"a traced array as {leaf_path(in_tree, i)}")
        arrays, (_, avals, *_) = self._arguments.leaves_key(leaves, in_tree)
        for i, (have, want) in enumerate(zip(avals, expected)):
            if have[:2] != want[:2]:
                error = ArgumentError(
                    f"{self.fun_name} was compiled for {Aval(*want[:2])} as "
                    f"{leaf_path(in_tree, i)}, got {Aval(*have[:2])}",
                    hint="lower and compile it for such arguments, or call the jitted function")
                error.function = self._arguments.f
                raise error
        return arrays

    def _traced(self, what: str) -> ArgumentError:
        return ArgumentError(f"{self.fun_name}, compiled for one signature: expected arrays with "
                             f"values, got {what}",
                             hint="inside a transform call the jitted function instead")

    def as_text(self) -> str:
        """The tiled kernels, and the commands that launch them.

        Returns:
            A str.
        """
        return self._lowering.as_text("hlo") if self._lowering.default_dialect is not None else \
            f"{self._lowering.text('tiled')}\n\n{self._lowering.text('commands')}"

    def cost_analysis(self) -> Mapping[str, float]:
        """Estimate the cost of a call, as ``Lowering.cost_analysis`` does.

        Returns:
            A dict with "flops" and "bytes accessed".
        """
        return self._lowering.cost_analysis()

    def memory_analysis(self) -> MemoryUse:
        """The memory that a call takes, as ``f.memory(*args)`` reports it.

        Returns:
            A MemoryUse.
        """
        return self._memory()

    @property
    def input_shardings(self) -> Any:
        """The sharding of each array among the arguments, as ``(args, kwargs)``."""
        of_arguments = (*self._shardings, *[None] * len(self._specialized.key.avals))
        return self.in_tree.unflatten([sharding_on(self._device) if s is None else s for s, _ in
                                       zip(of_arguments, self._specialized.key.avals)])

    @property
    def output_shardings(self) -> Any:
        """The sharding of each array of the result."""
        trace = self._specialized.cached_trace
        propagated: Sequence[Any] = [None] * len(trace.closed.outs)
        if _propagations and self._shardings:
            placements = [placement_of(x) for x in trace.storages]
            propagated = _propagations[-1](trace.closed.function, (
                *self._shardings, *[None if p is None else p.sharding for p in placements]))
        return self.out_tree.unflatten([sharding_on(self._device) if s is None else s for s, _ in
                                        zip(propagated, trace.closed.outs)])

    input_formats, output_formats = input_shardings, output_shardings  # arrays have one layout

    def runtime_executable(self) -> Executable:
        """The executable behind this function.

        Returns:
            The program with its command buffer.
        """
        return self._executable

    def captured_storages(self) -> list[Any]:
        """The memory of the arrays that the function captures.

        Returns:
            A list of storages, which the executable takes after those of the arguments.
        """
        return self._specialized.cached_trace.storages
