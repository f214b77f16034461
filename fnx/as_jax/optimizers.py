"""``jax.example_libraries.optimizers``: optimizers as (init, update, get_params) of pytrees.

>>> init, update, get_params = adam(0.1)
>>> state = update(0, {"w": 2.0}, init({"w": 1.0}))
>>> print(round(float(get_params(state)["w"]), 4))
0.9
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.support.errors import ArgumentError, PytreeError

Schedule = Callable[[Any], Any]


class OptimizerState(NamedTuple):
    """The leaves of the state of each parameter, and the structures of both trees."""

    packed_state: Any
    tree_def: tree.TreeDef
    subtree_defs: Any


register_pytree_node(
    OptimizerState, lambda s: ((s.packed_state,), (s.tree_def, s.subtree_defs)),
    lambda defs, states: OptimizerState(states[0], *defs))


class Optimizer(NamedTuple):
    """An optimizer; ``update_fn(step, grads, state)`` returns the next state."""

    init_fn: Callable[[Any], Any]
    update_fn: Callable[[Any, Any, Any], Any]
    params_fn: Callable[[Any], Any]


class JoinPoint:
    """The state of one parameter, in place of it."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """Return the tree of the parameters, with the state of each as a JoinPoint."""
    states = map(tree.unflatten, opt_state.subtree_defs, opt_state.packed_state)
    return tree.unflatten(opt_state.tree_def, [JoinPoint(s) for s in states])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """Return the OptimizerState of a tree with the state of each parameter as a JoinPoint."""
    points, structure = tree.flatten(marked_pytree)
    flat = [tree.flatten(p.subtree) for p in points]
    return OptimizerState([leaves for leaves, _ in flat], structure, [d for _, d in flat])


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """Turn functions of one parameter and its state into functions of pytrees of them."""
    @functools.wraps(opt_maker)
    def make(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def tree_init(params: Any) -> OptimizerState:
            leaves, structure = tree.flatten(params)
            return pack_optimizer_state(
                tree.unflatten(structure, [JoinPoint(init(x)) for x in leaves]))

        def tree_update(i: Any, grads: Any, opt_state: OptimizerState) -> OptimizerState:
            leaves, structure = tree.flatten(grads)
            if structure != opt_state.tree_def:
                raise PytreeError(f"expected gradients like the parameters, {opt_state.tree_def}, "
                                f"got {structure}")
            states = map(tree.unflatten, opt_state.subtree_defs, opt_state.packed_state)
            points = [JoinPoint(update(i, g, s)) for g, s in zip(leaves, states)]
            return pack_optimizer_state(tree.unflatten(structure, points))

        def tree_params(opt_state: OptimizerState) -> Any:
            states = map(tree.unflatten, opt_state.subtree_defs, opt_state.packed_state)
            return tree.unflatten(opt_state.tree_def, [get_params(s) for s in states])

        return Optimizer(tree_init, tree_update, tree_params)
    return make


def _first(state: Any) -> Any:
    return state[0]


@optimizer
def sgd(step_size: Any) -> Any:
    """Gradient descent."""
    rate = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - rate(i) * g, lambda x: x


@optimizer
def momentum(step_size: Any, mass: float) -> Any:
    """Gradient descent with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        velocity = mass * state[1] + g
        return state[0] - rate(i) * velocity, velocity
    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def nesterov(step_size: Any, mass: float) -> Any:
    """Gradient descent with Nesterov's momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        velocity = mass * state[1] + g
        return state[0] - rate(i) * (mass * velocity + g), velocity
    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> Any:
    """Adagrad with momentum. Source: Duchi, Hazan, Singer, 2011."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares += jnp.square(g)
        inverse = jnp.where(squares > 0, 1.0 / jnp.sqrt(squares), 0.0)
        m = (1.0 - momentum) * (g * inverse) + momentum * m
        return x - rate(i) * m, squares, m
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """RMSProp: steps divided by the root of a moving average of squares."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        squares = state[1] * gamma + jnp.square(g) * (1.0 - gamma)
        return state[0] - rate(i) * g / jnp.sqrt(squares + eps), squares
    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def rmsprop_momentum(step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
                     ) -> Any:
    """RMSProp with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        m = momentum * m + rate(i) * g / jnp.sqrt(squares + eps)
        return x - m, squares, m
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam. Source: Kingma, Ba, 2014."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * jnp.square(g) + b2 * v
        mean = m / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))
        square = v / (1 - jnp.asarray(b2, m.dtype) ** (i + 1))
        return x - rate(i) * mean / (jnp.sqrt(square) + eps), m, v
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam with the largest gradient in place of the mean square. Source: Kingma, Ba, 2014."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, u = state
        m = (1 - b1) * g + b1 * m
        u = jnp.maximum(b2 * u, jnp.abs(g))
        return x - (rate(i) / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))) * m / (u + eps), m, u
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> Any:
    """SM3: Adagrad with sums per axis. Source: Anil, Gupta, Koren, Singer, 2019."""
    rate = make_schedule(step_size)

    def init(x: Any) -> Any:
        rows: Any = jnp.atleast_1d(x)
        return rows, jnp.zeros_like(x), [jnp.zeros(n, rows.dtype) for n in rows.shape], x.shape

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, sums, shape = state
        wide = [jnp.expand_dims(v, [a for a in range(g.ndim) if a != axis])
                for axis, v in enumerate(sums)]
        total = functools.reduce(jnp.minimum, wide) + jnp.square(g)
        inverse = jnp.where(total > 0, 1.0 / jnp.sqrt(total), 0)
        m = (1.0 - momentum) * (g * inverse) + momentum * m
        sums = [total.max([a for a in range(x.ndim) if a != axis]) for axis in range(x.ndim)]
        return x - rate(i) * m, m, sums, shape
    return init, update, lambda state: state[0].reshape(state[3])


# ---- step sizes ----------------------------------------------------------------------------------


def constant(step_size: Any) -> Schedule:
    """Return the same step size for all steps."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """Multiply the step size by the rate in each ``decay_steps`` steps."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False
                       ) -> Schedule:
    """Divide the step size by 1 + a rate times the step."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: float = 1.0
                     ) -> Schedule:
    """Go from one step size to another as a power of the step."""
    return lambda i: (1 - jnp.minimum(i, decay_steps) / decay_steps) ** power * (
        step_size - final_step_size) + final_step_size


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """Return the value of the interval between boundaries that a step is in."""
    at, sizes = jnp.asarray(boundaries), jnp.asarray(values)
    if at.ndim != 1 or sizes.shape != (at.shape[0] + 1,):
        raise ArgumentError(f"piecewise_constant: expected one value more than boundaries, got "
                            f"shapes {sizes.shape} and {at.shape}")
    return lambda i: sizes[jnp.sum(i > at)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """Return a function of the step: itself, or one that is constant."""
    if callable(scalar_or_schedule):
        schedule: Schedule = scalar_or_schedule
        return schedule
    if jnp.ndim(scalar_or_schedule) != 0:
        raise ArgumentError("expected a number or a function of the step as step size, got an "
                            f"array of shape {jnp.shape(scalar_or_schedule)}")
    return constant(scalar_or_schedule)


def l2_norm(params: Any) -> Any:
    """Return the Euclidean norm of all leaves together."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree.leaves(params)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Scale gradients down to a norm, if theirs is larger."""
    norm = l2_norm(grad_tree)
    return tree.map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)
