"""Every public function on captured arrays, repeatedly while a trace is open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
from tests.public.test_arguments import CALLABLES, arguments, call

COMPILED = True  # the evaluated buffer is the one that was passed in


@pytest.mark.cases(300)
@pytest.mark.parametrize("name", CALLABLES)
def test_values_are_read_again_in_an_open_trace(name: str) -> None:
    args = [fnx.numpy.asarray(a) if isinstance(a, np.ndarray) else a
            for a in arguments(name, CALLABLES[name])]

    def f(x: Any) -> Any:
        for _ in range(2):
            call(name, {}, args)
        return x

    assert fnx.grad(f)(1.0) == 1
