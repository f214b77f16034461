"""The kernel cache, keyed by content: a kernel compiles once per process and once per disk, and is
freed with its owners."""

import gc
import threading

import pytest

from fnx.backends.disk import background_writer
from fnx.backends.llvm import binding as llvm
from fnx.backends.llvm import kernel_cache as kernels_module
from fnx.backends.llvm.kernel_cache import KernelCache
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError, SpecError
from tests.backends import kit

_number = iter(range(10**6))


def code(text: str = "ret void", before: str = "") -> kit.Code:
    """A kernel that no earlier test has compiled."""
    symbol = f"unique_{next(_number)}"
    return kit.Code(symbol, f"{before}\ndefine void @{symbol}(ptr %b, ptr %s, i64 %lo, i64 %hi, "
                            f"ptr %scratch) {{ {text} }}", 1)


def fetched(kernels: KernelCache) -> list[int]:
    return [kernels.counts[name] for name in ("compiled", "disk", "memory")]


@pytest.fixture
def kernels(tmp_path):
    with override(cache_dir=str(tmp_path)):
        made = KernelCache(llvm.host_target())
        yield made
        made.compiler_threads.end()


def test_memory_then_disk_then_compiler(kernels):
    codes = [code() for _ in range(4)]
    first = kernels.get(codes)
    assert len({k.address for k in first}) == 4
    assert fetched(kernels) == [4, 0, 0]
    assert kernels.get(codes) == first
    assert fetched(kernels) == [4, 0, 4]
    background_writer.wait()  # the disk is written after the result is returned
    other = KernelCache(kernels.target)  # like another process
    assert all(k.address for k in other.get(codes))
    assert fetched(other) == [0, 4, 0]
    assert [c.asked for c in codes] == [1] * 4


def test_equal_keys_are_one_kernel(kernels):
    one = code()
    a, b = kernels.get([one, one])
    assert a is b and kernels.counts["compiled"] == 1


def test_prepared_kernels_are_not_compiled_again(kernels):
    codes = [code() for _ in range(3)]
    for c in codes * 2:
        kernels.prepare(c)
    kernels.get(codes)
    assert kernels.counts["compiled"] == 3 and [c.asked for c in codes] == [1, 1, 1]


def test_without_a_disk_it_compiles(kernels):
    with override(cache_dir=""):
        one = code()
        kernels.get([one])
        KernelCache(kernels.target).get([one])
        assert one.asked == 2


def test_kernels_of_one_name_live_together(kernels):
    a, b = code(), code("%x = load i64, ptr %s\n store i64 %x, ptr %scratch\n ret void")
    b.symbol, b._text = a.symbol, b._text.replace(b.symbol, a.symbol)
    first, second = kernels.get([a, b])
    assert first.address != second.address


def test_code_is_freed_with_its_owners(kernels, monkeypatch):
    freed, dispose = [], llvm._llvm().LLJIT_Dylib_Tracker_Dispose
    one = code()
    kernel, = kernels.get([one])
    background_writer.wait()
    gc.collect()  # garbage of other tests
    llvm._free_dead_libraries()
    monkeypatch.setattr(llvm._llvm(), "LLJIT_Dylib_Tracker_Dispose",
                        lambda *args: freed.append(dispose(*args)))
    kernels.recent.clear()
    llvm._free_dead_libraries()
    assert not freed
    del kernel
    gc.collect()
    llvm._free_dead_libraries()
    assert len(freed) == 1
    assert kernels.get([one])[0].address and kernels.counts["disk"] == 1


def test_a_call_of_an_unknown_function_names_kernel_and_symbol(kernels):
    bad = code("%x = call double @exp(double 1.0)\n ret void", "declare double @exp(double)")
    with pytest.raises(DeviceError, match=f"kernel {bad.symbol} calls exp; expected"):
        kernels.get([code(), bad])
    with pytest.raises(DeviceError, match="calls exp"):  # the bad kernel was not cached
        kernels.get([bad])


def test_text_that_llvm_refuses(kernels):
    with pytest.raises(SpecError, match="LLVM refuses"):
        kernels.get([code("rett void")])


def test_a_lowering_that_fails_leaves_no_job_behind(kernels):
    class Broken(kit.Code):
        def text(self):
            self.asked += 1
            raise ValueError("no text")

    broken = Broken("b", "", 1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no text"):
            kernels.get([broken])
    assert broken.asked == 2


def test_threads_get_the_same_kernels(kernels):
    codes, results, errors = [code() for _ in range(6)], [], []

    def work() -> None:
        try:
            results.append([k.key for k in kernels.get(codes)])
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and results == [[c.key for c in codes]] * 4
    assert kernels.counts["compiled"] == 6


def test_threads_that_wait_for_one_kernel_link_it_once(kernels, monkeypatch):
    """Otherwise the last one to link would own the kernel that all others use, and free it."""
    one, results = code(), []
    waiting, compile_ir = threading.Barrier(3), llvm.compile_ir
    monkeypatch.setattr(llvm, "compile_ir", lambda *args: (waiting.wait(10), compile_ir(*args))[1])
    wait = kernels_module._CompileJob.object

    def both_wait(job):
        waiting.wait(10)
        return wait(job)

    monkeypatch.setattr(kernels_module._CompileJob, "object", both_wait)
    threads = [threading.Thread(target=lambda: results.append(kernels.get([one])[0]))
               for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results[0] is results[1]


def test_at_the_end_of_the_process_nothing_is_compiled(kernels):
    kernels.get([code()])
    kernels.compiler_threads.end()
    with pytest.raises(DeviceError, match="was not compiled: the process ends"):
        kernels.get([code()])


def test_without_threads_the_caller_compiles(kernels, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert len(kernels.get([code() for _ in range(3)])) == 3
    background_writer.wait()


def test_work_of_before_a_reset_does_not_count_afterwards(kernels, monkeypatch):
    compile_ir, free = llvm.compile_ir, threading.Event()

    def slow(text, target, *options):
        free.wait(200)
        return compile_ir(text, target, *options)

    monkeypatch.setattr(llvm, "compile_ir", slow)
    kernels.prepare(code())
    before = kernels.compiler_threads._threads
    kernels.compiler_threads.reset()
    free.set()
    for thread in before:
        thread.join(0.5)  # it waits for work of its own queue
    assert kernels.get([code()])[0].address


def test_a_disk_that_fails_does_not_stop_the_helpers(kernels, monkeypatch):
    def fail(self, key, value):
        raise MemoryError

    monkeypatch.setattr("fnx.backends.disk.cache.DiskCache.put", fail)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    for _ in range(5):
        assert kernels.get([code()])[0].address
    background_writer.wait()
