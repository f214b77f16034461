"""The cpu device when the process forks, is interrupted or ends."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
from fnx.backends.device.base import get_device
from fnx.core.support.config import config
from fnx.core.support.errors import DeviceError
from tests.backends import kit

cpu = get_device("cpu")
x = np.linspace(-1, 1, 50_000, dtype=np.float32)

def submit(repeats, length=2):
    out = cpu.alloc(x.nbytes)
    cpu.encode(*kit.chain(x.size, length, repeats)).submit([cpu.upload(x)], [out])
    return out

GATE = "define void @gate(ptr %b, ptr %s, i64 %lo, i64 %hi, ptr %scratch) {" \\
       "entry: %g = load ptr, ptr %b br label %again " \\
       "again: %v = load volatile i32, ptr %g %c = icmp eq i32 %v, 0 " \\
       "br i1 %c, label %again, label %end end: ret void }"

def closed_gate():
    # memory; what is submitted from now on waits until it is no longer 0
    from fnx.core.ir import build, dtypes, ops
    gate, out = cpu.upload(np.zeros(1, np.int32)), cpu.alloc(4)
    r, i = build.range_(1 << 30, 1, "SEQ"), build.range_(1, 0, "PAR")
    g, o = build.ref(0, dtypes.int32, (1,)), build.ref(1, dtypes.int32, (1,))
    factor = build.load(build.index_into(g, i))
    value = build.reduce_ranges(build.mul(build.cast(r, dtypes.int32), factor), ops.ADD, (r,))
    kernel = build.kernel([build.store(build.index_into(o, i), value)], "gate", (0, 1))
    run = kit.commands(kit.execute(kernel, [kit.slot("in", 0, 4), kit.slot("out", 0, 4)]))
    cpu.encode(run, {kernel: kit.Code("gate", GATE, 1)}, 0).submit([gate], [out])
    return gate

def right(out, repeats, length=2):
    want = kit.expected(x, 0.25, repeats * length)
    return bool(np.array_equal(out.view(np.float32, x.shape), want))
"""


def script(code: str, timeout: float = 300, before: str = "",
           **environment: str) -> subprocess.CompletedProcess:
    whole = textwrap.dedent(before) + BEGIN + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", whole],
                          capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **environment})


def test_a_first_ctrl_c_leaves_the_wait_and_nothing_else():
    done = script("""
        gate = closed_gate()
        out = submit(300)
        try:
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            out.wait()
            print("it ended?")
        except KeyboardInterrupt:
            print("interrupted")
        later = submit(100)  # it queues behind
        gate.window()[:] = 1
        print(right(out, 300), right(later, 100))
        """)
    assert done.stdout.split() == ["interrupted", "True", "True"], done.stderr
    assert done.returncode == 0


@pytest.mark.cases(1)
@pytest.mark.parametrize("pause", [0.3, 2.5])
def test_a_second_ctrl_c_soon_or_behind_the_same_work_aborts_it(pause):
    done = script(f"""
        good = submit(100)
        good.wait()
        out = submit(1_000_000)
        later = submit(100)
        for i, delay in enumerate((0.2, {pause})):
            try:
                threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                later.wait() if i else out.wait()
            except KeyboardInterrupt:
                print("interrupted", cpu.queue._workers.completed() < out.timeline or i == 1)
        for lost in (out, later):
            try:
                lost.wait()
            except DeviceError as e:
                print("aborted" in str(e))
        print(right(good, 100), right(submit(100), 100))
        """)
    assert done.stdout.split() == ["interrupted", "True"] * 2 + ["True"] * 4, done.stderr
    assert done.returncode == 0


ENDLESS = """
from fnx.core.ir import build, dtypes, ops
def endless(name):
    text = "define void @%s(ptr %%b, ptr %%s, i64 %%lo, i64 %%hi, ptr %%scratch) {" \
           "entry: br label %%again again: call void asm sideeffect \\"\\", \\"\\"() " \
           "br label %%again }" % name
    r, i = build.range_(1 << 30, 1, "SEQ"), build.range_(1, 0, "PAR")
    o = build.ref(0, dtypes.float32, (1,))
    value = build.reduce_ranges(build.cast(r, dtypes.float32), ops.ADD, (r,))
    kernel = build.kernel([build.store(build.index_into(o, i), value)], name, (0, 1))
    code = kit.Code(name, text, 1)
    out = cpu.alloc(4)
    run = kit.commands(kit.execute(kernel, [kit.slot("out", 0, 4)]))
    cpu.encode(run, {kernel: code}, 0).submit([], [out])
    return out

def interrupted(out, times):
    for _ in range(times):
        try:
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            out.wait()
        except KeyboardInterrupt:
            continue
        print("it ended?")
"""


