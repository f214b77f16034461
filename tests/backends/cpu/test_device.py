"""The cpu device: results, any number of workers, concurrent submissions, threads, bad input."""

import ctypes
import gc
import threading
import weakref
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends.cpu import device, layout
from fnx.backends.device.base import get_device
from fnx.backends.llvm import binding as llvm
from fnx.core.ir import build, dtypes
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError, SpecError
from tests.backends import kit

LONG = 300  # repeats of a kernel on some 10,000 elements


@pytest.fixture(scope="module")
def cpu():
    return get_device("cpu")


def encoded(cpu, n, length=1, repeats=1, a=0.25, queued=True):
    """Encode repeated work; it is queued for the workers, unless the caller is to lead them."""
    with pytest.MonkeyPatch.context() as patched:
        if queued and repeats > 1:
            patched.setattr(device, "SHORT_NS", 0.0)
        return cpu.encode(*kit.chain(n, length, repeats, a))


def run(cpu, buffer, x):
    out = cpu.alloc(x.nbytes)
    buffer.submit([cpu.upload(x)], [out])
    return out


def values(n):
    return np.linspace(-1, 1, n, dtype=np.float32)


@settings(max_examples=40)
@given(n=st.integers(1, 3000), length=st.integers(1, 5), a=st.floats(-2, 2, width=32))
def test_chains_through_the_arena(n, length, a):
    cpu = get_device("cpu")
    out = run(cpu, encoded(cpu, n, length, 1, a), values(n))
    np.testing.assert_array_equal(out.view(np.float32, (n,)), kit.expected(values(n), a, length))


