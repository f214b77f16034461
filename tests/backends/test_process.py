"""What happens to the cpu device when the process forks, is interrupted or ends."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
from fnx.backends.base import get_device
from fnx.core.config import config
from fnx.core.errors import DeviceError
from tests.backends import kit

cpu = get_device("cpu")
x = np.linspace(-1, 1, 50_000, dtype=np.float32)

def submit(repeats, length=2):
    out = cpu.alloc(x.nbytes)
    cpu.encode(*kit.chain(x.size, length, repeats)).submit([cpu.upload(x)], [out])
    return out

def right(out, repeats, length=2):
    want = kit.expected(x, 0.25, repeats * length)
    return bool(np.array_equal(out.view(np.float32, x.shape), want))
"""


def script(code: str, timeout: float = 60, before: str = "",
           **environment: str) -> subprocess.CompletedProcess:
    whole = textwrap.dedent(before) + BEGIN + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", whole],
                          capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **environment})


def test_ctrl_c_ends_a_wait_within_a_second():
    done = script("""
        out = submit(1_000_000)
        started = time.monotonic()
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            out.wait()
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - started < 1.3)
        try:
            out.wait()
        except DeviceError as e:
            print("aborted" in str(e))
        print(right(submit(100), 100))
        """)
    assert done.stdout.split() == ["interrupted", "True", "True", "True"], done.stderr
    assert done.returncode == 0


def test_fork_drains_and_the_child_has_workers_of_its_own():
    done = script("""
        before = submit(2000)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            ok = right(before, 2000) and right(submit(300), 300) and right(submit(1), 1)
            os.write(write, b"fine" if ok else b"wrong")
            os._exit(0)
        ok = right(before, 2000) and right(submit(300), 300)
        print(os.read(read, 10).decode(), ok, os.waitpid(child, 0)[1])
        """)
    assert done.stdout == "fine True 0\n", done.stderr


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
                signal.alarm(20)
                os._exit(0 if right(submit(150), 150) and right(submit(3), 3) else 1)
            codes.append(os.waitpid(child, 0)[1])
        stop = True
        for t in threads: t.join()
        print(codes)
        """)
    assert done.stdout == "[0, 0, 0, 0, 0]\n", done.stderr


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


@pytest.mark.parametrize("repeats", [50, 5000, 1_000_000])
def test_exit_with_work_in_flight(repeats):
    done = script(f"""
        outs = [submit({repeats}) for _ in range(5)]
        print("submitted", flush=True)
        """, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("submitted\n", "", 0)


def test_results_read_while_the_process_ends_are_an_error():
    """A handler registered before the device was made runs after the device's own."""
    done = script("late.append(submit(1_000_000))", timeout=30, before="""
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
