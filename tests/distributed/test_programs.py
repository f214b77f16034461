"""Arrays and programs over several processes against the same in one: each process also runs the
program on arrays of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.distributed.launch import launch, run

pytest.importorskip("mpi4py")

START = """
import sys, numpy as np, fnx, fnx.lax as lax, fnx.numpy as jnp
from collections import Counter
from fnx import P
fnx.distributed.initialize()
from fnx.core.scope import communicator
from fnx.experimental import multihost_utils as utils
n, me = fnx.process_count(), fnx.process_index()
mesh = fnx.make_mesh((n,), ("d",))
at = lambda *spec: fnx.NamedSharding(mesh, P(*spec))
rng = np.random.default_rng(0)
draw = lambda *shape: rng.standard_normal(shape).astype(np.float32) * 0.3
log = Counter()
begin = communicator.current().start
communicator.current().start = lambda arg, *xs: (log.update([arg.name]), begin(arg, *xs))[1]

def same(name, f, args, specs, **options):
    want, jitted = fnx.jit(f)(*args), fnx.jit(f, **options)
    for _ in range(3):  # the last one by the fast path
        put = [fnx.tree.map(lambda x: fnx.device_put(x, at(*spec)), x) if type(spec) is tuple else
               fnx.tree.map(lambda x, s: fnx.device_put(x, at(*s)), x, spec)
               for x, spec in zip(args, specs)]
        got = jitted(*put)
    assert jitted._launchers, name
    for a, b in zip(fnx.tree.leaves(utils.process_allgather(got)), fnx.tree.leaves(want)):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=name)
    return got

def count(f, *args):
    fnx.block_until_ready(f(*args))
    log.clear()
    fnx.block_until_ready(f(*args))
    del log["process_index"]
    return dict(log)
"""

PROGRAMS = START + """
def mlp(p, x):
    for w, b in p[:-1]:
        x = jnp.tanh(x @ w + b)
    return x @ p[-1][0] + p[-1][1]

def step(p, m, x, y):
    loss, g = fnx.value_and_grad(lambda p: ((mlp(p, x) - y) ** 2).mean())(p)
    m = fnx.tree.map(lambda m, g: 0.9 * m + g, m, g)
    return fnx.tree.map(lambda p, m: p - 0.1 * m, p, m), m, loss

def steps(p, m, x, y):
    for _ in range(2):
        p, m, loss = step(p, m, x, y)
    return p, loss

p, x, y = [(draw(8, 16), draw(16)), (draw(16, 4), draw(4))], draw(16, 8), draw(16, 4)
m = fnx.tree.map(np.zeros_like, p)
same("data parallel", steps, (p, m, x, y), [(), (), ("d",), ("d",)], donate_argnums=(0, 1))
data = [fnx.device_put(a, at("d")) for a in (x, y)]
assert count(fnx.jit(step), p, m, *data) == {"all_reduce": 1}, log
cut = [(("d",), ("d",))] * 2
same("fully sharded", steps, (p, m, x, y), [cut, cut, ("d",), ("d",)])

def block(p, x):
    h = x - x.mean(-1, keepdims=True)
    q, k, v = [jnp.einsum("btd,dhe->bhte", h, p[i]) for i in "qkv"]
    a = fnx.nn.softmax(jnp.where(jnp.tril(jnp.ones((4, 4), bool)), q @ k.swapaxes(-1, -2), -1e9))
    x = x + jnp.einsum("bhte,hed->btd", a @ v, p["o"])
    return x + fnx.nn.gelu(x @ p["up"]) @ p["down"]

w = {**{i: draw(8, 4, 2) for i in "qkv"}, "o": draw(4, 2, 8), "up": draw(8, 16),
     "down": draw(16, 8)}
specs = {**{i: (None, "d") for i in "qkv"}, "o": ("d",), "up": (None, "d"), "down": ("d",)}
x = draw(2, 4, 8)
placed = {i: fnx.device_put(w[i], at(*specs[i])) for i in w}
assert count(fnx.jit(block), placed, x) == {"all_reduce": 2}, log
grads = fnx.grad(lambda p, x: (block(p, x) ** 2).sum())
got = fnx.jit(grads)(placed, x)
assert all(got[i].sharding == placed[i].sharding for i in w), {i: got[i].sharding for i in w}
for i, g in fnx.jit(grads)(w, x).items():
    np.testing.assert_allclose(utils.process_allgather(got[i]), g, rtol=2e-4, atol=2e-5)

