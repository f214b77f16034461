"""Every public callable under the name that users write, for the tests of the API contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

import fnx
import fnx.ad_checkpoint
import fnx.checkpoint_policies
import fnx.config_context
import fnx.custom_batching
import fnx.custom_derivatives
import fnx.device_transfer
import fnx.dtypes
import fnx.environment_info
import fnx.errors
import fnx.experimental.ode
import fnx.experimental.sparse
import fnx.experimental.sparse.linalg
import fnx.flatten_util
import fnx.kernel
import fnx.lax
import fnx.lax.linalg
import fnx.nn
import fnx.nn.initializers
import fnx.numpy
import fnx.numpy.fft
import fnx.numpy.linalg
import fnx.ops
import fnx.random
import fnx.scipy.cluster.vq
import fnx.scipy.fft
import fnx.scipy.integrate
import fnx.scipy.interpolate
import fnx.scipy.linalg
import fnx.scipy.ndimage
import fnx.scipy.optimize
import fnx.scipy.signal
import fnx.scipy.sparse.linalg
import fnx.scipy.spatial.transform
import fnx.scipy.special
import fnx.sharding
import fnx.sharding.device_registry
import fnx.test_util
import fnx.tree
import fnx.tree_util
import fnx.typing
from fnx.core.array.updates import At
from fnx.numpy.dtypes import ScalarType

MODULES: list[ModuleType] = [
    fnx, fnx.numpy, fnx.numpy.linalg, fnx.lax, fnx.nn, fnx.nn.initializers, fnx.random, fnx.tree,
    fnx.tree_util, fnx.kernel, fnx.scipy.special, fnx.sharding, fnx.device_transfer,
    fnx.sharding.device_registry, fnx.environment_info, fnx.config_context, fnx.dtypes, fnx.errors,
    fnx.flatten_util, fnx.ops, fnx.typing, fnx.test_util, fnx.ad_checkpoint,
    fnx.checkpoint_policies, fnx.custom_batching, fnx.custom_derivatives, fnx.scipy.cluster.vq,
    fnx.scipy.integrate, fnx.scipy.interpolate, fnx.scipy.ndimage, fnx.scipy.optimize,
    fnx.scipy.signal, fnx.scipy.spatial.transform, fnx.experimental.ode,
    fnx.experimental.sparse, fnx.experimental.sparse.linalg, fnx.numpy.fft, fnx.lax.linalg,
    fnx.scipy.fft, fnx.scipy.linalg, fnx.scipy.sparse.linalg]


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Return the functions and classes that fnx defines in the modules above."""
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            own = getattr(value, "__module__", "").startswith("fnx")
            if callable(value) and own and not isinstance(value, ScalarType | ModuleType):
                yield f"{module.__name__}.{name}", value


def methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Return the public methods of Array and of ``x.at[...]``."""
    for cls in (fnx.Array, At):
        for name in dir(cls):
            value = getattr(cls, name)
            if not name.startswith("_") and callable(value):
                yield f"{cls.__name__}.{name}", value


def callables() -> dict[str, Callable[..., Any]]:
    return {**dict(functions()), **dict(methods())}


def properties() -> Iterator[tuple[str, property]]:
    for name in dir(fnx.Array):
        value = getattr(fnx.Array, name)
        if not name.startswith("_") and isinstance(value, property):
            yield f"Array.{name}", value


def is_numpy(value: Any) -> bool:
    return getattr(value, "__module__", "") == np.__name__
