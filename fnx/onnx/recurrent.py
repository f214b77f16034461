"""RNN, GRU and LSTM: a scan over time for each direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as jnp
from fnx import lax, nn
from fnx.core.array.array import Array
from fnx.core.support.record import Record
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import Value, to_array

_ACTIVATIONS: dict[str, tuple[Callable[..., Array], tuple[float, ...]]] = {  # alpha, beta
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)), "elu": (nn.elu, (1.0,)),
    "hardsigmoid": (lambda x, a, b: jnp.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "leakyrelu": (nn.leaky_relu, (0.01,)), "relu": (nn.relu, ()), "sigmoid": (nn.sigmoid, ()),
    "scaledtanh": (lambda x, a, b: a * jnp.tanh(b * x), (1.0, 1.0)),
    "softplus": (nn.softplus, ()), "softsign": (nn.soft_sign, ()), "tanh": (jnp.tanh, ()),
    "thresholdedrelu": (lambda x, a: jnp.where(x > a, x, 0), (1.0,))}


class Layer(Record):
    """One direction of a layer. ``gates``: products with the input, one for each time;
    ``recurrent``: [hidden size, gates * hidden size]."""

    gates: Array
    recurrent: Array
    recurrent_bias: Array
    activations: tuple[Callable[[Array], Array], ...]
    peepholes: tuple[Any, ...]  # weights of the cell in the gates i, o and f of LSTM


Cell = Callable[[Layer, Array, Sequence[Array]], tuple[Array, ...]]  # gates, state -> state


def _activations(n: Node, names: Sequence[str], alpha: Any, beta: Any, clip: float | None
                 ) -> list[Callable[[Array], Array]]:
    """Return functions, each with the next alpha and beta if it has such a number."""
    numbers = [iter(alpha or ()), iter(beta or ())]
    functions = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise n.refuse(f"expected an activation of ONNX, got {name!r}")
        function, defaults = _ACTIVATIONS[name.lower()]
        functions.append(_bounded(function, clip, [next(i, d) for i, d in zip(numbers, defaults)]))
    return functions


def _bounded(function: Callable[..., Array], clip: float | None, numbers: Sequence[float]
             ) -> Callable[[Array], Array]:
    return lambda x: function(x if clip is None else jnp.clip(x, -clip, clip), *numbers)


def _run(n: Node, cell: Cell, inputs: Sequence[Value], states: Sequence[Value],
         activations: Sequence[str], options: dict[str, Any]) -> Value:
    """Return the outputs of all times, and the last states, of a layer with 1 or 2 directions."""
    x, w, r, b, lengths, p = (None if v is None else to_array(v) for v in (*inputs, None)[:6])
    if x is None or w is None or r is None:
        raise n.refuse("expected X, W and R")
    layout, direction = options.pop("layout"), options.pop("direction")
    x = x.swapaxes(0, 1) if layout else x
    count, size = r.shape[0], r.shape[2]
    if count != 1 + (direction == "bidirectional"):
        raise n.refuse(f"expected W and R for the direction {direction!r}, got {count} of them")
    names = options.pop("activations") or list(activations) * count
    functions = _activations(n, names, **options)
    b = jnp.zeros((count, 2 * w.shape[1]), x.dtype) if b is None else b
    first = [jnp.zeros((count, x.shape[1], size), x.dtype) if s is None else
             to_array(s).swapaxes(0, 1) if layout else to_array(s) for s in states]
    ys, lasts = [], []
    for d, (bias, recurrent_bias) in enumerate(zip(*jnp.split(b, 2, 1))):
        back = d == 1 or direction == "reverse"
        steps = len(functions) // count
        layer = Layer(_reversed(x, lengths) @ w[d].T + bias if back else x @ w[d].T + bias,
                      r[d].T, recurrent_bias, tuple(functions[d * steps:(d + 1) * steps]),
                      (0, 0, 0) if p is None else tuple(jnp.split(p[d], 3)))
        y, last = _scan(cell, layer, [s[d] for s in first], lengths)
        ys.append(_reversed(y, lengths) if back else y)
        lasts.append(last)
    y = jnp.stack(ys, 2 if layout else 1)
    ends = [jnp.stack(s, 1 if layout else 0) for s in zip(*lasts)]
    return y.swapaxes(0, 1) if layout else y, *ends


def _scan(cell: Cell, layer: Layer, state: list[Array], lengths: Array | None
          ) -> tuple[Array, list[Array]]:
    def step(carry: Any, row: Any) -> Any:
        t, gates = row
        new = list(cell(layer, gates, carry))
        if lengths is None:
            return new, new[0]
        live = (t < lengths)[:, None]
        return [jnp.where(live, a, b) for a, b in zip(new, carry)], jnp.where(live, new[0], 0)

    last, ys = lax.scan(step, state, (jnp.arange(layer.gates.shape[0]), layer.gates))
    return ys, last


def _reversed(x: Array, lengths: Array | None) -> Array:
    """Return [time, batch, ...] with the first ``lengths`` times of each column reversed."""
    if lengths is None:
        return jnp.flip(x, 0)
    t = jnp.arange(x.shape[0])[:, None]
    at = jnp.where(t < lengths, lengths - 1 - t, t)
    return jnp.take_along_axis(x, at[:, :, None], 0)


def _options(names: Any, alpha: Any, beta: Any, clip: Any, direction: str, layout: int
             ) -> dict[str, Any]:
    return {"activations": names, "alpha": alpha, "beta": beta, "clip": clip,
            "direction": direction, "layout": layout}


def _rnn_cell(layer: Layer, gates: Array, state: Sequence[Array]) -> tuple[Array, ...]:
    return layer.activations[0](gates + state[0] @ layer.recurrent + layer.recurrent_bias),


@op("RNN")
def _rnn(n: Node, x: Value, w: Value, r: Value, b: Value = None, lengths: Value = None,
         h: Value = None, *, activations: Any = None, activation_alpha: Any = None,
         activation_beta: Any = None, clip: Any = None, direction: str = "forward",
         hidden_size: int = 0, layout: int = 0) -> Value:
    return _run(n, _rnn_cell, (x, w, r, b, lengths), [h], ["Tanh"], _options(
        activations, activation_alpha, activation_beta, clip, direction, layout))


def _gru_cell(linear_before_reset: int) -> Cell:
    def cell(layer: Layer, gates: Array, state: Sequence[Array]) -> tuple[Array, ...]:
        h, size = state[0], state[0].shape[-1]
        f, g = layer.activations
        by, bias = layer.recurrent, layer.recurrent_bias
        z, r = jnp.split(f(gates[:, :2 * size] + h @ by[:, :2 * size] + bias[:2 * size]), 2, -1)
        if linear_before_reset:
            new = r * (h @ by[:, 2 * size:] + bias[2 * size:])
        else:
            new = (r * h) @ by[:, 2 * size:] + bias[2 * size:]
        return (1 - z) * g(gates[:, 2 * size:] + new) + z * h,
    return cell


@op("GRU")
def _gru(n: Node, x: Value, w: Value, r: Value, b: Value = None, lengths: Value = None,
         h: Value = None, *, activations: Any = None, activation_alpha: Any = None,
         activation_beta: Any = None, clip: Any = None, direction: str = "forward",
         hidden_size: int = 0, layout: int = 0, linear_before_reset: int = 0) -> Value:
    return _run(n, _gru_cell(linear_before_reset), (x, w, r, b, lengths), [h],
                ["Sigmoid", "Tanh"], _options(activations, activation_alpha, activation_beta,
                                              clip, direction, layout))


def _lstm_cell(input_forget: int) -> Cell:
    def cell(layer: Layer, gates: Array, state: Sequence[Array]) -> tuple[Array, ...]:
        h, c = state
        f, g, out = layer.activations
        i, o, forget, new = jnp.split(gates + h @ layer.recurrent + layer.recurrent_bias, 4, -1)
        to_i, to_o, to_forget = layer.peepholes
        i = f(i + to_i * c)
        c_new = (1 - i if input_forget else f(forget + to_forget * c)) * c + i * g(new)
        return f(o + to_o * c_new) * out(c_new), c_new
    return cell


@op("LSTM")
def _lstm(n: Node, x: Value, w: Value, r: Value, b: Value = None, lengths: Value = None,
          h: Value = None, c: Value = None, p: Value = None, *, activations: Any = None,
          activation_alpha: Any = None, activation_beta: Any = None, clip: Any = None,
          direction: str = "forward", hidden_size: int = 0, input_forget: int = 0,
          layout: int = 0) -> Value:
    return _run(n, _lstm_cell(input_forget), (x, w, r, b, lengths, p), [h, c],
                ["Sigmoid", "Tanh", "Tanh"], _options(activations, activation_alpha,
                                                      activation_beta, clip, direction, layout))