def heat(u):
    def local(u):
        left, right = [lax.ppermute(part, "d", [(i, (i + s) % n) for i in range(n)])
                       for part, s in ((u[-1:], 1), (u[:1], -1))]
        e = jnp.concatenate([left, u, right])
        return u + 0.1 * (e[2:] - 2 * u + e[:-2])
    cut = fnx.shard_map(local, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
    return lax.fori_loop(0, 3, lambda i, u: cut(u), u)
u = draw(16)
want = u
for _ in range(3):
    want = want + 0.1 * (np.roll(want, 1) - 2 * want + np.roll(want, -1))
got = fnx.jit(heat)(fnx.device_put(u, at("d")))
np.testing.assert_allclose(utils.process_allgather(got), want, rtol=1e-5)

def rnn(w, x, rows):
    def step(c, r):
        c = jnp.tanh(c @ w + x.mean(0) * r)
        return c, c.sum()
    c, ys = lax.scan(step, x, rows)
    return (c ** 2).sum() + ys.sum()
same("scan", fnx.value_and_grad(rnn), (draw(4, 4), draw(8, 4), draw(3)), [(), ("d",), ()])
print("equal")
"""

ARRAYS = START + """
twice, v = fnx.jit(lambda x: x * 2), draw(8)
for spec in ("d", "d", "d", None, None, "d", None, "d"):  # one trace, with a launcher for one cut
    y = twice(fnx.device_put(v, at(spec)))
    assert y.sharding.is_equivalent_to(at(spec), 1), (y.sharding, spec)
    np.testing.assert_array_equal(utils.process_allgather(y), v * 2)
np.testing.assert_array_equal(twice(v), v * 2)
x = fnx.make_array_from_process_local_data(at("d"), np.full((2, 3), me, np.float32))
for rows in (1, 3):
    blocks = fnx.make_array_from_process_local_data(at("d"), np.full((rows, 2), me))
    assert blocks.shape == (rows * n, 2)
whole = utils.process_allgather(x)
np.testing.assert_array_equal(whole[::2, 0], np.arange(n))
y = fnx.make_array_from_callback((2 * n, 3), at("d"), lambda index: whole[index])
z = fnx.make_array_from_single_device_arrays((2 * n, 3), at("d"), [jnp.full((2, 3), float(me))])
assert float(abs(x - y).sum() + abs(x - z).sum()) == 0  # eager
drawn = fnx.random.normal(fnx.random.key(0), (2 * n, 3), out_sharding=at("d"))
for like in (drawn, jnp.zeros((2 * n, 3), device=at("d")), jnp.copy(x), jnp.zeros_like(x),
             x.at[0].set(0), jnp.sort(x, 1), jnp.roll(x, 1, 0)):
    assert like.sharding.is_equivalent_to(x.sharding, 2) and like.shape == x.shape
    assert [part.data.shape for part in like.addressable_shards] == [(2, 3)]
np.testing.assert_array_equal(utils.process_allgather(jnp.copy(x)), whole)
assert x.shape == (2 * n, 3) and not x.is_fully_addressable and not x.is_fully_replicated
assert repr(x) == f"Array(shape=({2 * n}, 3), dtype=float32)" == str(x)
shard, = x.addressable_shards
np.testing.assert_array_equal(shard.data, np.full((2, 3), me))
assert [s.data is None for s in x.global_shards] == [i != me for i in range(n)]
moved = fnx.device_put((x + 1).T, at(None, "d")) * 2
assert moved.sharding == at(None, "d")
np.testing.assert_array_equal(utils.process_allgather(moved), (whole + 1).T * 2)
np.testing.assert_array_equal(fnx.device_put(x, at()), whole)
made = fnx.jit(lambda: jnp.arange(4.0 * n), out_shardings=at("d"))()
np.testing.assert_array_equal(made.addressable_data(0), np.arange(4.0) + 4 * me)
f = fnx.jit(lambda w, x: w - fnx.grad(lambda w: ((x @ w) ** 2).mean())(w))
w = jnp.ones(3)
lowered = f.lower(w, x)
assert "all_reduce" in lowered.text("graph")
row, = lowered.comms().rows
assert row.routine == "all_reduce" and "program.py:" in row.line, row
odd = fnx.jit(fnx.grad(lambda x: (lax.with_sharding_constraint(x * x, at("d"))[1:] * x[1:]).sum()))
np.testing.assert_array_equal(utils.process_allgather(odd(np.arange(5.0))), [0, 3, 12, 27, 48])
compiled = lowered.compile()
like = fnx.ShapeDtypeStruct(x.shape, np.float32, sharding=at("d"))
for g in (compiled, f.lower(w, like).compile()):
    np.testing.assert_array_equal(g(w, x), f(w, x))
utils.sync_global_devices("here")
utils.assert_equal({"a": 1})
assert utils.broadcast_one_to_all(np.int32(me + 5)) == 5
refused = [
    ("cut over several processes.*process_allgather", lambda: np.asarray(x)),
    ("cut over several processes", lambda: fnx.device_put(x, fnx.local_devices()[0])),
    ("the same array in all processes", lambda: fnx.device_put(np.full(4, me), at())),
    ("shape .2, 3., got .3, 3.", lambda: fnx.make_array_from_process_local_data(
        at("d"), np.ones((3, 3)), (2 * n, 3))),
    ("the shardings that it was compiled for", lambda: compiled(w, jnp.ones((2 * n, 3)))),
    ("equal part, in order", lambda: fnx.device_put(np.ones(4), fnx.NamedSharding(
        fnx.sharding.Mesh(fnx.devices()[::-1], "d"), P("d")))),
    ("values of seeds", lambda: utils.assert_equal(me, "values of seeds"))]
import re
for text, call in refused:
    try:
        call()
    except fnx.FnxError as error:
        assert re.search("(?s)" + text, str(error)), error
    else:
        raise AssertionError(text)
print("equal")
"""

OVERLAP = START + """
order = []
def start(arg, xs, *rest):
    finish = begin(arg, xs, *rest)
    order.append(("start", arg.ins[0][0]))
    return lambda targets: (order.append(("wait", arg.ins[0][0])), finish(targets))[1]
communicator.current().start = start

def delayed(x):
    order.append("delay")
    return x

def f(w, x):
    total = x.sum(0)
    w = fnx.pure_callback(delayed, fnx.ShapeDtypeStruct((3,), np.float32), w)
    return jnp.tanh(total) + w
x, w = draw(4, 3), draw(3)
got = fnx.jit(f)(w, fnx.device_put(x, at("d")))
np.testing.assert_allclose(got, np.tanh(x.sum(0)) + w, rtol=1e-5)
assert order == [("start", (3,)), "delay", ("wait", (3,))], order

def deep(ws, x):  # large gradients: a message for each, the last layer's first
    return sum([jnp.zeros(()), *[(x := jnp.tanh(x @ w)).sum() for w in ws]])
ws, x = [draw(700, 700) / 10 for _ in range(3)], draw(4, 700)
step = fnx.jit(lambda ws, x: [w - g for w, g in zip(ws, fnx.grad(deep)(ws, x))])
want = step(ws, x)
order.clear()
got = fnx.block_until_ready(step(ws, fnx.device_put(x, at("d"))))
assert [what for what, _ in order] == ["start"] * 3 + ["wait"] * 3, order
for a, b in zip(got, want):
    np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
print("equal")
"""

OTHER_PROGRAMS = START + """
x = fnx.device_put(np.ones((4, 2), np.float32), at("d"))
f = fnx.jit(lambda x: (x * (me + 1)).sum())
f(x)
"""

ONCE_MORE = START + """
x = fnx.device_put(np.ones((4, 2), np.float32), at("d"))
total, squares = fnx.jit(lambda x: x.sum()), fnx.jit(lambda x: (x * x).sum())
for f in (total, squares):
    fnx.block_until_ready(f(x))
if me == 0:
    fnx.block_until_ready(total(x))
new = fnx.jit(lambda x: (x + 1).sum())
fnx.block_until_ready((squares if sys.argv[1] == "known" else new)(x))
"""


@pytest.mark.parametrize(("then", "says"), [
    ("known", "all_reduce of float32.. over axis 'd' of the mesh, in the program"),
    ("new", "an exchange of all processes")])
def test_a_program_run_once_more_by_one_process(then: str, says: str, tmp_path: Path) -> None:
    done = launch(2, ONCE_MORE, then, folder=tmp_path)
    found = re.search(f"process 0 runs all_reduce.*, process 1 {says}", done.stderr) or \
        re.search(f"process 1 runs .*, process 0 {says}", done.stderr)
    assert done.returncode != 0 and found, done.stderr


def test_whole_programs_are_those_of_one_process(tmp_path: Path) -> None:
    assert run(2, PROGRAMS, folder=tmp_path).count("equal") == 2


@pytest.mark.cases(2, of="parts")
def test_collectives_run_beside_what_does_not_wait_for_them(tmp_path: Path) -> None:
    assert run(2, OVERLAP, folder=tmp_path).count("equal") == 2


@pytest.mark.cases(2, of="parts")
def test_arrays_have_their_blocks(tmp_path: Path) -> None:
    assert run(2, ARRAYS, folder=tmp_path).count("equal") == 2


def test_other_programs_are_refused_before_they_run(tmp_path: Path) -> None:
    done = launch(2, OTHER_PROGRAMS, folder=tmp_path)
    assert done.returncode != 0 and "the same program in all processes" in done.stderr, done.stderr
    assert "float32[4, 2]" in done.stderr and "program.py:" in done.stderr


@pytest.mark.cases(2, of="parts")
def test_a_mesh_may_have_several_devices_of_each_process(tmp_path: Path) -> None:
    program = START + """
mesh = fnx.make_mesh((2, 2), ("a", "b"))  # a: processes, b: the devices of one
x = fnx.device_put(np.arange(32.0, dtype=np.float32).reshape(8, 4), at(("a", "b")))
assert [s.data.shape for s in x.addressable_shards] == [(2, 4)] * 2
np.testing.assert_array_equal(x.addressable_shards[1].data[0], np.arange(4) + 8 + 16 * me)
y = fnx.jit(lambda x: x @ x.T)(fnx.device_put(x, at("b", "a")))
w = np.arange(32.0).reshape(8, 4)
np.testing.assert_array_equal(utils.process_allgather(y), w @ w.T)
print("equal")
"""
    out = run(2, program, folder=tmp_path, FNX_CPU_DEVICES="2")
    assert out.count("equal") == 2
