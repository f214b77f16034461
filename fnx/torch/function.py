"""``function`` and ``load``: PyTorch modules as pure functions that fnx transforms.

``torch.export`` traces a module once for each signature of a call, without reading its weights.
The graph of ATen ops is then computed on Arrays, so that ``jit``, ``grad``, ``vmap``, ``export``
see what they see of any function of fnx.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.core.support.config import config, override
from fnx.core.support.errors import ArgumentError, DTypeError, ModelError, ShapeError
from fnx.core.support.record import Record
from fnx.dlpack import from_dlpack
from fnx.torch.entry import dtype_name, meta_of
from fnx.torch.graphs import OpFailure, fresh_keys, is_random, line_of, run_graph
from fnx.torch.table import decompositions

Arrays = Mapping[str, Any]


class Traced(Record):
    """A module for one signature.

    Attributes:
        program: as exported, in functional ATen ops.
        placeholders: the nodes of its inputs.
    """

    program: ExportedProgram
    placeholders: tuple[Any, ...]


class TorchFunction:
    """A PyTorch module as a pure function: ``f(params, *inputs)``.

    Inputs are those of the module, by position or name: Arrays, and Python values that stay what
    they are. An input of int32 is int64 to PyTorch unless ``fnx.config.x64`` is on, since PyTorch's
    indices are int64. Indices out of bounds do as in all of fnx (``fnx.config.check_index``).

    Attributes:
        params: name -> Array, as ``module.named_parameters()``.
        buffers: name -> Array, as ``module.named_buffers()``.
    """

    def __init__(self, name: str, params: Iterable[tuple[str, torch.Tensor]],
                 buffers: Iterable[tuple[str, torch.Tensor]],
                 trace: Callable[[Sequence[Any], Mapping[str, Any]], Traced]) -> None:
        self._first: dict[str, str] = {}  # name -> the first name of the same tensor
        self.params, self.buffers = self._arrays(params), self._arrays(buffers)
        self.__name__, self._trace = name, trace

    def _arrays(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, Array]:
        first: dict[int, str] = {}
        arrays = {}
        for name, x in tensors:
            self._first[name] = first.setdefault(id(x), name)
            if self._first[name] == name:
                arrays[name] = to_array(x)
        return arrays

    def __repr__(self) -> str:
        return f"<TorchFunction {self.__name__}>"

    def __call__(self, params: Arrays, /, *args: Any, rng: Any = None, **named: Any) -> Any:
        """Return the outputs of the module.

        Args:
            params: a value for each of ``f.params``.
            args, named: the inputs.
            rng: a random key, for modules that draw random numbers.

        Raises:
            ArgumentError: the module changes its buffers, as batch norm in training.
            ModelError: PyTorch can't export the module, or fnx lacks an op of it.
        """
        outputs, changed = self._run(params, self.buffers, args, named, rng)
        if changed:
            raise ArgumentError(
                f"expected a module that changes no buffers, got {self.__name__}, which changes "
                f"{', '.join(sorted(changed))}", hint="call module.eval() before "
                "fnx.torch.function, or take y, buffers = f.update(params, buffers, x)")
        return outputs

    def update(self, params: Arrays, buffers: Arrays, /, *args: Any, rng: Any = None,
               **named: Any) -> tuple[Any, dict[str, Any]]:
        """Return the outputs, and the buffers after the call: ``f.buffers`` is the first value."""
        outputs, changed = self._run(params, buffers, args, named, rng)
        return outputs, {**buffers, **{self._first[n]: x for n, x in changed.items()}}

    def _run(self, params: Arrays, buffers: Arrays, args: Sequence[Any],
             named: Mapping[str, Any], rng: Any) -> tuple[Any, dict[str, Any]]:
        for what, expected, supplied in (("params", self.params, params),
                                      ("buffers", self.buffers, buffers)):
            if expected.keys() != supplied.keys():
                raise ArgumentError(
                    f"expected {what} of the names of f.{what}; they differ in "
                    f"{', '.join(sorted(expected.keys() ^ supplied.keys()))}")
        traced = self._trace(args, named)
        program, graph = traced.program, traced.program.graph_module
        if rng is None and is_random(graph.graph):
            raise ArgumentError(f"{self.__name__} draws random numbers", hint="pass a key: "
                                "f(params, x, rng=fnx.random.key(0)); or call module.eval() first")
        leaves = iter(flat_inputs(program, args, named))
        tensors = {**params, **buffers}
        state = {name: tensors[first] for name, first in self._first.items()}
        values = [bind(spec, node, state, program, leaves)
                  for spec, node in zip(program.graph_signature.input_specs, traced.placeholders)]
        check_sizes(traced, values)
        try:
            with override(x64=True):
                results = run_graph(graph, values, rng if rng is None else fresh_keys(rng))
        except OpFailure as failure:
            raise ModelError(f"fnx can't compute {failure}{line_of(failure.node)}",
                             hint="torch.compile(module, backend='fnx') has PyTorch compute what "
                             "fnx lacks") from failure
        return sort_outputs(program, results)


def sort_outputs(program: ExportedProgram, results: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """Return the outputs of the module and its changed buffers."""
    outputs, changed = [], {}
    for spec, value in zip(program.graph_signature.output_specs, results):
        if spec.kind == OutputKind.USER_OUTPUT:
            outputs.append(value)
        elif spec.kind == OutputKind.BUFFER_MUTATION:
            changed[spec.target] = value
        else:
            raise ArgumentError(f"expected a module that changes its buffers only, got one that "
                                f"writes into {spec.target}", hint="write x = x + 1, not x.add_(1)")
    return pytree.tree_unflatten(outputs, program.call_spec.out_spec), changed


def flat_inputs(program: ExportedProgram, args: Sequence[Any], named: Mapping[str, Any]
                ) -> list[Any]:
    """Return the leaves of the arguments, in the order of the program's inputs."""
    expected = program.call_spec.in_spec
    order = expected.children()[1].context
    ordered = {n: named[n] for n in order if n in named} | dict(named)
    leaves: list[Any]
    leaves, spec = pytree.tree_flatten((tuple(args), ordered))
    if spec != expected:
        raise ArgumentError(f"expected arguments of the structure {expected}, got {spec}",
                            hint="pass those of the export, by position or name as there")
    return leaves


