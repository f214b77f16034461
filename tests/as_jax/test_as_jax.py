"""``import jax`` as fnx, each test in its own process, since the alias lasts for the whole
process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def python(*command: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120)
    return done.returncode, done.stdout, done.stderr


def on_fnx(code: str) -> str:
    """Return what a program prints on fnx."""
    status, out, err = python("-m", "fnx.as_jax", "-c", code)
    assert status == 0, err
    return out


@pytest.mark.cases(3, of="processes")
def test_modules_are_found_in_any_order_and_are_one_each() -> None:
    assert on_fnx("""
import jax.scipy.special as special
from jax import numpy as jnp, lax
from jax.numpy import sum as total
import jax.numpy, jax.nn.initializers, jax.experimental, jax.tree_util, jax._src.core, sys
import jax, fnx
from jax.numpy import *
assert jax.numpy is jnp is sys.modules["jax.numpy"] and jax.scipy.special is special
assert jax.Array is fnx.Array and total is fnx.numpy.sum and zeros is jnp.zeros
assert jax.__version__ == "0.10.2" and jax.__version_info__ == jax.version.__version_info__
assert "jaxlib" not in sys.modules
print(jax.jit(jax.grad(lambda x: jnp.sum(x ** 2)))(jnp.ones(2)))
""") == "[2. 2.]\n"


@pytest.mark.cases(3, of="processes")
def test_reload_pickle_and_children() -> None:
    assert on_fnx("""
import importlib, multiprocessing, pickle
import jax, jax.numpy as jnp
before = jnp.sin
assert importlib.reload(jax.numpy) is jnp and jnp.sin is before
@jax.jit
def f(x):
    return x + 1
assert pickle.loads(pickle.dumps(jnp.sin)) is jnp.sin
assert pickle.loads(pickle.dumps(jax.numpy.float32)) == jnp.float32

def child(x):
    import jax, sys
    return float(jax.numpy.sum(jax.numpy.arange(x))), "jaxlib" in sys.modules
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(child, [3, 4]))
""") == "[(3.0, False), (6.0, False)]\n"


MISSING = [
    ("import jax.foo", "No module named 'jax.foo' in JAX 0.10.2"),
    ("import jax.numppy", "did you mean 'jax.numpy'?"),
    ("import jaxlib.no_such_module", "No module named 'jaxlib.no_such_module'"),
    ("from jax._src.core import no_such_name", "cannot import name 'no_such_name'"),
    ("import jax._src.no_such_module", "No module named 'jax._src.no_such_module'"),
    ("from jax._src.core import full_lower; full_lower(1)", "__main__ uses it"),
    ("from jax.numpy import no_such_name", "cannot import name 'no_such_name'"),
    ("import jax; jax.numpy.summ", "did you mean 'sum'?"),
    ("from jax.extend.core import Primitive; Primitive('mine').bind(1)", "'mine'"),
]


@pytest.mark.cases(3, of="processes")
def test_what_is_missing_says_its_name() -> None:
    said = on_fnx("import traceback\n" + "\n".join(
        f"try:\n  exec({statement!r})\nexcept Exception:\n  print(traceback.format_exc())\n"
        "else:\n  print('nothing')\nprint('----')" for statement, _ in MISSING)).split("----")
    assert [text for text, (_, name) in zip(said, MISSING) if name not in text] == []
    status, _, err = python("-m", "fnx.as_jax", "-c", MISSING[0][0])
    assert status == 1 and MISSING[0][1] in err, err


def test_the_cure_of_a_missing_name_is_no_guess() -> None:
    """Names of one module share its path, which says nothing about how alike they are."""
    assert on_fnx("""
import jax.export
try:
    jax.export.default_export_platform()
except NotImplementedError as error:
    assert "did you mean" not in error.hint, error
print("done")
""") == "done\n"


def test_names_that_fnx_lacks_can_be_imported() -> None:
    assert on_fnx("""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from jax import Anything
import jax
from jax.experimental.topologies import get_topology_desc
from jax.extend.core import Primitive, TraceTag
class Mine(TraceTag):
    pass
Mine()
assert not isinstance(1.0, TraceTag) and not hasattr(get_topology_desc, "defjvp")
print(hasattr(jax, "new_ref"), hasattr(jax, "no_such_name"), hasattr(jax, "kernel"))
print(get_topology_desc)
""") == (
        "True False False\n<jax.experimental.topologies.get_topology_desc: not there in fnx>\n")


def test_private_names_are_their_public_ones() -> None:
    assert on_fnx("""
import jax, jaxlib.xla_client, jax._src.core as core, jax._src.tree_util
from jax._src import xla_bridge
from jax.experimental.colocated_python.serialization import xb
import jax.experimental.pallas, jax.example_libraries.stax, jax.experimental.ode
assert core.ShapedArray is jax.core.ShapedArray and xb is xla_bridge
assert jax._src.tree_util.tree_leaves is jax.tree_util.tree_leaves
assert jaxlib.xla_client.Device is jax.Device and jaxlib.__version__ == jax.__version__
print(hasattr(core, "full_lower"), hasattr(core, "no_such_name"), core.full_lower)
""") == "True False <jax._src.core.full_lower: not there in fnx>\n"


@pytest.mark.cases(3, of="processes")
def test_float64_is_truncated() -> None:
    assert on_fnx("""
import jax, jax.numpy as jnp, numpy as np
print(jnp.zeros(2, "float64").dtype, jnp.ones(2).astype(np.int64).dtype,
      jnp.asarray(np.ones(2), jnp.float64).dtype, jnp.float64(1).dtype,
      jax.random.normal(jax.random.key(0), (), jnp.float64).dtype,
      jnp.arange(3, dtype="uint64").dtype, jnp.finfo("float64").bits)
jax.config.update("jax_enable_x64", True)
print(jnp.zeros(2, "float64").dtype, jnp.float64(1).dtype, jnp.ones(2).dtype)
""") == "float32 int32 float32 float32 float32 uint32 64\nfloat64 float64 float64\n"


def test_jax_itself_is_not_mixed_in() -> None:
    status, _, err = python("-c", "import types, sys\n"
                            "sys.modules['jax'] = types.ModuleType('jax')\n"
                            "import fnx.as_jax; fnx.as_jax.install()")
    assert status == 1 and "AlreadyImportedError" in err and "  Fix: " in err


@pytest.mark.cases(3, of="processes")
def test_scripts_and_modules_run_as_by_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys, jax, neighbor\n"
                      "print(__name__, sys.argv[1:], neighbor.n, __file__)")
    (tmp_path / "neighbor.py").write_text("from jax import numpy\n"
                                                "n = int(numpy.sum(numpy.arange(4)))")
    status, out, err = python("-m", "fnx.as_jax", str(script), "-v", "b")
    assert (status, out) == (0, f"__main__ ['-v', 'b'] 6 {script}\n"), err
    status, out, err = python("-m", "fnx.as_jax", "-m", "timeit", "-n1", "-r1", "import jax")
    assert status == 0 and "1 loop" in out, err
    assert python("-m", "fnx.as_jax")[0] == 2
    assert python("-m", "fnx.as_jax", "-c", "import sys; sys.exit(3)")[0] == 3
