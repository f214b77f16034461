"""The builder of native loops: the printed IR computes what was built."""

import ctypes

from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends.llvm import binding as llvm
from fnx.backends.llvm.ir_builder import IRFunction, ir_function

words = st.integers(-(1 << 63), (1 << 63) - 1)


def compiled(f: IRFunction):
    library = llvm.link([(llvm.compile_ir(f.text(), llvm.host_target()), [f.name])])
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(f.params))
    call = prototype(library.addresses[f.name])
    call.library = library
    return call


def test_nested_loops_leave_and_start_again():
    """Counts pairs (i, j), i < n, j < i, with i odd."""
    @ir_function
    def count_pairs(f, n):
        total, i = f.variable(0), f.variable(0)
        with f.loop():
            i.set(f.add(i.get(), 1))
            with f.when("uge", i.get(), n):
                f.leave()
            with f.when("eq", f.binary("and", i.get(), 1), 0):
                f.continue_loop()
            with f.count(i.get()):
                total.set(f.add(total.get(), 1))
        f.ret(total.get())
    pairs = compiled(count_pairs())
    for n in range(12):
        assert pairs(n) == sum(i for i in range(n) if i % 2)


@settings(max_examples=30)
@given(st.lists(words, min_size=1, max_size=20), words)
def test_memory_and_unsigned_order(values, limit):
    """Adds the words that are less than a limit, compared as unsigned integers."""
    total = _sum_below((ctypes.c_int64 * len(values))(*values), len(values), limit)
    mask = (1 << 64) - 1
    want = sum(v for v in values if v & mask < limit & mask)
    assert total & mask == want & mask


@ir_function
def _emit_sum_below(f, memory, count, limit):
    total = f.variable(0)
    with f.count(count) as i:
        value = f.load(memory, i)
        with f.when("ult", value, limit):
            total.set(f.add(total.get(), value))
    f.ret(total.get())


def _make_sum_below():
    call = compiled(_emit_sum_below())
    return lambda memory, n, limit: call(ctypes.addressof(memory), n, limit)


_sum_below = _make_sum_below()


def test_atomics_count_and_swap():
    @ir_function
    def add_and_swap(f, memory):
        old = f.fetch_add(memory, 0, 5)
        with f.if_then(f.compare_exchange(memory, 1, 7, 8)):
            f.ret(old)
        f.ret(-1)
    atomics = compiled(add_and_swap())
    memory = (ctypes.c_int64 * 2)(10, 7)
    assert atomics(ctypes.addressof(memory)) == 10 and list(memory) == [15, 8]
    assert atomics(ctypes.addressof(memory)) == -1 and list(memory) == [20, 8]


def test_code_behind_a_jump_is_dropped():
    f = IRFunction("early", ())
    f.ret(3)
    f.ret(f.add(1, 1))
    assert f.text().count("ret") == 1 and compiled(f)() == 3


def test_a_function_that_ends_without_a_value_returns_zero():
    @ir_function
    def early(f, x, *, limit):
        f.ret_if(7, "slt", x, limit)
    call = compiled(early(limit=3))
    assert [call(x) for x in (-1, 2, 3)] == [7, 7, 0] and call.library.addresses.keys() == {"early"}
