"""``jax.example_libraries.stax``: layers as pairs (init, apply), and their compositions.

``init(key, input_shape)`` returns (output shape, parameters); ``apply(params, x, rng=key)`` the
output. Keys are split as in JAX, so the parameters are JAX's.

>>> import fnx, fnx.numpy as jnp
>>> init, apply = serial(Dense(8), Relu, Dense(2), LogSoftmax)
>>> shape, params = init(fnx.random.key(0), (3, 4))
>>> shape, apply(params, jnp.ones((3, 4))).shape
((3, 2), (3, 2))
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as jnp
from fnx import lax, nn, random
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.support.errors import ArgumentError
from fnx.nn import log_softmax, relu, softmax
from fnx.nn.initializers import glorot_normal, normal, ones, zeros
from fnx.transforms.abstract_eval import eval_shape

Layer = tuple[Callable[..., Any], Callable[..., Any]]
Shape = tuple[int, ...]

glorot, randn, logsoftmax = glorot_normal, normal, log_softmax
elu, gelu, leaky_relu, selu = nn.elu, nn.gelu, nn.leaky_relu, nn.selu
sigmoid, softplus, standardize = nn.sigmoid, nn.softplus, nn.standardize


def _stateless(apply: Callable[..., Any]) -> Layer:
    """Return the layer of a function without parameters."""
    def init(rng: Any, input_shape: Shape) -> tuple[Shape, tuple[()]]:
        return _shape(apply, (), input_shape), ()
    return init, apply


def _shape(apply: Callable[..., Any], params: Any, input_shape: Shape) -> Shape:
    shape: Shape = eval_shape(functools.partial(apply, params),
                              ShapeDtypeStruct(tuple(input_shape), "float32")).shape
    return shape


def Dense(out_dim: int, W_init: Any = glorot_normal(), b_init: Any = normal()) -> Layer:
    """A product with a matrix, plus a bias."""
    def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
        k1, k2 = random.split(rng)
        weights = W_init(k1, (input_shape[-1], out_dim))
        return (*input_shape[:-1], out_dim), (weights, b_init(k2, (out_dim,)))

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        weights, bias = params
        return jnp.dot(inputs, weights) + bias
    return init, apply


def _convolution(convolve: Callable[..., Any], dimension_numbers: Sequence[str], out_chan: int,
                 filter_shape: Shape, strides: Shape | None, padding: Any, W_init: Any, b_init: Any
                 ) -> Layer:
    lhs, rhs, out = dimension_numbers
    steps = strides or (1,) * len(filter_shape)
    init_kernel = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))

    def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
        sizes = iter(filter_shape)
        kernel = tuple([out_chan if c == "O" else input_shape[lhs.index("C")] if c == "I" else
                        next(sizes) for c in rhs])
        k1, k2 = random.split(rng)
        params = (init_kernel(k1, kernel),
                  b_init(k2, tuple([out_chan if c == "C" else 1 for c in out])))
        return _shape(apply, params, input_shape), params

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        weights, bias = params
        return convolve(inputs, weights, steps, padding,
                        dimension_numbers=tuple(dimension_numbers)) + bias
    return init, apply


def GeneralConv(dimension_numbers: Sequence[str], out_chan: int, filter_shape: Shape,
                strides: Shape | None = None, padding: Any = "VALID", W_init: Any = None,
                b_init: Any = normal(1e-6)) -> Layer:
    """A convolution, plus a bias."""
    return _convolution(lax.conv_general_dilated, dimension_numbers, out_chan, filter_shape,
                        strides, padding, W_init, b_init)


def GeneralConvTranspose(dimension_numbers: Sequence[str], out_chan: int, filter_shape: Shape,
                         strides: Shape | None = None, padding: Any = "VALID", W_init: Any = None,
                         b_init: Any = normal(1e-6)) -> Layer:
    """A transposed convolution, plus a bias."""
    return _convolution(lax.conv_transpose, dimension_numbers, out_chan, filter_shape, strides,
                        padding, W_init, b_init)


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(axis: Any = (0, 1, 2), epsilon: float = 1e-5, center: bool = True, scale: bool = True,
              beta_init: Any = zeros, gamma_init: Any = ones) -> Layer:
    """Standardization over axes, then a learned scale and offset."""
    axes = (axis,) if isinstance(axis, int) else axis

    def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
        shape = tuple([n for i, n in enumerate(input_shape) if i not in axes])
        k1, k2 = random.split(rng)
        return input_shape, (beta_init(k1, shape) if center else (),
                             gamma_init(k2, shape) if scale else ())

    def apply(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        wide = tuple([None if i in axes else slice(None) for i in range(jnp.ndim(x))])
        z = standardize(x, axes, epsilon=epsilon)
        z = gamma[wide] * z if scale else z
        return z + beta[wide] if center else z
    return init, apply


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """Return the layer of an elementwise function."""
    return _stateless(lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs))


Tanh, Relu, Exp = elementwise(jnp.tanh), elementwise(relu), elementwise(jnp.exp)
LogSoftmax, Softmax = elementwise(log_softmax, axis=-1), elementwise(softmax, axis=-1)
Softplus, Sigmoid, Elu = elementwise(softplus), elementwise(sigmoid), elementwise(elu)
LeakyRelu, Selu, Gelu = elementwise(leaky_relu), elementwise(selu), elementwise(gelu)


def _pooling(reducer: Callable[..., Any], initial: float, is_mean: bool = False
             ) -> Callable[..., Layer]:
    def pool(window_shape: Shape, strides: Shape | None = None, padding: Any = "VALID",
             spec: str | None = None) -> Layer:
        others = sorted((0, len(window_shape) + 1) if spec is None else
                        (spec.index("N"), spec.index("C")))
        window, steps = list(window_shape), list(strides or (1,) * len(window_shape))
        for i in others:
            window.insert(i, 1)
            steps.insert(i, 1)

        def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
            out = lax.reduce_window(inputs, initial, reducer, window, steps, padding)
            if not is_mean:
                return out
            one = jnp.ones([1 if i in others else n for i, n in enumerate(inputs.shape)],
                           inputs.dtype)
            return out / lax.reduce_window(one, 0.0, lax.add, window, steps, padding)
        return _stateless(apply)
    return pool


MaxPool = _pooling(lax.max, -math.inf)
SumPool = _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, is_mean=True)
Flatten = _stateless(lambda params, inputs, **kwargs: jnp.reshape(inputs, (inputs.shape[0], -1)))
Identity = _stateless(lambda params, inputs, **kwargs: inputs)


def FanOut(num: int) -> Layer:
    """Repeat the input."""
    return lambda rng, shape: ([shape] * num, ()), lambda params, inputs, **kwargs: [inputs] * num


def FanInConcat(axis: int = -1) -> Layer:
    """Concatenate the inputs."""
    def init(rng: Any, input_shape: Sequence[Shape]) -> tuple[Shape, tuple[()]]:
        out = list(input_shape[0])
        out[axis] = sum([shape[axis] for shape in input_shape])
        return tuple(out), ()
    return init, lambda params, inputs, **kwargs: jnp.concatenate(inputs, axis)


FanInSum: Layer = (lambda rng, shapes: (shapes[0], ()),
                   lambda params, inputs, **kwargs: sum(inputs))


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Keep each element with probability ``rate`` when training."""
    def apply(params: Any, inputs: Any, *, rng: Any = None, **kwargs: Any) -> Any:
        if rng is None:
            raise ArgumentError("Dropout layer requires apply_fun to be called with a PRNG key "
                                "argument", hint="call apply_fun(params, inputs, rng=key)")
        if mode != "train":
            return inputs
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)
    return lambda rng, input_shape: (input_shape, ()), apply