def test_workers_of_a_kernel_that_never_ends_are_replaced():
    done = script(ENDLESS + """
good = submit(100)
good.wait()
out = endless("endless_one")
interrupted(out, 2)
print(right(good, 100), right(submit(300), 300), right(submit(1), 1))
try:
    out.wait()
except DeviceError as e:
    print("aborted" in str(e))
for _ in range(3):
    print(right(submit(300), 300))
""")
    assert done.stdout.split() == ["True"] * 7, done.stdout + done.stderr
    assert done.returncode == 0  # exit does not wait


def test_at_most_one_endless_kernel_for_each_processor():
    done = script(ENDLESS + """
from fnx.backends.llvm.host_cpu import cores
for n in range(cores()):
    interrupted(endless(f"endless_{n}"), 2)
for _ in range(2):
    try:
        submit(300).wait()
    except DeviceError as e:
        print("endless_0" in str(e), f"endless_{cores() - 1}" in str(e))
""")
    assert done.stdout.split() == ["True"] * 4, done.stdout + done.stderr


def test_fork_drains_and_the_child_has_workers_of_its_own():
    done = script("""
        from fnx.core.support import process
        process.FORK_TIMEOUT = 100
        before = submit(200)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            ok = right(before, 200) and right(submit(300), 300) and right(submit(1), 1)
            os.write(write, b"fine" if ok else b"wrong")
            os._exit(0)
        ok = right(before, 200) and right(submit(300), 300)
        print(os.read(read, 10).decode(), ok, os.waitpid(child, 0)[1])
        """)
    assert done.stdout == "fine True 0\n", done.stderr


def test_what_is_unfinished_at_a_fork_is_refused_in_the_child_and_goes_on_in_the_parent():
    """Also if Ctrl-C arrives during the fork: it is raised soon after."""
    done = script("""
        gate = closed_gate()
        out = submit(300)
        try:
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            if os.fork() == 0:
                try:
                    out.view(np.float32, x.shape)
                    os._exit(1)
                except DeviceError as e:
                    os._exit(42 if "not done when the process forked" in str(e)
                             and right(submit(300), 300) else 2)
            time.sleep(200)
        except KeyboardInterrupt:
            print("interrupted")
        gate.window()[:] = 1
        print(os.waitstatus_to_exitcode(os.wait()[1]), right(out, 300))
        """)
    assert (done.stdout, done.stderr) == ("interrupted\n42 True\n", "")


def test_fork_while_a_thread_submits_and_another_compiles():
    done = script("""
        stop = False
        def hammer():
            i = 0
            while not stop:
                i += 1
                submit(20 + i % 50).wait()
        threads = [threading.Thread(target=hammer) for _ in range(2)]
        for t in threads: t.start()
        codes = []
        for _ in range(5):
            time.sleep(0.05)
            child = os.fork()
            if child == 0:
                signal.alarm(200)
                os._exit(0 if right(submit(150), 150) and right(submit(3), 3) else 1)
            codes.append(os.waitpid(child, 0)[1])
        stop = True
        for t in threads: t.join()
        print(codes)
        """)
    assert done.stdout == "[0, 0, 0, 0, 0]\n", done.stderr


def test_a_command_buffer_that_another_thread_lays_out_is_usable_in_the_child():
    done = script("""
        buffer, begun = cpu.encode(*kit.chain(x.size, 2, 3)), threading.Event()
        from fnx.backends.cpu.encoding import Encoder
        encode = Encoder.encode
        def slow(*args):
            begun.set()
            time.sleep(1000)
        Encoder.encode = slow
        out, again = cpu.alloc(x.nbytes), cpu.alloc(x.nbytes)
        submit = threading.Thread(target=buffer.submit, args=([cpu.upload(x)], [out]), daemon=True)
        submit.start()
        begun.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(200)
            Encoder.encode = encode
            buffer.submit([cpu.upload(x)], [again])
            os._exit(0 if right(again, 3) else 1)
        print(os.waitpid(child, 0)[1], flush=True)
        os._exit(0)
        """)
    assert done.stdout == "0\n", done.stderr


def test_multiprocessing_children_exit_cleanly():
    done = script("""
        import multiprocessing
        def work(i):
            return right(submit(100 + i), 100 + i)
        right(submit(100), 100)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(work, range(4)))
        """)
    assert done.stdout == "[True, True, True, True]\n", done.stderr
    assert done.returncode == 0


@pytest.mark.cases(1)
@pytest.mark.parametrize("repeats", [50, 5000, 1_000_000])
def test_exit_with_work_in_flight(repeats):
    done = script(f"""
        outs = [submit({repeats}) for _ in range(5)]
        print("submitted", flush=True)
        """, timeout=200)
    assert (done.stdout, done.stderr, done.returncode) == ("submitted\n", "", 0)


def test_results_read_while_the_process_ends_are_an_error():
    """An exit handler registered before the device was created runs after the device's own."""
    done = script("late.append(submit(1_000_000))", timeout=200, before="""
        import atexit
        late = []
        @atexit.register
        def read():
            try:
                late[0].wait()
                print("done")
            except Exception as e:
                print("aborted" in str(e))
        """)
    assert done.stdout == "True\n", done.stderr


