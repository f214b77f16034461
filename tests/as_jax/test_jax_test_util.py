"""``jax._src.test_util`` on fnx: a file in the style of JAX's tests runs, and fails where it has
to."""

from __future__ import annotations

import numpy as np

from fnx.as_jax import testing as test_util
from tests.as_jax.test_as_jax import on_fnx, python

CASES = '''
import jax, jax.numpy as jnp, numpy as np
from absl.testing import absltest, parameterized
from jax._src import api, config, core, test_util as jtu
from jax._src.interpreters import partial_eval as pe
from jax._src.lib import xla_client
from jax._src.util import safe_map, split_list
jax.config.parse_flags_with_absl()

class SinTest(jtu.JaxTestCase):
    @jtu.sample_product(shape=[(), (3,), jtu.PYTHON_SCALAR_SHAPE], dtype=jtu.dtypes.floating)
    def test_values(self, shape, dtype):
        make = lambda: [jtu.rand_default(self.rng())(shape, dtype)]
        self._CheckAgainstNumpy(np.sin, jnp.sin, make, tol=1e-6)
        self._CompileAndCheck(jnp.sin, make)

    @parameterized.named_parameters(("up", 1), ("down", -1))
    def test_gradients(self, sign):
        jtu.check_grads(lambda x: sign * jnp.sin(x), (1.0,), order=2)

    def test_counts(self):
        f = jax.jit(lambda x: x + 1)
        with jtu.count_jit_tracing_cache_miss() as count:
            f(1.0), f(2.0)
        self.assertEqual(count(), 1)
        with config.debug_nans(True):
            self.assertTrue(config.debug_nans.value and jax.config.jax_debug_nans)

    def test_message(self):
        with self.assertRaisesRegex(TypeError, "depends on the values of the arguments x and y"):
            jax.jit(lambda x, y: 1 if x > y else 2)(1, 2)

    @jtu.skip_on_devices("cpu")
    def test_elsewhere(self):
        self.fail()

    def test_wrong(self):
        self.assertAllClose(jnp.ones(2), jnp.zeros(2))

if __name__ == "__main__":
    absltest.main(testLoader=jtu.JaxTestLoader())
'''


def test_a_file_of_tests_runs() -> None:
    status, out, err = python("-m", "fnx.as_jax", "-c", CASES)
    assert status == 1 and "FAILED (failures=1, skipped=1)" in err and "test_wrong" in err, err


def test_the_inside_of_jax_can_be_imported() -> None:
    assert on_fnx("""
from jax._src import (ad_checkpoint, array, callback, checkify, debugging, dispatch, dtypes, export,
                      linear_util, mesh, pjit, sharding_impls, source_info_util, stages, xla_bridge)
from jax._src.lax import control_flow, lax, parallel, slicing
from jax._src.core import ClosedJaxpr, check_jaxpr, eval_jaxpr
import jax
assert ClosedJaxpr is jax.extend.core.ClosedJaxpr and dtypes.float0 is jax.float0
try:
    bool(jax._src.config.enable_x64)
except TypeError as error:
    print(error)
""").startswith("bool() not supported")


def test_where_a_pytree_is_no_prefix() -> None:
    assert on_fnx("""
from jax._src.tree_util import prefix_errors
for prefix, full in [({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 1, "b": 2}), ((1, (2,)), (1, 2)),
                     ([None], [1]), (1, (1, 2))]:
    print([str(e("x")).split(" at key")[0] + str(e("x")).splitlines()[1].strip()
           for e in prefix_errors(prefix, full)])
""") == """\
['pytree structure error: different pytree metadatax']
['pytree structure error: different numbers of pytree childrenx']
['pytree structure error: different typesx[1]']
['pytree structure error: different typesx[0]']
[]
"""


def test_indices_along_an_axis_differ() -> None:
    make = test_util.rand_indices_unique_along_axis(np.random.RandomState(0))
    indices = make(5, (3, 4), 1)
    assert indices.shape == (3, 4) and indices.max() < 5
    assert all(len(set(row)) == 4 for row in indices.tolist())


def test_arguments_are_promoted() -> None:
    add = test_util.promote_like_jnp(np.add, inexact=True)
    assert add(np.int32(1), np.int32(2)).dtype == np.float32
    assert test_util.dtype_str(np.float32) == "float32"


def test_settings_that_change_are_noticed() -> None:
    with test_util.assert_global_configs_unchanged():
        pass
    with test_util.count_primitive_compiles() as count:
        pass
    assert count() == 0
