"""Calls of meshes, shardings, shard_map and pmap as expressions, which fnx and JAX can both run.

``python scripts/compare_sharding_words.py`` compares them live with JAX on 8 CPU devices; the suite
compares them with what JAX gave (tests/golden/sharding_words.json, recorded by ``--record``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

SPECS = ("P('a')", "P('b', 'a')", "P(('a', 'b'))", "P(None, 'b')", "P()", "P('q')", "P('a', 'a')",
         "P('a', ('b', 'a'))", "P('a', None, 'b')", "'a'", "None")
SHAPES = "X", "X[:6]", "X[0]", "X[:, :3]", "np.float32(1)"
COLLECTIVES = ("psum(x, 'a')", "pmean(x, ('a', 'b'))", "pmax(x, 'q')", "all_gather(x, 'a')",
               "all_gather(x, 'a', axis=7)", "all_gather(x, 'b', axis=1, tiled=True)",
               "psum_scatter(x, 'a', tiled=True)", "psum_scatter(x, 'b', scatter_dimension=1)",
               "psum_scatter(x, 'b', scatter_dimension=1, tiled=True)",
               "all_to_all(x, 'a', 0, 1, tiled=True)", "all_to_all(x, 'b', 1, 0, tiled=True)",
               "ppermute(x, 'a', [(0, 1), (1, 0)])", "ppermute(x, 'a', [(0, 1), (2, 1)])",
               "ppermute(x, 'a', [(0, 1), (0, 2)])", "axis_index('a') * x", "axis_index('q') * x",
               "axis_size('b') * x", "pshuffle(x, 'b', [1, 0])", "pshuffle(x, 'b', [1, 1])")
OTHERS = (
    "Mesh(np.array(devices), ('a', 'b'))", "Mesh([1, 2], 'a')", "make_mesh((3, 5), ('a', 'b'))",
    "make_mesh((2,), ('a', 'b'))", "make_mesh((8,), ('a',))", "AbstractMesh((4, 2), ('a', 'b'))",
    "Mesh(np.array([devices[0]] * 2), 'a')", "Mesh(np.array(devices).reshape(2, 4), ('a', 'a'))",
    "put(X, N(P('a'))) + put(X, devices[0])", "put(X, devices[1]) + put(X, devices[0])",
    "put({'a': X}, {'b': N(P())})", "put(X, 'nonsense')", "put([X, X], [N(P('a')), devices[1]])",
    "jit(lambda x: x, in_shardings=N(P('a')))(put(X, N(P('b'))))",
    "jit(lambda x, y: x, in_shardings=(N(P('a')),))(X, X)",
    "jit(lambda x: x, out_shardings=(N(P('a')), N(P())))(X)",
    "jit(lambda x: lax.with_sharding_constraint(x, HALF))(put(X, N(P('a'))))",
    "callback((8, 8), N(P('a')), lambda i: X[:1])", "callback((6, 8), N(P('a')), lambda i: X[i])",
    "joined((8, 8), N(P('a')), [put(X[:2], devices[0])])",
    "pmap(lambda x: x)(X[[0] * 9])", "pmap(lambda x, y: x + y)(X, X[:4])", "pmap(lambda: 1)()",
    "pmap(lambda x: x, in_axes=None)(X)", "pmap(lambda x, y: x, in_axes=(0,))(X, X)",
    "pmap(lambda x: x, static_broadcasted_argnums=3)(X)", "pmap(lambda x: x, out_axes=(0, 0))(X)",
    "pmap(lambda x: x, out_axes=None)(X)", "pmap(lambda x: lax.psum(x, 'j'), 'i')(X)",
    "pmap(lambda x, n: x * n, static_broadcasted_argnums=1)(X, 3)", "lax.psum(X, 'a')",
    "lax.axis_index('a')",
    "sm(lambda x: (x, x), P(), (P(),))(X)", "sm(lambda x: x.sum(), P('a'), P('a'))(X)",
    "sm(lambda x: x, (P(), P()), P())(X)",
    "sm(lambda x: x, P('a'), P('a'), axis_names={'q'})(X)", "sm(lambda x: x, P(), None)(X)",
    "sm(3, P(), P())(X)", "sm(lambda x: 'text', P(), P())(X)", "sm(lambda x: x, P(), P())(x=X)",
    "sm(lambda x: x, P('a'), P('a'))(put(X, devices[3]))",
    "sm(lambda x: x, P('a'), P(), check_vma=False)(X)", "shard_map(lambda x: x, in_specs=P(), "
    "out_specs=P())(X)", "shard_map(lambda x: x, mesh=3, in_specs=P(), out_specs=P())(X)")

# What differs, and why.
MEANT = {
    "Mesh(np.array([devices[0]] * 2), 'a')": "a device twice is an error, as it cannot be meant",
    "Mesh(np.array(devices).reshape(2, 4), ('a', 'a'))": "so is a name twice",
    "Mesh([1, 2], 'a')": "JAX's AttributeError is of its inside",
    "NamedSharding(MESH, 'a')": "JAX's AttributeError is of its inside",
    "NamedSharding(MESH, None)": "JAX's AttributeError is of its inside",
}


class Said(NamedTuple):
    """What a call gave: the builtin classes of its error, none for a value; and a message."""

    classes: tuple[str, ...]
    text: str


def calls() -> Iterator[str]:
    """Yield expressions."""
    for spec in SPECS:
        yield f"NamedSharding(MESH, {spec})"
        if spec not in ("'a'", "None"):
            for x in SHAPES:
                yield f"put({x}, N({spec}))"
                yield f"sm(lambda x: 2 * x, {spec}, {spec})({x})"
                yield f"jit(lambda x: lax.with_sharding_constraint(x, N({spec})))({x})"
                yield f"jit(lambda x: 2 * x, out_shardings=N({spec}))({x})"
        for f in ("lax.with_sharding_constraint(X, {})", "put(X, {})",
                  "jit(lambda x: x, in_shardings={})(X)", "sm(lambda x: x, {}, P())(X)"):
            if spec != "None":
                yield f.format(spec)
    for routine, spec in itertools.product(COLLECTIVES, ("P('a', 'b')", "P()")):
        yield f"sm(lambda x: lax.{routine}, P('a', 'b'), {spec})(X)"
    yield from OTHERS


def run(lib: Any) -> tuple[dict[str, Said], dict[str, set[str]]]:
    """Return what each call gave, and the public names of classes."""
    sharding = lib.sharding
    mesh = sharding.Mesh(np.array(lib.devices()).reshape(4, 2), ("a", "b"))
    half = sharding.Mesh(np.array(lib.devices()[:4]), ("a",))
    p = sharding.PartitionSpec
    words: dict[str, Any] = dict(
        np=np, X=np.arange(64, dtype=np.float32).reshape(8, 8), P=p, MESH=mesh, lax=lib.lax,
        Mesh=sharding.Mesh, AbstractMesh=sharding.AbstractMesh, make_mesh=lib.make_mesh,
        NamedSharding=sharding.NamedSharding, devices=lib.devices(), put=lib.device_put,
        jit=lib.jit, pmap=lib.pmap, shard_map=lib.shard_map,
        N=lambda spec: sharding.NamedSharding(mesh, spec),
        HALF=sharding.NamedSharding(half, p("a")), callback=lib.make_array_from_callback,
        joined=lib.make_array_from_single_device_arrays,
        sm=lambda f, i, o, **options: lib.shard_map(f, mesh=mesh, in_specs=i, out_specs=o,
                                                    **options))
    out = {}
    for call in calls():
        try:
            out[call] = Said((), repr(lib.block_until_ready(eval(call, dict(words)))))
        except Exception as error:
            classes = [c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"]
            out[call] = Said(tuple(classes), str(error))
    of_classes = {"Mesh": mesh, "NamedSharding": words["HALF"], "PartitionSpec": p("a"),
                  "SingleDeviceSharding": sharding.SingleDeviceSharding(lib.devices()[0])}
    names = {name: {word for word in dir(x) if not word.startswith("_")}
             for name, x in of_classes.items()}
    return out, names


def agree(ours: Said, theirs: Said) -> bool:
    """Return whether both give a value, or fnx's error is of the class of JAX's."""
    if not theirs.classes or not ours.classes:
        return theirs.classes == ours.classes
    return theirs.classes[0] in ours.classes or theirs.text == ""  # an assertion inside of JAX


def run_in_fnx() -> tuple[dict[str, Said], dict[str, set[str]]]:
    """Return what fnx gives, on 8 devices."""
    import fnx
    return run(SimpleNamespace(**{name: getattr(fnx, name) for name in (
        "sharding", "devices", "lax", "make_mesh", "device_put", "jit", "pmap", "shard_map",
        "make_array_from_callback", "make_array_from_single_device_arrays",
        "block_until_ready")}))
