"""The builder of native loops: the printed IR computes what was built."""

import ctypes

from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends.llvm import binding as llvm
from fnx.backends.llvm.ir_builder import IRFunction

words = st.integers(-(1 << 63), (1 << 63) - 1)


def compiled(f: IRFunction):
    library = llvm.link([(llvm.compile_ir(f.text(), llvm.host_target()), [f.name])])
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(f.params))
    call = prototype(library.addresses[f.name])
    call.library = library
    return call


def test_nested_loops_leave_and_start_again():
    """Counts pairs (i, j), i < n, j < i, with i odd."""
    f = IRFunction("pairs", ("n",))
    total, i = f.variable(0), f.variable(0)
    with f.loop():
        i.set(f.add(i.get(), 1))
        with f.if_then(f.compare("uge", i.get(), f["n"])):
            f.leave()
        with f.if_then(f.compare("eq", f.binary("and", i.get(), 1), 0)):
            f.continue_loop()
        with f.count(i.get()):
            total.set(f.add(total.get(), 1))
    f.ret(total.get())
    pairs = compiled(f)
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


def _make_sum_below():
    f = IRFunction("sum_below", ("memory", "count", "limit"))
    total = f.variable(0)
    with f.count(f["count"]) as i:
        value = f.load(f["memory"], i)
        with f.if_then(f.compare("ult", value, f["limit"])):
            total.set(f.add(total.get(), value))
    f.ret(total.get())
    call = compiled(f)
    return lambda memory, n, limit: call(ctypes.addressof(memory), n, limit)


_sum_below = _make_sum_below()


def test_atomics_count_and_swap():
    f = IRFunction("atomics", ("memory",))
    old = f.fetch_add(f["memory"], 0, 5)
    with f.if_then(f.compare_exchange(f["memory"], 1, 7, 8)):
        f.ret(old)
    f.ret(-1)
    atomics = compiled(f)
    memory = (ctypes.c_int64 * 2)(10, 7)
    assert atomics(ctypes.addressof(memory)) == 10 and list(memory) == [15, 8]
    assert atomics(ctypes.addressof(memory)) == -1 and list(memory) == [20, 8]


def test_code_behind_a_jump_is_dropped():
    f = IRFunction("early", ())
    f.ret(3)
    f.ret(f.add(1, 1))
    assert f.text().count("ret") == 1 and compiled(f)() == 3
