"""Bad input inside transforms: each error has a class, the user's line, the path of the leaf,
advice, and every enclosing transform with its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support import errors
from fnx.core.support.config import override
from fnx.custom_batching import custom_vmap
from fnx.experimental import io_callback

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LIKE = {"a": fnx.ShapeDtypeStruct((2, 3), "float32")}


def boom(*args: Any) -> Any:
    raise KeyError("boom")


def same(x: Any) -> Any:
    return x


def vjp(fwd: Any, bwd: Any = lambda saved, ct: (ct,), f: Any = same) -> Callable[[Any], Any]:
    rule = fnx.custom_vjp(f)
    rule.defvjp(fwd, bwd)
    return lambda x: fnx.grad(lambda x: rule(x).sum())(x)


def backward(bwd: Any) -> Callable[[Any], Any]:
    return vjp(lambda x: (x, None), bwd)


def jvp(along: Any) -> Callable[[Any], Any]:
    rule = fnx.custom_jvp(same)
    rule.defjvp(along)
    return lambda x: fnx.jvp(rule, (x,), (x,))


def batches(rule: Any) -> Callable[[Any], Any]:
    f = custom_vmap(lambda x: {"a": x})
    f.def_vmap(rule)
    return fnx.vmap(f)


def _with_batch(f: Any, rule: Any = lambda n, b, x: (x, True)) -> Any:
    ruled = custom_vmap(f)
    ruled.def_vmap(rule)
    return ruled


_with_effect = fnx.custom_jvp(same)
_with_effect.defjvp(lambda p, t: (p[0], (fnx.debug.callback(same, t[0]), t[0])[1]))


# name: (what the user writes, class, part of the message, part of the advice)
CASES: dict[str, tuple[Callable[[Any], Any], type[Exception], str, str]] = {
    "carry of another structure": (
        lambda x: lax.scan(lambda c, _: ({**c, "b": c["a"]}, None), {"a": x}, None, 3),
        errors.PytreeError, r"expected \{'a': \*\}, got \{'a': \*, 'b': \*\}", "same containers"),
    "carry of another shape": (
        lambda x: lax.scan(lambda c, _: ({"a": c["a"][:1]}, None), {"a": x}, None, 3),
        errors.ShapeError, r"carry\['a'\] .*float32\[2, 3\], got float32\[1, 3\]", "initial value"),
    "carry of another dtype": (
        lambda x: lax.scan(lambda c, _: ({"a": c["a"] > 0}, None), {"a": x}, None, 3),
        errors.DTypeError, r"carry\['a'\] .*float32\[2, 3\], got bool\[2, 3\]", "astype"),
    "carry of a while_loop": (
        lambda x: lax.while_loop(lambda c: True, lambda c: {"a": c["a"].sum()}, {"a": x}),
        errors.ShapeError, r"carry\['a'\] .*got float32\[\]", "shape"),
    "structure of a while_loop": (
        lambda x: lax.while_loop(lambda c: True, lambda c: (c,), x),
        errors.PytreeError, r"expected \*, got \(\*,\)", "same containers"),
    "carry of a fori_loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: c.sum(), x),
        errors.ShapeError, r"carry of .*float32\[2, 3\], got float32\[\]", "shape"),
    "lengths that differ": (
        lambda x: lax.scan(lambda c, r: (c, r["a"]), 0.0, {"a": x, "b": x[:1]}),
        errors.ShapeError, r"2 of xs\['a'\] and 1 of xs\['b'\]", "leading axis"),
    "another length": (
        lambda x: lax.scan(lambda c, r: (c, r), 0.0, {"a": x}, 5),
        errors.ShapeError, r"5 of length= and 2 of xs\['a'\]", "leading axis"),
    "no length": (lambda x: lax.scan(lambda c, r: (c, r), 0.0, None),
                  errors.ArgumentError, "or a length, got neither", "length="),
    "no pair": (lambda x: lax.scan(lambda c, r: c, 0.0, x),
                errors.PytreeError, r"\(carry, output of the step\)", r"return \(carry, None\)"),
    "a predicate that is no scalar": (
        lambda x: lax.cond(x > 0, lambda: 1, lambda: 2),
        errors.ShapeError, r"got bool\[2, 3\]", r"\.any\(\)"),
    "a condition that is no scalar": (
        lambda x: lax.while_loop(lambda c: c > 0, same, x),
        errors.ShapeError, r"got bool\[2, 3\]", "one comparison"),
    "a condition that is a tuple": (
        lambda x: lax.while_loop(lambda c: (True,), same, x),
        errors.PytreeError, r"got \(\*,\)", "one comparison"),
    "branches of different shapes": (
        lambda x: lax.cond(True, lambda: {"a": x}, lambda: {"a": x[:1]}),
        errors.ShapeError, r"float32\[1, 3\] .*result\['a'\]", "broadcast"),
    "branches of different dtypes": (
        lambda x: lax.cond(True, lambda: {"a": x}, lambda: {"a": x > 0}),
        errors.DTypeError, r"bool\[2, 3\] .*result\['a'\]", "astype"),
    "branches of different structures": (
        lambda x: lax.switch(0, [lambda: (x, x), lambda: [x, x]]),
        errors.PytreeError, r"expected \(\*, \*\), got \[\*, \*\]", "same containers"),
    "a branch with more parameters": (
        lambda x: lax.cond(True, lambda a, b: a, same, x),
        errors.ArgumentError, "missing a required argument: 'b'", "the parameters are a, b"),
    "out_axes beyond the result": (
        lambda x: fnx.vmap(lambda r: {"a": r.sum()}, out_axes={"a": 2})(x),
        errors.AxisError, r"result\['a'\], float32\[\]: expected out_axes from -1 to 0, got 2",
        "one more axis"),
    "out_axes of another structure": (
        lambda x: fnx.vmap(lambda r: {"a": r.sum()}, out_axes=(0, 1))(x),
        errors.PytreeError, r"a tree like \{'a': \*\} at the root, got \(0, 1\)", "applies to all"),
    "out_axes=None of what differs": (
        lambda x: fnx.vmap(lambda r: {"a": r}, out_axes=None)(x),
        errors.ArgumentError, r"result\['a'\], float32\[3\]: expected an unbatched result",
        "give an axis"),
    "vmap over nothing": (lambda x: fnx.vmap(same, in_axes=None)(x), errors.ArgumentError,
                          "at least one mapped argument, got none", "axis_size="),
    "vmap of no arguments": (lambda x: fnx.vmap(lambda: x)(), errors.ArgumentError,
                             "at least one mapped argument, got none", "axis_size="),
    "in_axes beyond the argument": (
        lambda x: fnx.vmap(same, in_axes=3)({"a": x}),
        errors.AxisError, r"axis 3 to map over at args\[0\]\['a'\], got float32\[2, 3\]",
        "in_axes"),
    "sizes that differ": (
        lambda x: fnx.vmap(lambda r, s: r)({"a": x}, {"b": x.T}), errors.ShapeError,
        r"2 at args\[0\]\['a'\] .*3 at args\[1\]\['b'\]", "in in_axes"),
    "an axis that is not open": (
        lambda x: fnx.vmap(lambda r: lax.psum(r, "j"), axis_name="i")(x), errors.AxisNameError,
        r"got 'j'; open are: 'i' of vmap of <lambda> \(.*test_bad_transforms.py:\d+\)",
        "axis_name='j'"),
    "no axis at all": (lambda x: lax.axis_index("j"), errors.AxisNameError, "open are: none",
                       "axis_name='j'"),
    "fwd without a pair": (vjp(same), errors.RuleError, r"a pair \(result, saved\), got Array",
                           "return result, saved"),
    "fwd of another shape": (vjp(lambda x: (x[:1], None)), errors.RuleError,
                             r"float32\[2, 3\], got float32\[1, 3\]", "what the function returns"),
    "fwd of another structure": (vjp(lambda x: ((x,), None)), errors.RuleError,
                                 r"like the function, \*, got \(\*,\)", "what the function"),
    "fwd that saves no arrays": (vjp(lambda x: (x, {"k": "text"})), errors.RuleError,
                                 r"at saved\['k'\], got str", "nondiff_argnums"),
    "fwd with other parameters": (vjp(lambda: None), errors.RuleError,
                                  "to take 1 arguments by position", "parameters of the function"),
    "bwd without a tuple": (backward(lambda saved, ct: ct), errors.RuleError,
                            "a tuple of 1, .* got Array", r"return \(ct,\)"),
    "bwd with too many": (backward(lambda saved, ct: (ct, ct)), errors.RuleError,
                          "got tuple of 2", r"return \(ct,\)"),
    "bwd of another shape": (backward(lambda saved, ct: (ct[:1],)), errors.RuleError,
                             r"cotangent\[0\] .*float32\[2, 3\], got float32\[1, 3\]", "reduce"),
    "bwd of another dtype": (backward(lambda saved, ct: (ct > 0,)), errors.RuleError,
                             r"cotangent\[0\] .*got bool\[2, 3\]", "convert"),
    "bwd with other parameters": (backward(lambda saved: (saved,)), errors.RuleError,
                                  "to take 2 arguments by position", r"bwd\(saved, ct\)"),
    "bwd of another structure": (
        lambda x: vjp(lambda x: (x["a"], None), lambda _, ct: ({"b": ct},), lambda x: x["a"])(
            {"a": x}), errors.RuleError, r"\{'a': \*\}, got \{'b': \*\}", "None means zero"),
    "jvp without a pair": (jvp(lambda p, t: t[0]), errors.RuleError,
                           r"a pair \(result, tangent\), got Array", "return result, tangent"),
    "jvp with other parameters": (jvp(lambda p: p), errors.RuleError,
                                  "to take 2 arguments by position", r"rule\(primals, tangents\)"),
    "a tangent of another shape": (jvp(lambda p, t: (p[0], t[0][:1])), errors.RuleError,
                                   r"float32\[2, 3\], got float32\[1, 3\]", "reduce"),
    "tangents of another structure": (jvp(lambda p, t: (p[0], (t[0],))), errors.RuleError,
                                      r"like the results, \*, got \(\*,\)", "a tangent for each"),
    "a jvp of another result": (jvp(lambda p, t: (p[0][:1], t[0])), errors.RuleError,
                                r"float32\[2, 3\], got float32\[1, 3\]", "what the function"),
    "a batch without a pair": (batches(lambda n, b, x: x), errors.RuleError,
                               r"a pair \(result, out_batched\)", "return result, out_batched"),
    "a batch of another shape": (batches(lambda n, b, x: ({"a": x[:1]}, True)), errors.RuleError,
                                 r"result\['a'\] .*got float32\[1, 3\]", "what the function"),
    "flags of another structure": (batches(lambda n, b, x: ({"a": x}, (True, True))),
                                   errors.RuleError, r"\(True, True\)", "whether it has a batch"),
    "a batch that closes over what each lane has": (
        lambda x: fnx.vmap(lambda y: _with_batch(same, lambda n, b, z: (z + y, True))(y))(x),
        errors.RuleError, "unbatched values only, got a batched array",
        "pass it as an argument"),
    "a jvp that says its tangent, in reverse mode": (
        lambda x: fnx.grad(lambda x: _with_effect(x).sum())(x), errors.GradError,
        "effects that read no tangent, got debug.callback", "give the function a vjp"),
    "no rule": (lambda x: fnx.custom_vjp(same)(x), errors.RuleError, "expected rules for same",
                r"call defvjp\(fwd, bwd\)"),
    "an equation of another structure": (
        lambda x: lax.custom_linear_solve(lambda v: (v,), x, lambda m, b: b),
        errors.PytreeError, r"its argument, \*; got \(\*,\)", "at the root"),
    "fewer equations than unknowns": (
        lambda x: lax.custom_root(lambda v: v.sum(), x, lambda f, g: g, lambda g, y: y),
        errors.ShapeError, r"\[2, 3\] at the root; got \[\]", "as many equations"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str) -> None:
    f, kind, said, advice = CASES[name]
    with pytest.raises(kind) as error:
        fnx.jit(fnx.vmap(lambda y: f(X + y)))(np.zeros(2, np.float32))
    text, line = str(error.value), r"\([^()]*test_bad_transforms.py:\d+\)"
    assert re.match(r".*test_bad_transforms.py:\d+: ", text), text
    assert re.search(said, text), text
    assert re.search(f"Fix: .*{advice}", text), text
    assert re.search(rf"\n  Inside .*vmap of <lambda> {line} in jit of vmap\(<lambda>\) {line}\n",
                     text), text


CALLBACKS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "raises": (lambda x: io_callback(boom, LIKE, x), "boom raised KeyError: 'boom'", "see the"),
    "print that raises": (lambda x: fnx.debug.callback(boom, x), "boom raised KeyError", "see the"),
    "another shape": (lambda x: io_callback(lambda x: {"a": x[:1]}, LIKE, x),
                      r"float32\[2, 3\] at \['a'\] as result, got float32\[1, 3\]",
                      "return arrays"),
    "another dtype": (lambda x: fnx.pure_callback(lambda x: {"a": np.asarray(x, np.int32)}, LIKE,
                                                  x, vmap_method="sequential"),
                      r"float32\[2, 3\] at \['a'\] as result, got int32\[2, 3\]", "return arrays"),
    "another structure": (lambda x: io_callback(lambda x: [x], LIKE, x),
                          r"structure \{'a': \*\}, got \[\*\]", "return arrays"),
    "nothing": (lambda x: io_callback(lambda x: None, LIKE, x), "got None", "return arrays"),
}


@pytest.mark.parametrize("device", ["interp", "cpu"])
@pytest.mark.parametrize("name", CALLBACKS)
def test_callbacks(name: str, device: str) -> None:
    f, said, advice = CALLBACKS[name]
    with override(device=device):
        for g in (lambda x: f(x), fnx.jit(lambda x: f(x)), fnx.jit(fnx.vmap(lambda y: f(X + y)))):
            given = np.zeros(2, np.float32) if isinstance(g, type(fnx.jit(f))) and \
                "vmap" in g.__name__ else X
            with pytest.raises(errors.CallbackError) as error:
                fnx.tree.map(np.asarray, g(given))
                fnx.effects_barrier()
            text = str(error.value)
            assert re.match(r".*test_bad_transforms.py:\d+: ", text), text
            assert re.search(said, text), text
            assert re.search(f"Fix: .*{advice}", text), text
            np.testing.assert_array_equal(fnx.jit(jnp.negative)(X), -X), "what comes next is well"
