"""Backward rules that use references: they run against the order of the function."""

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.errors import ArgumentError, RuleError
from fnx.experimental import checkify


@fnx.custom_vjp
def log_gradient(x, ref):
    return x


def log_forward(x, ref):
    return x, ref


def log_backward(ref, ct):
    ref[...] = ct
    return ct, None


log_gradient.defvjp(log_forward, log_backward)


@fnx.custom_vjp
def add_gradient(x, ref):
    return x


def add_backward(ref, ct):
    ref.addupdate(ct)
    return ct, None


add_gradient.defvjp(log_forward, add_backward)


@fnx.custom_vjp
def write_row(x, i, ref):
    return x


def row_backward(saved, ct):
    i, ref = saved
    ref[i] = ct
    return ct, None, None


write_row.defvjp(lambda x, i, ref: (x, (i, ref)), row_backward)


def zero():
    return fnx.new_ref(jnp.float32(0))


def test_grad_writes_the_cotangent():
    ref = zero()
    got = fnx.grad(lambda x: jnp.sin(log_gradient(x, ref)))(1.0)
    assert got == ref[...] == jnp.cos(1.0)


def test_value_and_grad_has_aux_and_several_arguments():
    ref = zero()

    def f(x, y):
        return log_gradient(x, ref) * y, x + y

    (value, aux), (gx, gy) = fnx.value_and_grad(f, (0, 1), has_aux=True)(2.0, 3.0)
    assert (value, aux, gx, gy, ref[...]) == (6.0, 5.0, 3.0, 2.0, 3.0)


@pytest.mark.parametrize("wrap", [
    lambda f: fnx.grad(fnx.jit(f)), lambda f: fnx.jit(fnx.grad(f)),
    lambda f: fnx.grad(fnx.checkpoint(f)), lambda f: fnx.jit(fnx.grad(fnx.jit(f)))])
def test_under_jit_and_checkpoint(wrap):
    ref = zero()
    f = wrap(lambda x: jnp.sin(log_gradient(x, ref)))
    for x in (1.0, 2.0):
        assert f(x) == ref[...] == jnp.cos(x)


def test_a_call_without_a_derivative_first():
    ref = zero()
    f = fnx.jit(lambda x: jnp.sin(log_gradient(x, ref)))
    f(1.0)
    assert ref[...] == 0
    fnx.grad(f)(1.0)
    assert ref[...] == jnp.cos(1.0)


def test_rules_run_in_the_reverse_order():
    ref = zero()
    fnx.grad(lambda x: 3 * log_gradient(2 * log_gradient(x, ref), ref))(1.0)
    assert ref[...] == 6
    total = zero()
    fnx.grad(lambda x: add_gradient(x, total) * add_gradient(2 * x, total))(3.0)
    assert total[...] == 9


def test_in_a_scan():
    ref = fnx.new_ref(jnp.zeros(3))

    def f(x):
        return lax.scan(lambda c, i: (2 * write_row(c, i, ref), None), x, jnp.arange(3))[0]
    assert fnx.grad(f)(1.0) == 8
    assert ref[...].tolist() == [8, 4, 2]


def test_in_a_branch():
    ref = zero()

    def f(x, p):
        return lax.cond(p, lambda x: 5 * log_gradient(x, ref), lambda x: x, x)
    f = fnx.jit(fnx.grad(f))
    f(1.0, False)
    assert ref[...] == 0
    f(1.0, True)
    assert ref[...] == 5


def test_a_rule_reads_what_the_function_has_written():
    ref = zero()

    @fnx.custom_vjp
    def f(x):
        return x

    def bwd(_, ct):
        ref[...] = 10 * ref[...]
        return ct * ref[...],

    f.defvjp(lambda x: (x, None), bwd)

    def g(x):
        y = f(x)
        ref[...] = x
        return y
    assert fnx.grad(g)(2.0) == 20
    assert ref[...] == 20