def _keys(kwargs: dict[str, Any], n: int) -> Any:
    key = kwargs.pop("rng", None)
    return (None,) * n if key is None else random.split(key, n)


def serial(*layers: Layer) -> Layer:
    """Apply layers one after the other."""
    def init(rng: Any, input_shape: Shape) -> tuple[Shape, list[Any]]:
        params = []
        for init_layer, _ in layers:
            rng, key = random.split(rng)
            input_shape, param = init_layer(key, input_shape)
            params.append(param)
        return input_shape, params

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs, len(layers))
        for (_, layer), param, key in zip(layers, params, keys):
            inputs = layer(param, inputs, rng=key, **kwargs)
        return inputs
    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Apply each layer to its own input: a sequence of inputs, and of outputs."""
    def init(rng: Any, input_shape: Sequence[Shape]) -> Any:
        keys = random.split(rng, len(layers))
        return zip(*[init_layer(key, shape)
                     for (init_layer, _), key, shape in zip(layers, keys, input_shape)])

    def apply(params: Any, inputs: Any, **kwargs: Any) -> list[Any]:
        keys = _keys(kwargs, len(layers))
        return [layer(p, x, rng=key, **kwargs)
                for (_, layer), p, x, key in zip(layers, params, inputs, keys)]
    return init, apply


def shape_dependent(make_layer: Callable[[Shape], Layer]) -> Layer:
    """Make a layer when the shape of its input is known."""
    return (lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
            lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs))
