"""Weak tables behave like weak dictionaries, and lose no Ctrl-C."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx.core.ir.cache import DeathQueue, WeakMemo


class Key:
    pass


@given(st.lists(st.tuples(st.sampled_from(["set", "kill", "get"]), st.integers(0, 4)),
                max_size=40))
def test_a_memo_is_a_dictionary_of_the_living(steps: list[tuple[str, int]]) -> None:
    memo: WeakMemo[Key, int] = WeakMemo()
    keys, want = [Key() for _ in range(5)], {}
    for number, (what, i) in enumerate(steps):
        if what == "set":
            memo[keys[i]] = want[i] = number
        elif what == "kill":
            keys[i] = Key()
            want.pop(i, None)
        assert memo.get(keys[i]) == want.get(i) and (keys[i] in memo) == (i in want)
    assert len(memo) == len(want)


def test_each_death_is_told_once_also_in_cycles() -> None:
    deaths: DeathQueue[int] = DeathQueue()
    owners = [Key() for _ in range(10)]
    for i, owner in enumerate(owners):
        owner.itself = owner  # type: ignore[attr-defined]
        deaths.watch(owner, i)
    kept = owners[3]
    del owners, owner
    gc.collect()
    assert sorted(deaths.released()) == [0, 1, 2, 4, 5, 6, 7, 8, 9] and not list(deaths.released())
    assert kept


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
def test_no_interrupt_is_lost_where_nodes_blocks_and_memos_die() -> None:
    """Each signal is one KeyboardInterrupt, and none is reported as ignored in a finalizer."""
    code = """
        import itertools, os, signal, threading, time
        from fnx.backends.device.allocator import PoolBlock, Pool
        from fnx.core.ir import build, dtypes
        from fnx.core.ir.uop import live_nodes
        from fnx.core.ir.cache import WeakMemo
        pool, memo, numbers = Pool(), WeakMemo(), itertools.count()
        held, constants = [0, 0], live_nodes()
        def work():
            while True:
                nodes = [build.param(next(numbers), dtypes.float32, (3,)) for _ in range(10)]
                for node in nodes:
                    memo[node] = 1
                held[0] = PoolBlock(pool, 100)
                held[1] = PoolBlock(pool, 100_000)
                del nodes, node
        seen = sent = 0
        def interrupt(*_):
            global sent
            sent += 1
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        for i in range(300):
            try:  # were one lost, another would come 20 s later
                signal.setitimer(signal.ITIMER_REAL, 0.002 + i * 1e-6, 20)
                work()
            except KeyboardInterrupt:
                seen += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        held = None
        print(seen, sent, live_nodes() - constants, len(memo), len(pool.owners),
              sum(holding() is None for holding in pool.owners.values()),
              sum(len(free.blocks) for free in pool._classes.values()))
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=120,
                          capture_output=True, text=True, env=dict(os.environ))
    assert done.stderr == ""
    seen, sent, nodes, entries, blocks, nobodys, free = map(int, done.stdout.split())
    assert seen == sent == 300 and nodes < 50 and entries < 50
    assert blocks == nobodys == free < 3000


def test_what_another_thread_puts_in_while_the_dead_are_forgotten_stays() -> None:
    """A new object may have the address of a dead one: removing the dead entry keeps the new
    one."""
    class Refs(dict[int, Any]):
        """Lets another thread run after a lookup."""

        def get(self, key: int, default: Any = None) -> Any:
            found = super().get(key, default)
            if forgetting and threading.current_thread() is threading.main_thread():
                forgetting.clear()
                thread.start()
                thread.join(0.3)  # it goes on after this lookup, or waits for its end
            return found

    memo: WeakMemo[Any, int] = WeakMemo()
    memo._refs, forgetting = Refs(), []
    old, new = Key(), Key()
    memo[old] = 1
    dead = memo._refs.pop(id(old))
    dead.key = id(new)  # as if it had been there
    memo._refs[id(new)] = dead
    thread = threading.Thread(target=memo.__setitem__, args=(new, 2))
    forgetting.append(True)
    del old
    assert len(memo) in (0, 1)
    thread.join()
    assert memo[new] == 2
