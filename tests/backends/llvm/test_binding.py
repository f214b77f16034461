"""The LLVM binding: text to object to address, in several threads, and what it refuses."""

import ctypes
import threading

import pytest

from fnx.backends.llvm import binding as llvm
from fnx.backends.llvm import object_files
from fnx.core.support.errors import DeviceError, SpecError

ADD = "define i64 @{0}(i64 %a) {{ %b = add i64 %a, {1}  ret i64 %b }}"
SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def call(library: llvm.Library, name: str, argument: int) -> int:
    return SIGNATURE(library.addresses[name])(argument)


def test_objects_of_one_link_are_callable():
    target = llvm.host_target()
    objects_ = [(llvm.compile_ir(ADD.format(f"f{i}", i), target), [f"f{i}"]) for i in range(5)]
    library = llvm.link(objects_)
    assert [call(library, f"f{i}", 10) for i in range(5)] == [10, 11, 12, 13, 14]


def test_one_symbol_in_two_libraries():
    target = llvm.host_target()
    libraries = [llvm.link([(llvm.compile_ir(ADD.format("same", i), target), ["same"])])
                 for i in range(3)]
    assert [call(library, "same", 0) for library in libraries] == [0, 1, 2]
    del libraries[1]
    assert [call(library, "same", 0) for library in libraries] == [0, 2]


def test_equal_text_is_equal_code():
    target = llvm.host_target()
    assert llvm.compile_ir(ADD.format("f", 1), target) == llvm.compile_ir(
        ADD.format("f", 1), target)


def test_code_without_optimization_is_other_code_with_the_same_results():
    target = llvm.host_target()
    codes = [llvm.compile_ir(ADD.format("f", 7), target, optimize) for optimize in (True, False)]
    libraries = [llvm.link([(code, ["f"])]) for code in codes]
    assert codes[0] != codes[1] and [call(lib, "f", 3) for lib in libraries] == [10, 10]


def test_threads_compile_and_link_at_once():
    target, results = llvm.host_target(), {}

    def work(i: int) -> None:
        for j in range(10):
            name = f"t{i}_{j}"
            library = llvm.link([(llvm.compile_ir(ADD.format(name, i * j), target), [name])])
            results[i, j] = call(library, name, 1)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {(i, j): i * j + 1 for i in range(4) for j in range(10)}


@pytest.mark.parametrize("text, said", [
    ("define void @f() { rett void }", "expected instruction opcode"),
    ("define i64 @f(i1 %c) { br i1 %c, label %a, label %b\na: %x = add i64 1, 1\n br label %b\n"
     "b: ret i64 %x }", "does not dominate"),
])
def test_bad_text_is_refused_with_llvms_words(text, said):
    with pytest.raises(SpecError, match=said):
        llvm.compile_ir(text, llvm.host_target())


def test_undefined_symbol_does_not_link():
    text = "declare void @nowhere_to_be_found() define void @f() { call void " \
           "@nowhere_to_be_found() ret void }"
    data = llvm.compile_ir(text, llvm.host_target())
    assert object_files.undefined_symbols(data) == {"nowhere_to_be_found"}
    with pytest.raises(DeviceError, match="can.t link f: Failed to materialize"):
        llvm.link([(data, ["f"])], object_files.allowed_addresses())


def test_externals_that_llvm_put_in_are_seen():
    text = "define float @f(float %a, float %b) { %c = frem float %a, %b  ret float %c }"
    found = object_files.undefined_symbols(llvm.compile_ir(text, llvm.host_target()))
    assert found == {"fmodf"}
    with pytest.raises(DeviceError, match="kernel remainder calls fmodf"):
        object_files.check_undefined(found, "remainder")