def test_forward_rules_write_too():
    ref = zero()

    @fnx.custom_vjp
    def f(x, ref):
        return x

    def fwd(x, ref):
        ref[...] = x
        return x, ref

    def bwd(ref, ct):
        ref[...] = ref[...] + ct
        return ct, None

    f.defvjp(fwd, bwd)
    fnx.grad(lambda x: 4 * f(x, ref))(2.0)
    assert ref[...] == 6


def test_an_integer_counts_calls():
    count = fnx.new_ref(jnp.int32(0))

    @fnx.custom_vjp
    def f(x):
        return x

    def bwd(_, ct):
        count[...] = count[...] + 1
        return ct,

    f.defvjp(lambda x: (x, None), bwd)
    fnx.grad(lambda x: f(f(f(x))))(1.0)
    assert count[...] == 3


def test_a_pullback_writes_when_it_is_called():
    ref = zero()
    _, pull = fnx.vjp(lambda x: 2 * log_gradient(x, ref), 1.0)
    assert ref[...] == 0
    assert pull(5.0) == (10.0,)
    assert ref[...] == 10
    fnx.jit(lambda ct: pull(ct)[0])(1.0)
    assert ref[...] == 2


def test_of_each_element():
    refs = fnx.new_ref(jnp.zeros(2))
    g = fnx.vmap(lambda x, ref: fnx.grad(lambda x: x * log_gradient(x, ref))(x))
    assert g(jnp.array([1.0, 2.0]), refs).tolist() == [2, 4]
    assert refs[...].tolist() == [1, 2]


def test_second_derivatives():
    ref = zero()
    assert fnx.grad(fnx.grad(lambda x: log_gradient(x, ref) ** 3))(2.0) == 12
    assert ref[...] == 12  # the first derivative


@pytest.mark.parametrize("transform", [
    lambda f: fnx.jacrev(f)(1.0), lambda f: fnx.jvp(f, (1.0,), (1.0,)),
    lambda f: fnx.linearize(f, 1.0), lambda f: fnx.hessian(f)(1.0)])
def test_other_derivatives_refuse(transform):
    ref = zero()
    with pytest.raises(ArgumentError, match="backward rules that use a reference"):
        transform(lambda x: log_gradient(x, ref) ** 2)


def test_batch_elements_have_no_order():
    ref = zero()
    with pytest.raises(ArgumentError, match="a vmapped function"):
        fnx.grad(lambda xs: fnx.vmap(lambda x: log_gradient(x, ref))(xs).sum())(jnp.ones(2))


def test_a_reference_that_is_made_inside():
    def f(x):
        return log_gradient(x, fnx.new_ref(jnp.float32(0)))
    with pytest.raises(RuleError, match="outside of the derivative"):
        fnx.grad(f)(1.0)


def test_checks_in_a_backward_rule():
    @fnx.custom_vjp
    def f(x):
        return x

    def bwd(_, ct):
        checkify.check(ct < 3, "large cotangent {}", ct)
        return ct,

    f.defvjp(lambda x: (x, None), bwd)
    g = checkify.checkify(lambda x, y: fnx.grad(lambda x: f(x) * y)(x))
    assert g(1.0, 2.0)[0].get() is None
    assert "large cotangent 4.0" in g(1.0, 4.0)[0].get()


def test_rows_of_a_reference_that_a_scan_goes_over():
    refs = fnx.new_ref(jnp.zeros(3))

    def f(x, refs):
        return lax.scan(lambda x, ref: (2 * log_gradient(x, ref), None), x, refs)[0]
    fnx.grad(f)(1.0, refs)
    assert refs[...].tolist() == [8, 4, 2]
    fnx.jit(fnx.grad(f))(3.0, refs)
    assert refs[...].tolist() == [8, 4, 2]


def test_a_reference_that_is_an_argument_of_a_jitted_function():
    ref = zero()
    f = fnx.jit(lambda x, ref: jnp.sin(log_gradient(x, ref)))
    for x in (1.0, 2.0):
        fnx.grad(f)(x, ref)
        assert ref[...] == jnp.cos(x)
    other = zero()
    fnx.jit(fnx.grad(f))(3.0, other)
    assert other[...] == jnp.cos(3.0) and ref[...] == jnp.cos(2.0)