def bind(spec: Any, node: Any, state: Arrays, program: ExportedProgram, supplied: Any) -> Any:
    """Return the value of an input of the graph."""
    if spec.kind == InputKind.USER_INPUT:
        value = next(supplied)
        meta = node.meta.get("val")
        if not isinstance(meta, torch.Tensor):
            expected = getattr(spec.arg, "value", value)
            if expected != value:
                raise ArgumentError(f"expected {spec.arg.name} = {expected!r} as exported, got "
                                    f"{value!r}")
            return value
        x, dtype = jnp.asarray(value), dtype_name(meta.dtype)
        if x.dtype.name != dtype and not (dtype == "int64" and x.dtype.name == "int32"):
            raise DTypeError(f"expected {dtype} for {spec.arg.name}, got {x.dtype}",
                             hint=f"x.astype('{dtype}')")
        return x.astype(dtype)
    if spec.target in state:
        return state[spec.target]
    return to_array(program.constants[spec.target])


def check_sizes(traced: Traced, values: Sequence[Any]) -> None:
    """Raise unless sizes are those of the export: numbers, or within the bounds of dimensions."""
    sizes: dict[Any, int] = {}
    for node, x in zip(traced.placeholders, values):
        meta = node.meta.get("val")
        if not isinstance(meta, torch.Tensor):
            continue
        expected = [n if isinstance(n, int) else n.node.expr for n in meta.shape]
        ranges = [traced.program.range_constraints.get(n) for n in expected]
        fits = len(expected) == x.ndim and all(
            sizes.setdefault(n, n if isinstance(n, int) else size) == size
            and (bounds is None or bounds.lower <= size <= bounds.upper)
            for n, bounds, size in zip(expected, ranges, x.shape))
        if not fits:
            raise ShapeError(f"expected {node.name} of shape ({', '.join(map(str, expected))}), "
                             f"got {tuple(x.shape)}",
                             hint="torch.export.export takes dynamic_shapes= for sizes that change")


def to_array(x: torch.Tensor) -> Array:
    """Return a tensor's values as an Array of its own memory."""
    with override(x64=True):
        return jnp.asarray(from_dlpack(x.detach().contiguous(), copy=True))


def example(x: Any) -> Any:
    """Return a tensor like an Array, whose values nobody reads; other values as they are."""
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        return x
    name = jnp.asarray(x).dtype.name
    dtype = getattr(torch, "int64" if name == "int32" and not config.x64 else name, None)
    if not isinstance(dtype, torch.dtype):
        raise DTypeError(f"expected a dtype of PyTorch, got {name}")
    return torch.empty(tuple(x.shape), dtype=dtype)


