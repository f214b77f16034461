"""Calls without any Python code: a native method that checks, allocates and runs.

    call(self, *arguments)   ->   the result of the first record that the arguments match
                                  else what the method written in Python returns

A record holds the expected arguments, variables and settings, where memory for results comes from,
and what ``entry`` knows about the program. The tuple that contains it retains everything that it
points to. If something differs, or memory has to be allocated from the system first, nothing has
happened yet and the Python method takes over, so this one raises nothing of its own.

It uses Python's C API, and reads slots of a few classes by their offsets, which are determined by
storing a marker in the slot and searching the object for it. If that fails, or threads run without
the GIL, there is no such method.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from fnx.backends.allocator import Holding, Pool
from fnx.backends.cpu import entry, layout
from fnx.backends.hcq import BorrowedStorage, HostStorage
from fnx.backends.llvm.ir_builder import IRFunction
from fnx.core.array import scope
from fnx.core.array.array import Array
from fnx.core.config import config
from fnx.core.direct import UNBOUND, DirectCall
from fnx.core.record import Record

# Constants of all calls: objects, and offsets of slots.
_OBJECTS = ("python", "array", "host", "borrowed", "holding", "open", "scopes", "config", "mode",
            "clear", "true", "false", "none", "zero")
_OF_ARRAYS = ("_uop", "_storage", "_value", "_shape", "_dtype", "weak")
_OF_STORAGES = ("ptr", "nbytes", "signal", "timeline", "lent")
_KNOWN = {name: i for i, name in enumerate((*_OBJECTS, *_OF_ARRAYS, *_OF_STORAGES, "of holding",
                                            "records"))}

# Words of a record after those of an entry, then words per row of each of its tables.
_ARGUMENTS, _WATCHES, _ALONE, _QUEUE, _MODE, _HOLDINGS, _HITS, _TABLES = range(
    entry.ENTRY_WORDS, entry.ENTRY_WORDS + 8)
_ARGUMENT, _WATCHED, _RESULT = 3, 4, 6
_TYPE = 1  # index of an object's type in its words
_CELL, _WEAKLY = 1, 2  # flags of a watched variable
_EQUAL = 2  # Py_EQ
_RAISED = 2  # neither 0 nor 1: an exception is set
_METHOD = 0x80 | 0x02  # METH_FASTCALL | METH_KEYWORDS
_DOC = b"__call__($self, /, *args, **kwargs)\n--\n\nCall it."


def functions() -> list[IRFunction]:
    """Return ``call``, ``know`` and their helper functions."""
    return [_know(), _variable(), _attribute(), _watched(), _matches(), _kept(), _let_go(),
            _release(), _memory(), _result(), _results(), _launch(), _in_python(), _call()]


GLOBALS = "@known = internal global i64 0\n"


def _know() -> IRFunction:
    """Set the address of the constants of all calls."""
    f = IRFunction("know", ("address",))
    f.line(f"store i64 {f['address']}, ptr @known")
    f.give(0)
    return f


def _of(f: IRFunction, name: str) -> str:
    """Load a constant of all calls."""
    return f.load(f["known"], _KNOWN[name])


def _slot(f: IRFunction, of: str, name: str) -> str:
    return f.load(f.add(of, _of(f, name)))


def _set(f: IRFunction, of: str, name: str, value: str) -> None:
    """Initialize a slot of a new object."""
    f.call("Py_IncRef", value)
    f.store(f.add(of, _of(f, name)), 0, value)


def _unless(f: IRFunction, a: str, b: str) -> AbstractContextManager[None]:
    """Run the block if two words differ."""
    return f.when(f.compare("ne", a, b))


def _is_not(f: IRFunction, number: str, value: int) -> str:
    """Whether a C ``int`` differs from ``value``."""
    return f.line(f"icmp ne i32 {f.line(f'trunc i64 {number} to i32', 's')}, {value}", "c")


# ---- what must hold ---------------------------------------------------------------------------


def _variable() -> IRFunction:
    """Return a borrowed reference to the value of a variable, or 0."""
    f = IRFunction("variable", ("row",))
    where = f.load(f["row"], 1)
    with f.when(f.compare("eq", f.binary("and", f.load(f["row"]), _CELL), 0)):
        now = f.call("PyDict_GetItemWithError", where, f.load(f["row"], 2))
        with f.when(f.compare("eq", now, 0)):
            f.call("PyErr_Clear")
        f.give(now)
    now = f.call("PyCell_Get", where)
    with f.when(f.compare("ne", now, 0)):
        f.call("Py_DecRef", now)
    f.give(now)
    return f


def _attribute() -> IRFunction:
    """Return a borrowed reference to an attribute of an object that retains it; 0: an exception is
    set.
    """
    f = IRFunction("attribute", ("of", "name"))
    found = f.call("PyObject_GetAttr", f["of"], f["name"])
    with f.when(f.compare("eq", found, 0)):
        f.give(0)
    f.call("Py_DecRef", found)
    f.give(found)
    return f


def _watched() -> IRFunction:
    """Whether a variable still has its expected value."""
    f = IRFunction("watched", ("known", "row"))
    now, value = f.call("variable", f["row"]), f.variable(f.load(f["row"], 3))
    with f.when(f.compare("uge", f.load(f["row"]), _WEAKLY)):
        found = f.call("PyObject_CallNoArgs", value.get())
        with f.when(f.compare("eq", found, 0)):
            f.call("PyErr_Clear")
            f.give(0)
        f.call("Py_DecRef", found)
        with f.when(f.compare("eq", found, _of(f, "none"))):
            f.give(0)
        value.set(found)
    with _unless(f, now, value.get()):
        f.give(0)
    f.give(1)
    return f


def _matches() -> IRFunction:
    """Whether a record matches these arguments and the current settings.

    ``_RAISED``: an exception is set, as when Ctrl-C comes while a setting is read, which is a
    property inside a ``with`` block.
    """
    f = IRFunction("matches", ("known", "record", "arguments"))
    count, rows = f.load(f["record"], _ARGUMENTS), f.word(f["record"], _TABLES)
    with f.count(count) as i:
        x, row = f.load(f["arguments"], i), f.word(rows, f.mul(i, _ARGUMENT))
        with _unless(f, f.load(x, _TYPE), _of(f, "array")):
            f.give(0)
        with _unless(f, _slot(f, x, "_dtype"), f.load(row, 1)):
            f.give(0)
        with _unless(f, _slot(f, x, "weak"), f.load(row, 2)):
            f.give(0)
        shape = _slot(f, x, "_shape")
        with _unless(f, shape, f.load(row)):
            same = f.call("PyObject_RichCompareBool", shape, f.load(row), _EQUAL)
            with f.when(_is_not(f, same, 1)):  # an error is -1
                f.call("PyErr_Clear")
                f.give(0)
    for of, name, wanted in (
            (_of(f, "config"), "mode", f.load(f["record"], _MODE)),
            (f.load(f["record"], _QUEUE), "clear", _of(f, "true"))):
        found = f.call("attribute", of, _of(f, name))
        with f.when(f.compare("eq", found, 0)):
            f.give(_RAISED)
        with _unless(f, found, wanted):
            f.give(0)
    rows = f.word(rows, f.mul(count, _ARGUMENT))
    with f.count(f.load(f["record"], _WATCHES)) as i:
        row = f.word(rows, f.mul(i, _WATCHED))
        with f.when(f.compare("eq", f.call("watched", f["known"], row), 0)):
            f.give(0)
    f.give(1)
    return f


# ---- memory -----------------------------------------------------------------------------------


def _kept() -> IRFunction:
    """Retain the storages of arguments and captures, in words from ``to`` on. Return the address of
    the rows of results.

    0: a storage is of an unknown type. No foreign code runs in here.
    """
    f = IRFunction("kept", ("known", "record", "arguments", "to"))
    count = f.load(f["record"], _ARGUMENTS)
    captures = f.word(f["record"], f.add(_TABLES, f.add(
        f.mul(count, _ARGUMENT), f.mul(f.load(f["record"], _WATCHES), _WATCHED))))
    with f.count(f.load(f["record"], entry.INS)) as i:
        storage = f.variable(0)
        with f.when(f.compare("ult", i, count)):
            storage.set(_slot(f, f.load(f["arguments"], i), "_storage"))
        with f.when(f.compare("uge", i, count)):
            storage.set(f.load(captures, f.sub(i, count)))
        found = storage.get()
        kind = f.load(found, _TYPE)
        with _unless(f, kind, _of(f, "host")), _unless(f, kind, _of(f, "borrowed")):
            f.call("let_go", f["to"], i)
            f.give(0)
        f.call("Py_IncRef", found)
        f.store(f.word(f["to"], i), 0, found)
    f.give(f.word(captures, f.sub(f.load(f["record"], entry.INS), count)))
    return f


def _let_go() -> IRFunction:
    f = IRFunction("let_go", ("objects", "count"))
    with f.count(f["count"]) as i:
        f.call("Py_DecRef", f.load(f["objects"], i))
    f.give(0)
    return f


def _memory() -> IRFunction:
    """Create a storage, as ``HostStorage.one`` does; 0: no block is free, or there is no memory."""
    f = IRFunction("memory", ("known", "row", "signal", "holdings"))
    storage = f.call("PyType_GenericAlloc", _of(f, "host"), 0)
    with f.when(f.compare("eq", storage, 0)):
        f.give(0)
    free = f.call("PyIter_Next", f.load(f["row"]))
    with f.when(f.compare("eq", free, 0)):
        f.call("Py_DecRef", storage)
        f.give(0)
    pair, give = f.space(16), f.load(f["row"], 1)
    f.store(pair, 0, storage)
    f.store(pair, 1, give)
    holding = f.call("PyObject_Vectorcall", _of(f, "holding"), pair, 2, 0)
    with f.when(f.compare("ne", holding, 0)):
        address = _slot(f, free, "of holding")
        _set(f, holding, "of holding", address)
        _set(f, storage, "ptr", address)
        _set(f, storage, "nbytes", f.load(f["row"], 2))
        _set(f, storage, "signal", f["signal"])
        _set(f, storage, "timeline", _of(f, "zero"))
        _set(f, storage, "lent", _of(f, "false"))
        failed = f.call("PyDict_SetItem", f["holdings"], address, holding)
        f.call("Py_DecRef", holding)
        with f.when(_is_not(f, failed, -1)):
            f.call("Py_DecRef", free)
            f.give(storage)
    f.call("PyErr_Clear")
    f.store(pair, 0, free)
    f.call("release", f.call("PyObject_Vectorcall", give, pair, 1, 0))
    f.call("Py_DecRef", free)
    f.call("Py_DecRef", storage)
    f.give(0)
    return f


def _release() -> IRFunction:
    """Release the result of a call, which is 0 if the call failed."""
    f = IRFunction("release", ("found",))
    with f.when(f.compare("ne", f["found"], 0)):
        f.call("Py_DecRef", f["found"])
    f.give(0)
    return f


def _result() -> IRFunction:
    """Create an Array on new memory, whose address is written to ``to``; 0 on failure."""
    f = IRFunction("result", ("known", "record", "row", "to"))
    storage = f.call("memory", f["known"], f["row"], f.load(f["record"], _QUEUE),
                     f.load(f["record"], _HOLDINGS))
    with f.when(f.compare("eq", storage, 0)):
        f.give(0)
    array = f.call("PyType_GenericAlloc", _of(f, "array"), 0)
    with f.when(f.compare("eq", array, 0)):
        f.call("Py_DecRef", storage)
        f.give(0)
    _set(f, array, "_uop", _of(f, "none"))
    _set(f, array, "_value", _of(f, "none"))
    _set(f, array, "_storage", storage)
    f.call("Py_DecRef", storage)
    for i, name in enumerate(("_shape", "_dtype", "weak")):
        _set(f, array, name, f.load(f["row"], 3 + i))
    f.store(f["to"], 0, f.call("PyLong_AsSsize_t", _slot(f, storage, "ptr")))
    f.give(array)
    return f


def _results() -> IRFunction:
    """Create the results of a call, and write their addresses from ``to`` on; 0: leave it to
    Python.
    """
    f = IRFunction("results", ("known", "record", "rows", "to"))
    count = f.load(f["record"], entry.OUTS)
    with f.when(f.compare("ne", f.load(f["record"], _ALONE), 0)):
        f.give(f.call("result", f["known"], f["record"], f["rows"], f["to"]))
    made = f.call("PyTuple_New", count)
    with f.when(f.compare("eq", made, 0)):
        f.give(0)
    with f.count(count) as i:
        row = f.word(f["rows"], f.mul(i, _RESULT))
        one = f.call("result", f["known"], f["record"], row, f.word(f["to"], i))
        with f.when(f.compare("eq", one, 0)):
            f.call("Py_DecRef", made)
            f.give(0)
        f.call("PyTuple_SetItem", made, i, one)  # steals the reference
    f.give(made)
    return f


# ---- the call ---------------------------------------------------------------------------------


def _launch() -> IRFunction:
    """Run a record on arguments. Return its result, 0 on Ctrl-C, 1 if the record does not match."""
    f = IRFunction("launch", ("known", "record", "arguments"))
    record, ins = f["record"], f.load(f["record"], entry.INS)
    matches = f.call("matches", f["known"], record, f["arguments"])
    with f.when(f.compare("eq", matches, 0)):
        f.give(1)
    with f.when(f.compare("eq", matches, _RAISED)):
        f.give(0)
    objects = f.words(ins)
    rows = f.call("kept", f["known"], record, f["arguments"], objects)
    with f.when(f.compare("eq", rows, 0)):
        f.give(1)
    block = f.words(f.load(record, entry.WORDS))
    place = f.word(block, layout.ARGUMENTS)
    made = f.call("results", f["known"], record, rows, f.word(place, ins))
    with f.when(f.compare("eq", made, 0)):
        f.call("PyErr_Clear")
        f.call("let_go", objects, ins)
        f.give(1)
    with f.count(ins) as i:
        address = _slot(f, f.load(f.word(objects, i)), "ptr")
        f.store(f.word(place, i), 0, f.call("PyLong_AsSsize_t", address))
    stopped = f.call("here", record, block, 0)
    f.call("let_go", objects, ins)
    hits = f.load(record, _HITS)
    f.store(hits, 0, f.add(f.load(hits), 1))
    with f.when(f.compare("ne", stopped, 0)):
        f.call("Py_DecRef", made)
        f.give(0)
    f.give(made)
    return f


def _in_python() -> IRFunction:
    """Call the method that is written in Python."""
    f = IRFunction("in_python", ("known", "self", "arguments", "count", "names"))
    named = f.variable(0)
    with f.when(f.compare("ne", f["names"], 0)):
        named.set(f.call("PyTuple_Size", f["names"]))
    count = f.add(f["count"], named.get())
    objects = f.words(f.add(count, 1))
    f.store(objects, 0, f["self"])
    with f.count(count) as i:
        f.store(f.word(objects, f.add(i, 1)), 0, f.load(f.word(f["arguments"], i)))
    f.give(f.call("PyObject_Vectorcall", _of(f, "python"), objects, f.add(f["count"], 1),
                  f["names"]))
    return f


def _call() -> IRFunction:
    """The method; ``names``: of keywords, whose values follow the arguments."""
    f = IRFunction("call", ("self", "arguments", "count", "names"))
    known = f.line("load i64, ptr @known", "v")
    records = f.load(f.add(f["self"], f.load(known, _KNOWN["records"])))
    with f.when(f.compare("eq", f["names"], 0)), f.when(f.compare("ne", records, 0)):
        traces = f.call("PyObject_GetAttr", f.load(known, _KNOWN["open"]),
                        f.load(known, _KNOWN["scopes"]))
        with f.when(f.compare("eq", traces, 0)):
            f.give(0)
        depth = f.call("PyList_Size", traces)
        f.call("Py_DecRef", traces)
        with f.when(f.compare("eq", depth, 0)):
            f.call("Py_IncRef", records)  # another thread may replace them
            with f.count(f.call("PyTuple_Size", records)) as i:
                held = f.call("PyTuple_GetItem", records, i)
                record = f.call("PyLong_AsSsize_t", f.call("PyTuple_GetItem", held, 0))
                with f.when(f.compare("eq", f.load(record, _ARGUMENTS), f["count"])):
                    made = f.call("launch", known, record, f["arguments"])
                    with f.when(f.compare("ne", made, 1)):
                        f.call("Py_DecRef", records)
                        f.give(made)
            f.call("Py_DecRef", records)
    f.give(f.call("in_python", known, f["self"], f["arguments"], f["count"], f["names"]))
    return f


# ---- in Python --------------------------------------------------------------------------------


def _offset(cls: type, name: str, *arguments: Any) -> int:
    """Return the offset of a slot in objects of a class, in bytes; 0: not found."""
    made: Any = cls.__new__(cls, *arguments)
    mark = object()
    setattr(made, name, mark)
    words = (ctypes.c_int64 * (cls.__basicsize__ // 8)).from_address(id(made))
    found = [8 * i for i, word in enumerate(words) if word == id(mark)]
    return found[0] if len(found) == 1 and words[_TYPE] == id(cls) else 0


class Direct:
    """Creates the native method of a class, and the records of its objects."""

    def __init__(self, addresses: dict[str, int]) -> None:
        self._addresses = addresses
        self._kept: list[Any] = []  # native code points to these for the lifetime of the process

    def method(self, of: type, slot: str, python: Callable[..., Any]) -> Any | None:
        """Return a native ``__call__`` for a class whose objects hold a tuple of records in a slot.

        Calls that no record matches go to ``python``. None if this Python implementation is not
        supported.
        """
        if sys.implementation.name != "cpython" or "t" in sys.abiflags:
            return None
        offsets = [*[_offset(Array, name) for name in _OF_ARRAYS],
                   *[_offset(HostStorage, name) for name in _OF_STORAGES],
                   _offset(Holding, "ptr", self), _offset(of, slot)]
        if 0 in offsets:
            return None
        objects = (python, Array, HostStorage, BorrowedStorage, Holding, scope.of_threads, "scopes",
                   config, "mode", "clear", True, False, None, 0)
        known = (ctypes.c_int64 * len(_KNOWN))(*map(id, objects), *offsets)
        definition = entry.MethodDef(b"__call__", self._addresses["call"], _METHOD, _DOC)
        self._kept += [objects, known, definition]
        ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._addresses["know"])(
            ctypes.addressof(known))
        make: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
            ("PyDescr_NewMethod", ctypes.pythonapi))
        return make(of, ctypes.addressof(definition))

    @staticmethod
    def record(call: DirectCall, known: Sequence[int], pool: Pool, queue: Any, *keep: Any
               ) -> tuple[Any, ...]:
        """Create a record. Return its address, and the objects that must live as long.

        ``known``: the words of the entry.
        """
        rows: list[Any] = [o for kind in call.arguments for o in kind]
        for where, name, value, weakly in call.watched:
            bits = (0 if type(where) is dict else _CELL) | (_WEAKLY if weakly else 0)
            rows += [_Number(bits), where, name, _Number(0) if value is UNBOUND else value]
        rows += call.captured
        for nbytes, kind in zip(call.sizes, call.results):
            rows += [*pool.ways(nbytes), nbytes, *kind]
        head = [len(call.arguments), len(call.watched), call.alone, id(queue), id(call.mode),
                id(pool.holdings), ctypes.addressof(call.hits)]
        words = [*known, *head, *[o.value if type(o) is _Number else id(o) for o in rows]]
        memory = (ctypes.c_int64 * len(words))(*words)
        return ctypes.addressof(memory), memory, rows, queue, pool, call, keep


class _Number(Record):
    """A word of a table that is not an object."""

    value: int