def test_exit_while_llvm_runs():
    done = script("""
        for i in range(30):
            kernel, code = kit.scaled(100, 1, f"k{i}")
            cpu.prepare(code)
        print("prepared", flush=True)
        """, FNX_CACHE_DIR="")
    assert (done.stdout, done.stderr, done.returncode) == ("prepared\n", "", 0)


@pytest.mark.cases(1)
@pytest.mark.parametrize("run", range(3))
def test_exit_while_daemon_threads_trace_compile_and_run(run):
    done = script(f"""
        import random
        import fnx, fnx.numpy as jnp
        def work(seed):
            some = random.Random(seed).random
            while True:
                number, n = some(), int(some() * 1000)
                fnx.jit(lambda x: jnp.sin(x * number) + jnp.tanh(x).sum())(jnp.ones(100 + n))
        for i in range(3):
            threading.Thread(target=work, args=(10 * {run} + i,), daemon=True).start()
        time.sleep(0.7 + 0.2 * {run})
        print("end", flush=True)
        """, timeout=200, FNX_CACHE_DIR="")
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_exit_by_an_exception_and_from_a_thread():
    done = script("""
        def work():
            submit(3000)
        t = threading.Thread(target=work); t.start(); t.join()
        held = submit(3000)
        raise SystemExit(3)
        """)
    assert (done.stderr, done.returncode) == ("", 3)


def test_a_killed_process_leaves_a_usable_cache(tmp_path):
    for delay in (0.01, 0.05, 0.1):
        script(f"""
            threading.Timer({delay}, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            for i in range(300):
                submit(10 + i)
            """, FNX_CACHE_DIR=str(tmp_path))
    done = script("print(right(submit(10), 10), right(submit(11), 11))",
                  FNX_CACHE_DIR=str(tmp_path))
    assert done.stdout == "True True\n", done.stderr


def test_a_second_process_compiles_nothing(tmp_path):
    code = """
        print(right(submit(10), 10), right(submit(20), 20), cpu.stats()["compiled"])
        """
    first, second = (script(code, FNX_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert (first.stdout, second.stdout) == ("True True 2\n", "True True 0\n"), second.stderr


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path):
    (tmp_path / "file").write_text("")
    done = script("print(right(submit(10), 10))", FNX_CACHE_DIR=str(tmp_path / "file" / "x"))
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits address space")
@pytest.mark.parametrize("flight", [0, 1 << 40])
def test_dropped_results_are_garbage_before_memory_is_refused(flight):
    """Scaled down: twelve results of 40 MB fit, with and without a bound on work in flight."""
    done = script(f"""
        import resource
        import fnx, fnx.numpy as jnp
        fnx.config.flight_bytes = {flight}
        f = fnx.jit(lambda x: jnp.sin(x) * jnp.cos(x) + jnp.exp(-x))
        x = jnp.ones(10_000_000)
        f(x).block_until_ready()
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (500 << 20), resource.RLIM_INFINITY))
        for _ in range(40):
            f(x)
        kept = []
        try:
            for _ in range(40):
                kept.append(f(x))
            print("too much fits")
        except MemoryError as e:
            print(isinstance(e, DeviceError), "bytes of memory" in str(e),
                  "largest that are in use: " in str(e))
        del kept[:]
        print(float(f(x)[0]) > 0.8)
        """)
    assert done.stdout.split() == ["True"] * 4, done.stdout + done.stderr


@pytest.mark.cases(1)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits address space")
@pytest.mark.parametrize("left", [5, 100, 160, 200, 250, 290, 330, 400])
def test_little_address_space_is_an_error_or_enough(left):
    """LLVM ends the process when it cannot allocate memory."""
    code = f"""
        import resource
        import fnx, fnx.numpy as jnp
        jit, grad = fnx.jit, fnx.grad  # they are loaded when they are first named
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ({left} << 20), resource.RLIM_INFINITY))
        try:
            x = jnp.ones((64, 64))
            print(float(jit(grad(lambda x: jnp.sum(jnp.sin(x @ x))))(x)[0, 0]) > 0)
        except MemoryError as e:
            print("of address space" in str(e))
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True,
                          text=True, timeout=300, env=os.environ | {"FNX_CACHE_DIR": ""})
    assert done.stdout == "True\n", done.stderr


def test_a_program_that_runs_the_exit_functions_itself_lives_on():
    """As tests of libraries do; at its real end the compiler's threads still end."""
    done = script("""
        import atexit
        assert right(submit(2), 2)
        atexit._run_exitfuncs()
        assert right(submit(2, length=3), 2, 3)
        print("compiled", flush=True)
        """, FNX_CACHE_DIR="")
    assert (done.stdout, done.stderr, done.returncode) == ("compiled\n", "", 0)