def ready(program: ExportedProgram) -> Traced:
    """Return a program in the ops of the table."""
    for node in program.graph.nodes:  # decompositions inline these regions
        if node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and not node.args[0]:
            for user in list(node.users):
                with program.graph.inserting_after(user):
                    constant = program.graph.call_function(torch.ops.aten.detach.default, (user,))
                    constant.meta |= {"val": meta_of(user)}
                user.replace_all_uses_with(constant, lambda n, c=constant: n is not c)
    program = program.run_decompositions(decompositions())
    return Traced(program, tuple([n for n in program.graph.nodes if n.op == "placeholder"]))


class ModuleTracer:
    """Exports a module at its first call with other shapes, dtypes or Python values."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.programs: dict[Any, Traced] = {}

    def __call__(self, args: Sequence[Any], named: Mapping[str, Any]) -> Traced:
        """Return the program of a signature."""
        leaves, spec = pytree.tree_flatten((tuple(args), dict(named)))
        leaves = [example(x) for x in leaves]
        key = spec, tuple([(x.shape, x.dtype) if isinstance(x, torch.Tensor) else (type(x), x)
                           for x in leaves])
        if key not in self.programs:
            values, names = pytree.tree_unflatten(leaves, spec)
            try:
                exported = torch.export.export(self.module, values, names, strict=False)
            except Exception as error:
                raise ModelError(
                    f"torch.export can't trace {type(self.module).__name__}: {error}",
                    hint="torch.compile(module, backend='fnx') compiles around such code"
                ) from error
            self.programs[key] = ready(exported)
        return self.programs[key]


def function(module: torch.nn.Module) -> tuple[TorchFunction, dict[str, Array]]:
    """Return a module as a pure function, and its parameters: ``y = f(params, x)``.

    The module's mode (train or eval), parameters and buffers are those of now; later changes of
    the module have no effect. Gradients are fnx's own, of the ops that the module computes;
    ``detach`` and ``no_grad`` are respected, a backward of ``torch.autograd.Function`` is not.

    Args:
        module: any module that ``torch.export`` takes, on the CPU.

    Raises:
        ArgumentError: it is no module, or not on the CPU.

    >>> import fnx
    >>> f, params = function(torch.nn.Linear(3, 2))
    >>> x = fnx.numpy.ones((5, 3))
    >>> loss = lambda params, x: f(params, x).sum()
    >>> gradients = fnx.vmap(fnx.grad(loss), (None, 0))(params, x)  # one for each example
    >>> gradients["weight"].shape
    (5, 2, 3)
    """
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"expected a torch.nn.Module, got {type(module).__name__}",
                            hint="make a module whose forward calls the function")
    tensors = [*module.parameters(), *module.buffers()]
    for x in tensors:
        if x.device.type != "cpu":
            raise ArgumentError(f"expected a module on the CPU, got one on {x.device}",
                                hint="module.cpu()")
    modes = copy.deepcopy(module, {id(x): x for x in tensors})
    f = TorchFunction(type(module).__name__, module.named_parameters(remove_duplicate=False),
                      module.named_buffers(remove_duplicate=False),
                      ModuleTracer(modes))
    return f, f.params


def load(exported: ExportedProgram) -> tuple[TorchFunction, dict[str, Array]]:
    """Return an exported program as a pure function, and its parameters: see ``function``.

    Args:
        exported: of ``torch.export.export`` or ``torch.export.load``. Sizes that were exported as
            dynamic are checked by their bounds.

    Raises:
        ArgumentError: it is no exported program.

    >>> import fnx
    >>> example = torch.ones(4, 3)
    >>> f, params = load(torch.export.export(torch.nn.Linear(3, 2), (example,)))
    >>> fnx.jit(f)(params, fnx.numpy.ones((4, 3))).shape
    (4, 2)
    """
    if not isinstance(exported, ExportedProgram):
        raise ArgumentError(f"expected a torch.export.ExportedProgram, got "
                            f"{type(exported).__name__}", hint="torch.export.load reads a file; "
                            "fnx.torch.function takes a module")
    traced, signature = ready(exported), exported.graph_signature
    state = {**exported.constants, **exported.state_dict}
    f = TorchFunction("exported", [(n, state[n]) for n in signature.parameters],
                      [(n, state[n]) for n in signature.buffers], lambda args, named: traced)
    return f, f.params
