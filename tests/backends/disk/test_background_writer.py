"""Background writes: in order, past failures, at the end of the process and around forks."""

import os
import subprocess
import sys
import threading

import pytest

from fnx.backends.disk import background_writer
from fnx.backends.disk.cache import DiskCache


def test_calls_are_made_in_order_and_past_failures():
    done = []

    def fail():
        raise MemoryError

    for i in range(100):
        background_writer.enqueue(lambda i=i: done.append(i))
        background_writer.enqueue(fail)
    assert background_writer.wait() and done == list(range(100))


def test_without_threads_the_caller_writes(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    assert background_writer.wait()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = []
    background_writer.enqueue(lambda: done.append(threading.current_thread()))
    assert done == [threading.main_thread()] and background_writer.wait(0.0)


def test_an_interrupt_of_the_caller_leaves_the_rest_to_the_next(monkeypatch):
    def cut():
        raise KeyboardInterrupt

    def refuse(self):
        raise RuntimeError("can't start new thread")

    assert background_writer.wait()
    with monkeypatch.context() as within:
        within.setattr(threading.Thread, "start", refuse)
        with pytest.raises(KeyboardInterrupt):
            background_writer.enqueue(cut)
    background_writer._queue.clear()
    done = []
    background_writer.enqueue(lambda: done.append(1))
    assert background_writer.wait() and done == [1]


def test_who_lists_the_cache_sees_what_is_on_its_way(tmp_path):
    disk = DiskCache(str(tmp_path / "cache"))
    free = threading.Event()
    background_writer.enqueue(lambda: free.wait(60) and disk.put(b"key", b"value", "something"))
    threading.Timer(0.05, free.set).start()
    assert [entry.about for entry in disk.entries()] == ["something"]


def test_a_child_writes_what_it_asks_for_itself():
    free = threading.Event()
    background_writer.enqueue(lambda: free.wait(60))
    pid = os.fork()
    if pid == 0:
        done = []
        background_writer.enqueue(lambda: done.append(1))
        os._exit(0 if background_writer.wait(20.0) and done == [1] else 1)
    free.set()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert background_writer.wait()


def test_the_end_of_the_process_waits(tmp_path):
    path = tmp_path / "written"
    subprocess.run([sys.executable, "-c", f"""
import pathlib, time
from fnx.backends.disk import background_writer
background_writer.enqueue(lambda: time.sleep(0.2) or pathlib.Path({str(path)!r}).touch())
"""], check=True)
    assert path.exists()