@pytest.mark.cases(2)
@pytest.mark.parametrize("queued", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 31, 1000, 10_007])
def test_any_number_of_workers_gives_the_same_bits(cpu, n, queued):
    buffer = encoded(cpu, n, 3, 60_000 // n, queued=queued)
    results = []
    for workers in (1, 2, 3, 5, 2):
        with override(workers=workers):
            results.append(run(cpu, buffer, values(n)).view(np.float32, (n,)).tobytes())
    assert len(set(results)) == 1
    if n <= 1000:
        want = kit.expected(values(n), 0.25, 3 * (60_000 // n))
        assert results[0] == want.tobytes()


def test_all_chunks_are_run_once(cpu):
    """The work is long enough for every worker to take part; each element is checked."""
    n = 100_003
    buffer = encoded(cpu, n, 2, 20)
    want = kit.expected(values(n), 0.25, 40)
    with override(workers=3):
        for _ in range(5):
            np.testing.assert_array_equal(
                run(cpu, buffer, values(n)).view(np.float32, (n,)), want)


def test_two_submissions_in_flight(cpu):
    n = 10_000
    buffer = encoded(cpu, n, 2, LONG)
    inputs = [values(n) + np.float32(i) for i in range(20)]
    outs = [run(cpu, buffer, x) for x in inputs]
    for x, out in zip(inputs, outs):
        np.testing.assert_array_equal(out.view(np.float32, (n,)), kit.expected(x, 0.25, 2 * LONG))


def test_results_feed_later_submissions_in_order(cpu):
    """Long and short buffers alternate: a short one submitted after a long one does not run
    early."""
    n = 5000
    long, short = encoded(cpu, n, 1, LONG), encoded(cpu, n)
    storage = cpu.upload(values(n))
    for _ in range(6):
        for buffer in (long, short):
            out = cpu.alloc(4 * n)
            buffer.submit([storage], [out])
            storage = out
    np.testing.assert_array_equal(storage.view(np.float32, (n,)),
                                  kit.expected(values(n), 0.25, 6 * (LONG + 1)))


def test_more_submissions_than_the_ring_holds(cpu):
    n, count = 5000, 3 * layout.CAPACITY
    buffer = encoded(cpu, n, 1, 60)
    storage = cpu.upload(values(n))
    for _ in range(count):
        out = cpu.alloc(4 * n)
        buffer.submit([storage], [out])
        storage = out
    np.testing.assert_array_equal(storage.view(np.float32, (n,)),
                                  kit.expected(values(n), 0.25, 60 * count))


@pytest.mark.cases(2)
@pytest.mark.parametrize("repeats", [1, LONG])
@pytest.mark.parametrize("queued", [True, False])
def test_threads_hammer_one_buffer(cpu, repeats, queued):
    n = 4000
    buffer, failures = encoded(cpu, n, 2, repeats, queued=queued), []

    def work(seed: int) -> None:
        try:
            for i in range(40 if repeats == 1 else 8):
                x = values(n) * np.float32(seed + i)
                got = run(cpu, buffer, x).view(np.float32, (n,))
                np.testing.assert_array_equal(got, kit.expected(x, 0.25, 2 * repeats))
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_reentrant_submission_while_another_is_in_flight(cpu):
    """A callback (here a finalizer) of a submission submits the same buffer."""
    n = 1000
    buffer, seen = encoded(cpu, n, 2), []

    class Argument:
        def __init__(self, storage):
            self.storage = storage

        @property
        def ptr(self):
            if not seen:
                seen.append(run(cpu, buffer, values(n)).view(np.float32, (n,))[0])
            return self.storage.ptr

        timeline = 0

    run(cpu, buffer, values(n))
    out = cpu.alloc(4 * n)
    buffer.submit([Argument(cpu.upload(values(n) * 2))], [out])
    np.testing.assert_array_equal(out.view(np.float32, (n,)),
                                  kit.expected(values(n) * 2, 0.25, 2))
    assert seen == [kit.expected(values(n), 0.25, 2)[0]]


def jobs(cpu):
    """Return the number of jobs opened for the workers, by submissions and by callers."""
    return cpu.queue._workers.words[layout.JOB_NUMBER]


def test_a_caller_leads_the_workers_through_work_that_is_worth_it(cpu):
    n = 200_000
    buffer, x = encoded(cpu, n, 1, 16, queued=False), values(n)
    with override(workers=3):
        run(cpu, buffer, x)  # lays out memory, and starts the workers
        before, submitted = jobs(cpu), cpu.queue.submitted
        for _ in range(3):
            got = run(cpu, buffer, x).view(np.float32, (n,))
            np.testing.assert_array_equal(got, kit.expected(x, 0.25, 16))
        assert cpu.queue.submitted == submitted
        assert jobs(cpu) == before + 3


def test_a_caller_follows_the_number_of_workers_that_is_asked_for(cpu):
    n = 200_000
    buffer, x = encoded(cpu, n, 1, 16, queued=False), values(n)
    for workers, opened in ((2, 2), (1, 0), (2, 2), (3, 2)):  # back to 2: the first threads
        with override(workers=workers):
            run(cpu, buffer, x)
            before = jobs(cpu)
            for _ in range(2):
                run(cpu, buffer, x)
            assert jobs(cpu) == before + opened
            assert workers == 1 or cpu.queue._workers.count == workers


def test_a_caller_runs_alone_where_another_leads(cpu):
    """The mutex is locked as if by another caller."""
    n = 200_000
    buffer, x = encoded(cpu, n, 1, 16, queued=False), values(n)
    with override(workers=2):
        run(cpu, buffer, x)
        before, process = jobs(cpu), ctypes.CDLL(None)
        mutex = ctypes.c_void_p(cpu.queue._workers.address + 8 * layout.LEADER)
        assert process.pthread_mutex_lock(mutex) == 0
        try:
            got = run(cpu, buffer, x).view(np.float32, (n,))
        finally:
            process.pthread_mutex_unlock(mutex)
        np.testing.assert_array_equal(got, kit.expected(x, 0.25, 16))
        assert jobs(cpu) == before
        run(cpu, buffer, x)
        assert jobs(cpu) == before + 1


def test_a_caller_leads_again_once_what_was_given_up_has_come_back(cpu):
    stuck = mock.Mock(running="k", **{"returned.return_value": False})
    with override(workers=2):
        cpu.queue._abandoned.append((stuck, None))
        cpu.queue.ensure_workers(64)
        assert cpu.queue._queue_ptr.value == 0  # one processor is busy, so run alone
        stuck.returned.return_value = True
        cpu.queue.ensure_workers(64)
        assert cpu.queue._queue_ptr.value == cpu.queue._workers.address
    assert cpu.queue._abandoned == []


def test_one_argument_as_input_and_output(cpu):
    """A donated argument is updated in place."""
    storage = cpu.upload(values(500))
    encoded(cpu, 500).submit([storage], [storage])
    np.testing.assert_array_equal(storage.view(np.float32, (500,)), kit.expected(values(500), .25))


def test_unused_arguments_are_fine_and_missing_ones_are_not(cpu):
    buffer, x, out = encoded(cpu, 8), cpu.upload(values(8)), cpu.alloc(32)
    with pytest.raises(SpecError, match="expected 1 arguments of kind 'in', got 0"):
        buffer.submit([], [out])
    extra = cpu.alloc(4)
    for _ in range(2):
        buffer.submit([x, extra], [out, extra])
        np.testing.assert_array_equal(out.view(np.float32, (8,)), kit.expected(values(8), 0.25))
    with pytest.raises(SpecError, match="expected .2, 2. inputs and outputs, got .1, 2."):
        buffer.submit([x], [out, extra])


def test_slots_with_offsets(cpu):
    kernel, code = kit.scaled(16)
    one = build.const(1.0, dtypes.float32)
    commands = kit.commands(
        kit.execute(kernel, [kit.slot("in", 1, 64, 64), kit.slot("out", 0, 64)], one),
        kit.execute(kernel, [kit.slot("in", 0, 64), kit.slot("out", 0, 64, 64)], one))
    x, y = values(16), values(32) + np.float32(5)
    out = cpu.alloc(128)
    cpu.encode(commands, {kernel: code}, 0).submit([cpu.upload(x), cpu.upload(y)], [out])
    got = out.view(np.float32, (2, 16))
    np.testing.assert_array_equal(got, [kit.expected(y[16:], 1), kit.expected(x, 1)])


SCRATCH = """define void @scratchy(ptr %b, ptr %s, i64 %lo, i64 %hi, ptr %scratch) {
entry:
  %o = load ptr, ptr %b
  %last = getelementptr i8, ptr %scratch, i64 99992
  br label %loop
loop:
  %i = phi i64 [ %lo, %entry ], [ %i1, %loop ]
  %p = getelementptr i64, ptr %o, i64 %i
  store volatile i64 %i, ptr %scratch
  store volatile i64 7, ptr %last
  %x = load volatile i64, ptr %scratch
  %y = load volatile i64, ptr %last
  %v = add i64 %x, %y
  store i64 %v, ptr %p
  %i1 = add i64 %i, 1
  %c = icmp slt i64 %i1, %hi
  br i1 %c, label %loop, label %exit
exit:
  ret void
}
"""


@pytest.mark.parametrize("n, repeats", [(1, 1), (64, 1 << 14), (64, 1 << 20)])
def test_scratch_is_there_inline_and_on_workers(cpu, n, repeats):
    i, r = build.range_(n, 0, "PAR"), build.range_(repeats, 1)
    o = build.ref(0, dtypes.float64, (n,))
    value = build.reduce_ranges(build.cast(r, dtypes.float64), build.ops.ADD, (r,))
    kernel = build.kernel([build.store(build.index_into(o, i), value)], "scratchy", (0, 1))
    code = kit.Code("scratchy", SCRATCH, n, 100_000)
    commands = kit.commands(kit.execute(kernel, [kit.slot("out", 0, 8 * n)]))
    buffer = cpu.encode(commands, {kernel: code}, 0)
    with override(workers=3):
        for _ in range(3):
            out = cpu.alloc(8 * n)
            buffer.submit([], [out])
            assert out.view(np.int64, (n,)).tolist() == [i + 7 for i in range(n)]


def test_views_are_read_only_and_keep_the_memory(cpu):
    storage = cpu.upload(np.arange(1000, dtype=np.int32))
    view = storage.view(np.int32, (10, 100))
    with pytest.raises(ValueError):
        view[0] = 1
    with pytest.raises(ValueError):
        view.flags.writeable = True
    address = storage.ptr
    del storage
    gc.collect()
    others = [cpu.alloc(4000) for _ in range(5)]
    assert address not in {o.ptr for o in others}
    np.testing.assert_array_equal(view.ravel(), np.arange(1000))
    part = view[3:5]
    del view, others
    gc.collect()
    assert cpu.alloc(4000).ptr != address and part[0, 0] == 300
    del part
    gc.collect()
    assert address in {o.ptr for o in [cpu.alloc(4000) for _ in range(10)]}


@pytest.mark.parametrize("x", [
    np.zeros((0, 3), np.float32), np.array(3.5), np.arange(12.0).reshape(3, 4).T,
    np.array([True, False]), np.arange(20, dtype=np.uint32)[::-2]])
def test_upload_copies_any_layout(cpu, x):
    storage = cpu.upload(x)
    np.testing.assert_array_equal(storage.view(x.dtype, x.shape), x)


def test_memory_of_work_in_flight_is_not_reused(cpu):
    """Arguments without references live until their submission is done."""
    n = 30_000
    buffer = encoded(cpu, n, 3, LONG)
    outs = []
    for i in range(6):
        outs.append(run(cpu, buffer, values(n) + np.float32(i)))  # the input is dropped here
        cpu.upload(np.full(n, np.nan, np.float32))  # would overwrite it
    for i, out in enumerate(outs):
        np.testing.assert_array_equal(out.view(np.float32, (n,)),
                                      kit.expected(values(n) + np.float32(i), 0.25, 3 * LONG))


def test_what_is_waited_for_and_dropped_is_the_memory_of_the_next_result(cpu):
    buffer = encoded(cpu, 10_000, 1, LONG)
    x, places = cpu.upload(values(10_000)), set()
    for _ in range(5):
        out = cpu.alloc(x.nbytes)
        buffer.submit([x], [out])
        out.wait()
        places.add(out.ptr)
        del out
    assert len(places) == 1


def test_an_interrupt_right_after_a_submission_does_not_shift_the_timeline(cpu, monkeypatch):
    n = 20_000
    buffer = encoded(cpu, n, 3, LONG)
    run(cpu, buffer, values(n)).wait()
    native = cpu.queue._native

    class Interrupted:
        wait = staticmethod(native.wait)

        @staticmethod
        def submit(*words):
            native.submit(*words)
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(cpu.queue, "_native", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(cpu, buffer, values(n))
    before = cpu.queue.submitted
    out = run(cpu, buffer, values(n))
    assert out.timeline == cpu.queue.submitted == before + 1
    np.testing.assert_array_equal(out.view(np.float32, (n,)),
                                  kit.expected(values(n), 0.25, 3 * LONG))


def test_a_buffer_may_die_while_it_runs(cpu):
    n = 20_000
    buffer = encoded(cpu, n, 2, LONG, 0.125)
    out, watch = run(cpu, buffer, values(n)), weakref.ref(buffer)
    del buffer
    cpu.kernels.recent.clear()
    gc.collect()
    np.testing.assert_array_equal(out.view(np.float32, (n,)),
                                  kit.expected(values(n), 0.125, 2 * LONG))
    cpu.synchronize()
    gc.collect()
    assert watch() is None


def test_leases_come_back(cpu):
    for repeats, least in ((1, 0), (LONG, 1)):  # short work has its block on the stack
        buffer = encoded(cpu, 10_000, 2, repeats)
        for _ in range(5):
            run(cpu, buffer, values(10_000)).wait()
            cpu.synchronize()
        assert least <= len(buffer.free_call_states) <= 2


def test_steady_state_takes_no_new_memory(cpu):
    buffer = encoded(cpu, 10_000, 4, LONG)
    run(cpu, buffer, values(10_000)).wait()
    cpu.synchronize()
    held = cpu.stats()["held"]
    for _ in range(10):
        run(cpu, buffer, values(10_000)).wait()
        cpu.synchronize()
    assert cpu.stats()["held"] == held


def test_time_limit_names_the_kernel_and_the_device_stays_usable(cpu):
    n = 100_000
    endless = encoded(cpu, n, 3, 300_000)
    out = run(cpu, endless, values(n))
    with override(time_limit=0.2), pytest.raises(DeviceError, match="time limit, for kernel scal"):
        out.wait()
    with pytest.raises(DeviceError, match="was aborted"):
        out.view(np.float32, (n,))
    again = cpu.alloc(4 * n)
    with pytest.raises(DeviceError, match="was aborted"):
        encoded(cpu, n).submit([out], [again])
    small = run(cpu, encoded(cpu, n, 2), values(n))
    np.testing.assert_array_equal(small.view(np.float32, (n,)), kit.expected(values(n), 0.25, 2))
    cpu.synchronize()


FLUSH = """declare void @llvm.x86.sse.ldmxcsr(ptr)
define void @mode(i64 %m) {
  %p = alloca i64
  store i64 %m, ptr %p
  call void @llvm.x86.sse.ldmxcsr(ptr %p)
  ret void
}"""


def test_subnormal_numbers_survive_whatever_mode_the_caller_is_in(cpu):
    """Another library may have enabled flush-to-zero for this thread."""
    if not cpu.target.triple.startswith("x86_64"):
        pytest.skip("sets the x86 control word")
    library = llvm.link([(llvm.compile_ir(FLUSH, cpu.target), ["mode"])])
    set_mode = ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.addresses["mode"])
    tiny = np.float32(1e-40)
    short, long = encoded(cpu, 100, a=0.0), encoded(cpu, 100_000, 1, 10, 0.0)
    x, y = np.full(100, tiny), np.full(100_000, tiny)
    want = kit.expected(x, 0.0), kit.expected(y, 0.0, 10)
    cpu.synchronize()
    with override(workers=2 if cpu.queue._workers and cpu.queue._workers.count == 3 else 3):
        set_mode(0x9FC0)  # flush-to-zero and denormals-are-zero
        try:
            assert tiny * np.float32(1.0) == 0  # in this thread's arithmetic
            got = [run(cpu, b, v).view(np.float32, v.shape) for b, v in ((short, x), (long, y))]
            assert tiny * np.float32(1.0) == 0  # ... whose mode is unchanged
        finally:
            set_mode(0x1F80)
    for g, w in zip(got, want):
        assert w[0] != 0
        np.testing.assert_array_equal(g.view(np.uint32), w.view(np.uint32))


def test_no_memory_for_temporaries_names_the_kernels(cpu):
    commands, code, _ = kit.chain(8, 2)
    buffer = cpu.encode(commands, code, 1 << 60)
    with pytest.raises(DeviceError, match="expected 1,152,.* bytes .*temporaries of scaled\n"):
        run(cpu, buffer, values(8))
    assert run(cpu, encoded(cpu, 8, 2), values(8)).view(np.float32, (8,))[0] != 0


def test_fewer_threads_than_asked_for_will_do(cpu, monkeypatch):
    """The system refuses the third thread."""
    real, made = cpu.native.create, []

    def create(*arguments):
        made.append(arguments)
        return 11 if len(made) > 2 else real(*arguments)

    n = 20_000
    monkeypatch.setattr(cpu.native, "create", create)
    with override(workers=7):
        out = run(cpu, encoded(cpu, n, 2, LONG), values(n))
        np.testing.assert_array_equal(out.view(np.float32, (n,)),
                                      kit.expected(values(n), 0.25, 2 * LONG))
        run(cpu, encoded(cpu, n, 2, LONG), values(n)).wait()
    assert len(made) == 3 and cpu.queue._workers.count == 2


def test_the_first_thread_must_start(cpu, monkeypatch):
    monkeypatch.setattr(cpu.native, "create", lambda *arguments: 11)
    n = 20_000
    with override(workers=6), pytest.raises(DeviceError, match="starts no worker thread"):
        run(cpu, encoded(cpu, n, 2, LONG), values(n))
    monkeypatch.undo()
    out = run(cpu, encoded(cpu, n, 2, LONG), values(n))
    np.testing.assert_array_equal(out.view(np.float32, (n,)),
                                  kit.expected(values(n), 0.25, 2 * LONG))


def test_stats_count(cpu):
    before = cpu.stats()
    encoded(cpu, 777)
    encoded(cpu, 777)
    after = cpu.stats()
    fetched = {k: after[k] - before[k] for k in ("compiled", "disk", "memory")}
    assert fetched["memory"] == 1 and fetched["compiled"] + fetched["disk"] == 1
