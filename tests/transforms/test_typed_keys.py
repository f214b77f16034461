"""Typed keys pass through transforms and loops as arrays do."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.random as random
from tests.helpers import key_data


def test_keys_go_through_transforms() -> None:
    ks = random.split(random.key(1), 4)
    eager = [float(random.normal(k)) for k in ks]
    for f in (fnx.vmap(random.normal), fnx.jit(fnx.vmap(random.normal)),
              lambda ks: lax.map(random.normal, ks),
              lambda ks: lax.scan(lambda c, k: (c, random.normal(k)), ks[0], ks)[1]):
        np.testing.assert_allclose(np.asarray(f(ks)), eager, rtol=1e-6)
    step = fnx.jit(lambda k: lax.fori_loop(0, 3, lambda i, k: random.fold_in(k, i), k))
    want = random.key(1)
    for i in range(3):
        want = random.fold_in(want, i)
    assert key_data(step(random.key(1))) == key_data(want)
    assert key_data(fnx.vmap(lambda k: random.split(k))(ks))[2] == key_data(random.split(ks[2]))
    slope = fnx.grad(lambda x, k: x * random.normal(k))(1.0, ks[3])
    assert float(slope) == pytest.approx(eager[3])
