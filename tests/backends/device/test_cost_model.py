"""The work estimate grows with extents, and accounts for vectors and run-time extents."""

from hypothesis import given
from hypothesis import strategies as st

from fnx.backends.device.cost_model import MEMORY_BYTE_NS, estimate_ns
from fnx.core.ir import build, dtypes, ops
from tests.backends import kit


@given(st.integers(1, 10**6), st.integers(2, 50))
def test_it_is_proportional_to_the_extent(n, times):
    one, many = (estimate_ns(kit.scaled(m)[0], {}) for m in (n, n * times))
    assert one > 0 and abs(many / one - times) < 1e-6 * times


def _sum(kind, n):
    i = build.range_(n, 0, kind)
    x, o = build.ref(0, dtypes.float32, (n,)), build.ref(1, dtypes.float32, ())
    total = build.reduce_ranges(build.load(build.index_into(x, i)), ops.ADD, (i,))
    return build.kernel([build.store(build.index_into(o), total)], "sum", (0,))


def test_vector_code_is_faster():
    assert estimate_ns(_sum("SEQ", 1600), {}) > 8 * estimate_ns(_sum("VEC", 1600), {})


def test_extents_known_at_run_time():
    kernel = _sum("SEQ", build.var(0, dtypes.index, name="n"))
    small, large = (estimate_ns(kernel, {0: n}) for n in (100, 10_000))
    assert 50 * small < large and estimate_ns(kernel, {0: 0}) < small


def test_inner_loops_count_for_what_they_enclose():
    """A GEMM's k loop is n times the work of its stores."""
    n = 64
    i, j, k = (build.range_(n, a) for a in range(3))
    x, w, o = (build.ref(s, dtypes.float32, (n, n)) for s in range(3))
    product = build.mul(build.load(build.index_into(x, i, k)),
                        build.load(build.index_into(w, k, j)))
    total = build.reduce_ranges(product, ops.ADD, (k,))
    kernel = build.kernel([build.store(build.index_into(o, i, j), total)], "gemm", (0, 1, 2))
    assert n**3 / 2 < estimate_ns(kernel, {}) < 4 * n**3


def test_what_is_far_from_the_processor_takes_its_time():
    """Vector code over data that exceeds the caches waits for memory."""
    i = build.range_(1 << 24, 0, "VEC")
    x, o = (build.index_into(build.ref(s, dtypes.float32, (1 << 24,)), i) for s in (0, 1))
    copy = build.kernel([build.store(o, build.load(x))], "copy", (0,))
    assert estimate_ns(copy, {}) == 2 * (1 << 26) * MEMORY_BYTE_NS


@given(st.integers(1, 10**6))
def test_what_is_read_again_is_moved_once(times):
    i, j = build.range_(64, 0, "VEC"), build.range_(times, 1)
    x, o = (build.ref(s, dtypes.float32, (64,)) for s in (0, 1))
    total = build.reduce_ranges(build.load(build.index_into(x, i)), ops.ADD, (j,))
    kernel = build.kernel([build.store(build.index_into(o, i), total)], "again", (0, 1))
    assert estimate_ns(kernel, {}) < 64 * times + 64
