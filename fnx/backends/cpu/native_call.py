"""Calls without any Python code: a native method that checks, allocates and runs.

    call(self, *arguments)   ->   the result of the first record that the arguments match
                                  else what the method written in Python returns

A record holds the expected arguments, variables and settings, where memory for results comes from,
and what ``call_entry`` knows about the program. The tuple that contains it retains everything that
it points to. If something differs, or memory has to be allocated from the system first, nothing has
happened yet and the Python method takes over, so this one raises nothing of its own.

It uses Python's C API, and reads slots of a few classes by their offsets, which are determined by
storing a marker in the slot and searching the object for it. If that fails, or threads run without
the GIL, there is no such method.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fnx.backends.cpu import call_entry, layout
from fnx.backends.device.allocator import BlockOwner, Pool
from fnx.backends.device.hcq import HostStorage
from fnx.backends.device.host import BorrowedStorage
from fnx.backends.llvm.ir_builder import IRFunction, ir_function
from fnx.core.array.array import Array
from fnx.core.ir.kernel_code import UNBOUND, NativeCall
from fnx.core.scope import scope
from fnx.core.support.config import config
from fnx.core.support.record import Record

# Constants of all calls: objects, and offsets of slots.
_OBJECTS = ("python", "array", "host", "borrowed", "holding", "open", "scopes", "config", "mode",
            "clear", "true", "false", "none", "zero")
_ARRAY_SLOTS = ("_uop", "_storage", "_value", "_shape", "_dtype", "weak")
_STORAGE_SLOTS = ("ptr", "nbytes", "signal", "timeline", "is_aliased")
_CONSTANTS = {name: i for i, name in enumerate(
    (*_OBJECTS, *_ARRAY_SLOTS, *_STORAGE_SLOTS, "of holding", "records"))}

# Words of a record after those of an entry, then words per row of each of its tables.
_ARGUMENTS, _WATCHES, _SINGLE_RESULT, _QUEUE, _MODE, _OWNERS, _HITS, _TABLES = range(
    call_entry.ENTRY_WORDS, call_entry.ENTRY_WORDS + 8)
_ARGUMENT, _WATCHED, _RESULT = 3, 4, 6
_TYPE = 1  # index of an object's type in its words
_CELL, _WEAK_REF = 1, 2  # flags of a watched variable
_EQUAL = 2  # Py_EQ
_RAISED = 2  # neither 0 nor 1: an exception is set
_METHOD = 0x80 | 0x02  # METH_FASTCALL | METH_KEYWORDS
_DOC = b"__call__($self, /, *args, **kwargs)\n--\n\nCall it."


GLOBALS = "@known = internal global i64 0\n"


@ir_function
def _set_constants(f: IRFunction, address: str) -> None:
    """Set the address of the constants of all calls."""
    f.emit(f"store i64 {address}, ptr @known")


def _constant(f: IRFunction, name: str) -> str:
    """Load a constant of all calls."""
    return f.load("%known", _CONSTANTS[name])


def _load_slot(f: IRFunction, of: str, name: str) -> str:
    return f.load(f.add(of, _constant(f, name)))


def _init_slot(f: IRFunction, of: str, name: str, value: str) -> None:
    """Initialize a slot of a new object."""
    f.call("Py_IncRef", value)
    f.store(f.add(of, _constant(f, name)), 0, value)


# ---- what must hold ---------------------------------------------------------------------------


@ir_function
def _variable(f: IRFunction, row: str) -> None:
    """Return a borrowed reference to the value of a variable, or 0."""
    container = f.load(row, 1)
    with f.when("eq", f.binary("and", f.load(row), _CELL), 0):
        current = f.call("PyDict_GetItemWithError", container, f.load(row, 2))
        with f.when("eq", current, 0):
            f.call("PyErr_Clear")
        f.ret(current)
    current = f.call("PyCell_Get", container)
    with f.when("ne", current, 0):
        f.call("Py_DecRef", current)
    f.ret(current)


@ir_function
def _attribute(f: IRFunction, of: str, name: str) -> None:
    """Return a borrowed reference to an attribute of an object that retains it; 0: an exception is
    set.
    """
    value = f.call("PyObject_GetAttr", of, name)
    f.ret_if(0, "eq", value, 0)
    f.call("Py_DecRef", value)
    f.ret(value)


@ir_function
def _watched(f: IRFunction, known: str, row: str) -> None:
    """Whether a variable still has its expected value."""
    current, value = f.call("variable", row), f.variable(f.load(row, 3))
    with f.when("uge", f.load(row), _WEAK_REF):
        target = f.call("PyObject_CallNoArgs", value.get())
        with f.when("eq", target, 0):
            f.call("PyErr_Clear")
            f.ret(0)
        f.call("Py_DecRef", target)
        f.ret_if(0, "eq", target, _constant(f, "none"))
        value.set(target)
    f.ret_if(0, "ne", current, value.get())
    f.ret(1)


@ir_function
def _matches(f: IRFunction, known: str, record: str, arguments: str) -> None:
    """Whether a record matches these arguments and the current settings.

    ``_RAISED``: an exception is set, as when Ctrl-C comes while a setting is read, which is a
    property inside a ``with`` block.
    """
    count, rows = f.load(record, _ARGUMENTS), f.word_address(record, _TABLES)
    with f.count(count) as i:
        x, row = f.load(arguments, i), f.word_address(rows, f.mul(i, _ARGUMENT))
        f.ret_if(0, "ne", f.load(x, _TYPE), _constant(f, "array"))
        f.ret_if(0, "ne", _load_slot(f, x, "_dtype"), f.load(row, 1))
        f.ret_if(0, "ne", _load_slot(f, x, "weak"), f.load(row, 2))
        shape = _load_slot(f, x, "_shape")
        with f.when("ne", shape, f.load(row)):
            same = f.call("PyObject_RichCompareBool", shape, f.load(row), _EQUAL)
            with f.when("ne", call_entry.c_int(f, same), 1, 32):  # an error is -1
                f.call("PyErr_Clear")
                f.ret(0)
    for owner, name, expected in (
            (_constant(f, "config"), "mode", f.load(record, _MODE)),
            (f.load(record, _QUEUE), "clear", _constant(f, "true"))):
        current = f.call("attribute", owner, _constant(f, name))
        f.ret_if(_RAISED, "eq", current, 0)
        f.ret_if(0, "ne", current, expected)
    rows = f.word_address(rows, f.mul(count, _ARGUMENT))
    with f.count(f.load(record, _WATCHES)) as i:
        row = f.word_address(rows, f.mul(i, _WATCHED))
        f.ret_if(0, "eq", f.call("watched", known, row), 0)
    f.ret(1)


# ---- memory -----------------------------------------------------------------------------------


@ir_function
def _retain_storages(f: IRFunction, known: str, record: str, arguments: str, to: str) -> None:
    """Retain the storages of arguments and captures, in words from ``to`` on. Return the address of
    the rows of results.

    0: a storage is of an unknown type. No foreign code runs in here.
    """
    count = f.load(record, _ARGUMENTS)
    captures = f.word_address(record, f.add(_TABLES, f.add(
        f.mul(count, _ARGUMENT), f.mul(f.load(record, _WATCHES), _WATCHED))))
    with f.count(f.load(record, call_entry.INS)) as i:
        storage = f.variable(0)
        with f.when("ult", i, count):
            storage.set(_load_slot(f, f.load(arguments, i), "_storage"))
        with f.when("uge", i, count):
            storage.set(f.load(captures, f.sub(i, count)))
        held_storage = storage.get()
        kind = f.load(held_storage, _TYPE)
        with (f.when("ne", kind, _constant(f, "host")),
              f.when("ne", kind, _constant(f, "borrowed"))):
            f.call("release_objects", to, i)
            f.ret(0)
        f.call("Py_IncRef", held_storage)
        f.store(f.word_address(to, i), 0, held_storage)
    f.ret(f.word_address(captures, f.sub(f.load(record, call_entry.INS), count)))


@ir_function
def _release_objects(f: IRFunction, objects: str, count: str) -> None:
    with f.count(count) as i:
        f.call("Py_DecRef", f.load(objects, i))


@ir_function
def _new_storage(f: IRFunction, known: str, row: str, signal: str, holdings: str) -> None:
    """Create a storage, as ``HostStorage.one`` does; 0: no block is free, or there is no memory."""
    storage = f.call("PyType_GenericAlloc", _constant(f, "host"), 0)
    f.ret_if(0, "eq", storage, 0)
    free = f.call("PyIter_Next", f.load(row))
    with f.when("eq", free, 0):
        f.call("Py_DecRef", storage)
        f.ret(0)
    pair, push = f.alloca_bytes(16), f.load(row, 1)
    f.store(pair, 0, storage)
    f.store(pair, 1, push)
    owner = f.call("PyObject_Vectorcall", _constant(f, "holding"), pair, 2, 0)
    with f.when("ne", owner, 0):
        address = _load_slot(f, free, "of holding")
        _init_slot(f, owner, "of holding", address)
        _init_slot(f, storage, "ptr", address)
        _init_slot(f, storage, "nbytes", f.load(row, 2))
        _init_slot(f, storage, "signal", signal)
        _init_slot(f, storage, "timeline", _constant(f, "zero"))
        _init_slot(f, storage, "is_aliased", _constant(f, "false"))
        failed = f.call("PyDict_SetItem", holdings, address, owner)
        f.call("Py_DecRef", owner)
        with f.when("ne", call_entry.c_int(f, failed), -1, 32):
            f.call("Py_DecRef", free)
            f.ret(storage)
    f.call("PyErr_Clear")
    f.store(pair, 0, free)
    f.call("release", f.call("PyObject_Vectorcall", push, pair, 1, 0))
    f.call("Py_DecRef", free)
    f.call("Py_DecRef", storage)


@ir_function
def _release(f: IRFunction, result: str) -> None:
    """Release the result of a call, which is 0 if the call failed."""
    with f.when("ne", result, 0):
        f.call("Py_DecRef", result)


@ir_function
def _new_array(f: IRFunction, known: str, record: str, row: str, to: str) -> None:
    """Create an Array on new memory, whose address is written to ``to``; 0 on failure."""
    storage = f.call("new_storage", known, row, f.load(record, _QUEUE),
                     f.load(record, _OWNERS))
    f.ret_if(0, "eq", storage, 0)
    array = f.call("PyType_GenericAlloc", _constant(f, "array"), 0)
    with f.when("eq", array, 0):
        f.call("Py_DecRef", storage)
        f.ret(0)
    _init_slot(f, array, "_uop", _constant(f, "none"))
    _init_slot(f, array, "_value", _constant(f, "none"))
    _init_slot(f, array, "_storage", storage)
    f.call("Py_DecRef", storage)
    for i, name in enumerate(("_shape", "_dtype", "weak")):
        _init_slot(f, array, name, f.load(row, 3 + i))
    f.store(to, 0, f.call("PyLong_AsSsize_t", _load_slot(f, storage, "ptr")))
    f.ret(array)


@ir_function
def _new_results(f: IRFunction, known: str, record: str, rows: str, to: str) -> None:
    """Create the results of a call, and write their addresses from ``to`` on; 0: leave it to
    Python.
    """
    count = f.load(record, call_entry.OUTS)
    with f.when("ne", f.load(record, _SINGLE_RESULT), 0):
        f.ret(f.call("new_array", known, record, rows, to))
    results = f.call("PyTuple_New", count)
    f.ret_if(0, "eq", results, 0)
    with f.count(count) as i:
        row = f.word_address(rows, f.mul(i, _RESULT))
        array = f.call("new_array", known, record, row, f.word_address(to, i))
        with f.when("eq", array, 0):
            f.call("Py_DecRef", results)
            f.ret(0)
        f.call("PyTuple_SetItem", results, i, array)  # steals the reference
    f.ret(results)


# ---- the call ---------------------------------------------------------------------------------


@ir_function
def _launch(f: IRFunction, known: str, record: str, arguments: str) -> None:
    """Run a record on arguments. Return its result, 0 on Ctrl-C, 1 if the record does not match."""
    ins = f.load(record, call_entry.INS)
    matches = f.call("matches", known, record, arguments)
    f.ret_if(1, "eq", matches, 0)
    f.ret_if(0, "eq", matches, _RAISED)
    objects = f.words(ins)
    rows = f.call("retain_storages", known, record, arguments, objects)
    f.ret_if(1, "eq", rows, 0)
    block = f.words(f.load(record, call_entry.BLOCK_WORDS))
    argument_words = f.word_address(block, layout.ARGUMENTS)
    result = f.call("new_results", known, record, rows, f.word_address(argument_words, ins))
    with f.when("eq", result, 0):
        f.call("PyErr_Clear")
        f.call("release_objects", objects, ins)
        f.ret(1)
    with f.count(ins) as i:
        address = _load_slot(f, f.load(f.word_address(objects, i)), "ptr")
        f.store(f.word_address(argument_words, i), 0, f.call("PyLong_AsSsize_t", address))
    interrupted = f.call("run_here", record, block, 0)
    f.call("release_objects", objects, ins)
    hits = f.load(record, _HITS)
    f.store(hits, 0, f.add(f.load(hits), 1))
    with f.when("ne", interrupted, 0):
        f.call("Py_DecRef", result)
        f.ret(0)
    f.ret(result)


@ir_function
def _call_python(f: IRFunction, known: str, self: str, arguments: str, count: str,
                 names: str) -> None:
    """Call the method that is written in Python."""
    named = f.variable(0)
    with f.when("ne", names, 0):
        named.set(f.call("PyTuple_Size", names))
    total = f.add(count, named.get())
    objects = f.words(f.add(total, 1))
    f.store(objects, 0, self)
    with f.count(total) as i:
        f.store(f.word_address(objects, f.add(i, 1)), 0, f.load(f.word_address(arguments, i)))
    f.ret(f.call("PyObject_Vectorcall", _constant(f, "python"), objects, f.add(count, 1), names))


@ir_function
def _call(f: IRFunction, self: str, arguments: str, count: str, names: str) -> None:
    """The method; ``names``: of keywords, whose values follow the arguments."""
    known = f.emit("load i64, ptr @known", "v")
    records = f.load(f.add(self, f.load(known, _CONSTANTS["records"])))
    with f.when("eq", names, 0), f.when("ne", records, 0):
        traces = f.call("PyObject_GetAttr", f.load(known, _CONSTANTS["open"]),
                        f.load(known, _CONSTANTS["scopes"]))
        f.ret_if(0, "eq", traces, 0)
        depth = f.call("PyList_Size", traces)
        f.call("Py_DecRef", traces)
        with f.when("eq", depth, 0):
            f.call("Py_IncRef", records)  # another thread may replace them
            with f.count(f.call("PyTuple_Size", records)) as i:
                entry_tuple = f.call("PyTuple_GetItem", records, i)
                record = f.call("PyLong_AsSsize_t", f.call("PyTuple_GetItem", entry_tuple, 0))
                with f.when("eq", f.load(record, _ARGUMENTS), count):
                    result = f.call("launch", known, record, arguments)
                    with f.when("ne", result, 1):
                        f.call("Py_DecRef", records)
                        f.ret(result)
            f.call("Py_DecRef", records)
    f.ret(f.call("call_python", known, self, arguments, count, names))


FUNCTIONS = (_set_constants, _variable, _attribute, _watched, _matches, _retain_storages,
             _release_objects, _release, _new_storage, _new_array, _new_results, _launch,
             _call_python, _call)

# ---- in Python --------------------------------------------------------------------------------


def _slot_offset(cls: type, name: str, *arguments: Any) -> int:
    """Return the offset of a slot in objects of a class, in bytes; 0: not found."""
    instance: Any = cls.__new__(cls, *arguments)
    mark = object()
    setattr(instance, name, mark)
    words = (ctypes.c_int64 * (cls.__basicsize__ // 8)).from_address(id(instance))
    offsets = [8 * i for i, word in enumerate(words) if word == id(mark)]
    return offsets[0] if len(offsets) == 1 and words[_TYPE] == id(cls) else 0


class NativeCallFactory:
    """Creates the native method of a class, and the records of its objects."""

    def __init__(self, addresses: dict[str, int]) -> None:
        self._addresses = addresses
        # native code points to these for the lifetime of the process
        self._retained: list[Any] = []

    def native_method(self, cls: type, slot: str, python: Callable[..., Any]) -> Any | None:
        """Return a native ``__call__`` for a class whose objects hold a tuple of records in a slot.

        Calls that no record matches go to ``python``. None if this Python implementation is not
        supported.
        """
        if sys.implementation.name != "cpython" or "t" in sys.abiflags:
            return None
        offsets = [*[_slot_offset(Array, name) for name in _ARRAY_SLOTS],
                   *[_slot_offset(HostStorage, name) for name in _STORAGE_SLOTS],
                   _slot_offset(BlockOwner, "ptr", self), _slot_offset(cls, slot)]
        if 0 in offsets:
            return None
        objects = (python, Array, HostStorage, BorrowedStorage, BlockOwner, scope.thread_state,
                   "scopes", config, "mode", "clear", True, False, None, 0)
        known = (ctypes.c_int64 * len(_CONSTANTS))(*map(id, objects), *offsets)
        definition = call_entry.MethodDef(b"__call__", self._addresses["call"], _METHOD, _DOC)
        self._retained += [objects, known, definition]
        ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._addresses["set_constants"])(
            ctypes.addressof(known))
        make: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
            ("PyDescr_NewMethod", ctypes.pythonapi))
        return make(cls, ctypes.addressof(definition))

    @staticmethod
    def record(call: NativeCall, entry_words: Sequence[int], pool: Pool, queue: Any, *keep: Any
               ) -> tuple[Any, ...]:
        """Create a record. Return its address, and the objects that must live as long.

        ``entry_words``: the words of the entry.
        """
        rows: list[Any] = [o for kind in call.arguments for o in kind]
        for container, name, value, weakly in call.guards:
            bits = (0 if type(container) is dict else _CELL) | (_WEAK_REF if weakly else 0)
            rows += [_RawWord(bits), container, name, _RawWord(0) if value is UNBOUND else value]
        rows += call.captured
        for nbytes, kind in zip(call.sizes, call.results):
            rows += [*pool.free_list(nbytes), nbytes, *kind]
        head = [len(call.arguments), len(call.guards), call.single_result, id(queue), id(call.mode),
                id(pool.owners), ctypes.addressof(call.hits)]
        words = [*entry_words, *head, *[o.value if type(o) is _RawWord else id(o) for o in rows]]
        memory = (ctypes.c_int64 * len(words))(*words)
        return ctypes.addressof(memory), memory, rows, queue, pool, call, keep


class _RawWord(Record):
    """A word of a table that is not an object."""

    value: int