def test_allowed_externals_are_linked_and_work():
    text = """declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
    define i64 @fill(i64 %a) {
      %m = alloca [4096 x i8]
      call void @llvm.memset.p0.i64(ptr %m, i8 7, i64 %a, i1 false)
      %v = load i8, ptr %m
      %w = zext i8 %v to i64
      ret i64 %w }"""
    data = llvm.compile_ir(text, llvm.host_target())
    object_files.check_undefined(object_files.undefined_symbols(data), "fill")
    library = llvm.link([(data, ["fill"])], object_files.allowed_addresses())
    assert call(library, "fill", 4096) == 7


def test_externals_of_a_mach_o_object():
    target = llvm.host_target()
    if not target.triple.startswith("x86_64"):
        pytest.skip("needs the x86 back end")
    text = "declare void @g() define void @f() { call void @g() ret void }"
    mac = type(target)("cpu", "x86_64-apple-macosx13.0", "haswell")
    assert object_files.undefined_symbols(llvm.compile_ir(text, mac)) == {"g"}


def test_host_target_is_sane():
    target = llvm.host_target()
    assert target.vector_bits in (128, 256, 512) and target.vector_registers in (16, 32)
    assert 8 << 10 <= target.l1 <= target.l2 and target.cores >= 1
    assert target is llvm.host_target()


def test_code_is_freed_while_another_thread_loads():
    """A finalizer may run at any point, so it must not wait for a lock."""
    library = [llvm.link([(llvm.compile_ir("define i64 @f() { ret i64 1 }",
                                           llvm.host_target()), ["f"])])]
    thread = threading.Thread(target=library.clear, daemon=True)
    with llvm._load_lock:
        thread.start()
        thread.join(200)
        assert not thread.is_alive()


def test_a_fork_waits_for_every_call_into_llvm(monkeypatch):
    """Otherwise the child may inherit a locked LLVM mutex."""
    lib, target, called = llvm._llvm(), llvm.host_target(), []

    def watched(name):
        function = getattr(lib, name)

        def run(*args):
            called.append(name)
            assert llvm._per_thread.inside._is_owned(), name
            return function(*args)

        return run

    for name in llvm._PROTOTYPES.keys() - llvm._HOLDS_GIL:
        monkeypatch.setattr(lib, name, watched(name))
    monkeypatch.setattr(llvm, "_linkers", [])
    monkeypatch.setattr(llvm, "MAX_LIBRARIES", 1)
    other = type(target)("cpu", target.triple, "generic")
    for _ in range(2):  # the second round frees what is left of the first
        thread = threading.Thread(target=llvm.compile_ir, args=(ADD.format("h", 1), other))
        thread.start()
        thread.join()
        assert llvm.assembly(ADD.format("g", 1), target)
        assert call(llvm.link([(llvm.compile_ir(ADD.format("f", 1), target), ["f"])]), "f", 1) == 2
    assert {"LLJIT_Link", "LLJIT_Dylib_Tracker_Dispose", "LLJITDispose",
            "DisposeTargetMachine"} <= {*called}


def test_linkers_go_with_the_last_of_their_libraries(monkeypatch):
    """LLVM retains some memory for each library as long as its linker lives."""
    freed = []
    dispose = llvm._llvm().LLJITDispose
    monkeypatch.setattr(llvm, "MAX_LIBRARIES", 3)
    monkeypatch.setattr(llvm, "_linkers", [])
    monkeypatch.setattr(llvm._llvm(), "LLJITDispose", lambda ref: (freed.append(ref), dispose(ref)))
    code = llvm.compile_ir(ADD.format("f", 1), llvm.host_target())
    kept = [llvm.link([(code, ["f"])]) for _ in range(4)]
    first = kept[0]
    assert len(code) * 2 < first.nbytes < len(code) * 2 + (64 << 10)
    del kept[:3]
    kept.append(llvm.link([(code, ["f"])]))
    assert not freed and call(first, "f", 1) == 2
    del first
    kept += [llvm.link([(code, ["f"])]) for _ in range(2)]
    assert len(freed) == 1
    assert [call(library, "f", 1) for library in kept] == [2] * len(kept)
