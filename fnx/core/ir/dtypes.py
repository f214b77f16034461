"""Dtypes: one object per type, compared by identity; and JAX's promotion lattice.

>>> promote(int32, False, float32, True)       # int32 with a weak (Python) float
(float32, True)
>>> promote(float64, False, float32, True)
(float64, False)
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Any, Literal
from zlib import crc32

import numpy as np

from fnx.core.support.config import config
from fnx.core.support.errors import DTypeError, TypePromotionError
from fnx.core.support.name_hints import suggestion

NDArray = np.ndarray[Any, Any]
DTypeKind = Literal["bool", "int", "uint", "float", "complex", "key", "index", "void"]


class DType:
    """An element type. Interned: compare with ``is``. ``lanes`` > 1 only at program level.

    Attributes:
        kind, bits: bool, int, uint, float, complex, key (of random numbers), index (integers of a
            kernel) or void; and the width.
        is_float, is_complex, is_integer, is_bool: tests of the kind; attributes, as they are read
            often. ``is_inexact``: a float or complex, which has derivatives.
        itemsize: bytes of one element in memory.
        limits: the smallest and the largest value of integers and bools.
        mantissa, exponent: of a float, the numbers of stored bits of each.
        integer: the signed integer type of the same width.
        compute: the type in which ops that the machine lacks are computed.
        real: of a complex type, the type of its parts; else the type itself.
        storage: of a storage-only type (every op converts to ``compute`` and back), the unsigned
            integer type of its bits in memory; else None.
        finite: of a float, whether it has no infinity, so that overflow gives NaN.
        packing: its little-endian ``struct`` format.
        vector_types: vector types by number of lanes.
    """

    __slots__ = ("__weakref__", "name", "code", "kind", "bits", "limits", "mantissa",
                 "exponent", "integer", "compute", "storage", "has_no_inf", "packing", "lanes",
                 "scalar", "is_float", "is_complex", "is_inexact", "real", "is_integer", "is_bool",
                 "itemsize", "vector_types", "_np")

    def __init__(self, name: str, kind: DTypeKind, bits: int, numpy: str | None = None, *,
                 mantissa: int = 0, exponent: int = 0, integer: DType | None = None,
                 compute: DType | None = None, storage: DType | None = None,
                 finite: bool = False, lanes: int = 1, scalar: DType | None = None,
                 real: DType | None = None) -> None:
        self.name = name
        self.code = crc32(name.encode())  # the same in every process
        self.kind: DTypeKind = kind
        self.bits = bits
        self.itemsize = max(1, bits // 8)
        self.is_float = kind == "float"
        self.is_complex = kind == "complex"
        self.is_inexact = self.is_float or self.is_complex
        self.real: DType = real or self
        self.is_bool = kind == "bool"
        self.is_integer = kind in ("int", "uint", "index")
        self.limits = _limits(kind, bits)
        self.mantissa = mantissa
        self.exponent = exponent
        self.integer: DType = integer or self
        self.compute: DType = compute or self
        self.storage = storage
        self.has_no_inf = finite
        self.lanes = lanes
        self.scalar: DType = scalar or self
        self.packing = Struct("<x")
        self._np: np.dtype[Any] | None = None
        if numpy is not None:
            self._np = np.dtype(numpy)
            if real is None:
                self.packing = Struct(f"<{self._np.char}")
        elif storage is not None:
            self._np = np.dtype([(name, storage.np)])
        self.vector_types = _Vectors(self)

    @property
    def bias(self) -> int:
        """The exponent bias of a float."""
        return (1 << self.exponent - 1) - 1

    def vec(self, lanes: int) -> DType:
        """Return the vector type of ``lanes`` elements (program level)."""
        return self.vector_types[lanes]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype, so that ``np.dtype(fnx.float32)`` works."""
        return self.np

    @property
    def np(self) -> np.dtype[Any]:
        """The NumPy dtype that holds one element (int64 for ``index``).

        A type that NumPy lacks is held as a record of its bits, which ufuncs refuse;
        core/ir/low_precision.py decodes its values.
        """
        if self._np is None:
            raise DTypeError(f"{self.name} has no NumPy type")
        return self._np

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return (dtype_by_name, (self.name,))


class _Vectors(dict[int, "DType"]):
    """Vector types by number of lanes, each made on first use."""

    def __init__(self, element: DType) -> None:
        self[1] = element

    def __missing__(self, lanes: int) -> DType:
        element = self[1]
        name = f"{element.name}x{lanes}"
        vector = DType(name, element.kind, element.bits, lanes=lanes, scalar=element)
        return self.setdefault(lanes, vector)


def _limits(kind: DTypeKind, bits: int) -> tuple[int, int]:
    """Return the smallest and the largest integer of a width."""
    half = 1 << bits >> 1
    return (0, 2 * half - 1) if kind in ("uint", "bool", "key") else (-half, half - 1)


bool_ = DType("bool", "bool", 1, "bool")
int32 = DType("int32", "int", 32, "int32")
int8 = DType("int8", "int", 8, "int8", compute=int32)
int16 = DType("int16", "int", 16, "int16", compute=int32)
int64 = DType("int64", "int", 64, "int64")
uint32 = DType("uint32", "uint", 32, "uint32", integer=int32)
uint8 = DType("uint8", "uint", 8, "uint8", integer=int8, compute=uint32)
uint16 = DType("uint16", "uint", 16, "uint16", integer=int16, compute=uint32)
uint64 = DType("uint64", "uint", 64, "uint64", integer=int64)
index = DType("index", "index", 64, "int64")
int4 = DType("int4", "int", 4, compute=int32, storage=uint8)
uint4 = DType("uint4", "uint", 4, integer=int4, compute=uint32, storage=uint8)
float32 = DType("float32", "float", 32, "float32", mantissa=23, exponent=8, integer=int32)
float64 = DType("float64", "float", 64, "float64", mantissa=52, exponent=11, integer=int64)
float16 = DType("float16", "float", 16, "float16", mantissa=10, exponent=5, integer=int16,
                compute=float32, storage=uint16)
bfloat16 = DType("bfloat16", "float", 16, mantissa=7, exponent=8, integer=int16,
                 compute=float32, storage=uint16)
float8_e4m3fn = DType("float8_e4m3fn", "float", 8, mantissa=3, exponent=4, integer=int8,
                      compute=float32, storage=uint8, finite=True)
float8_e5m2 = DType("float8_e5m2", "float", 8, mantissa=2, exponent=5, integer=int8,
                    compute=float32, storage=uint8)
complex64 = DType("complex64", "complex", 64, "complex64", real=float32)
complex128 = DType("complex128", "complex", 128, "complex128", real=float64)
key_fry = DType("key<fry>", "key", 64, integer=int64, compute=uint64, storage=uint64)
void = DType("void", "void", 0)

USER: tuple[DType, ...] = (
    bool_, int4, int8, int16, int32, int64, uint4, uint8, uint16, uint32, uint64,
    float8_e4m3fn, float8_e5m2, bfloat16, float16, float32, float64, complex64, complex128)
ALL: tuple[DType, ...] = (*USER, key_fry, index, void)
STORAGE_ONLY = frozenset(t for t in ALL if t.storage is not None)  # storage-only types
_BY_NAME = {t.name: t for t in ALL}
_BY_NUMPY = {t.np: t for t in (*USER, key_fry)}  # those of ml_dtypes are added on first use
NUMPY_DTYPES = frozenset(_BY_NUMPY)
COMPLEX = frozenset({complex64, complex128})
LOW_PRECISION = {t.name: t for t in USER if t._np is not None and t._np.names}

# Without config.x64, default 64-bit types become 32 bits wide.
_WITHOUT_X64 = {int64: int32, uint64: uint32, float64: float32, complex128: complex64}
# names without a width
_WITHOUT_WIDTH = {"int": int64, "uint": uint64, "float": float64, "complex": complex128}


def dtype_by_name(name: str) -> DType:
    """Return the type with this name; ``float32x16`` names a vector type."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    base, _, lanes = name.rpartition("x")
    return _BY_NAME[base].vec(int(lanes))


def as_dtype(spec: Any) -> DType:
    """Convert a DType, a NumPy dtype or scalar type, a name, or Python's number types to a DType.

    ``float``, ``int`` and ``complex``, as types or strings, and "uint" mean the default width
    (32 bits, 64 under ``config.x64``; complex: of each part); a spec that names a width has that
    width.

    Raises:
        DTypeError: fnx does not support the type, or the spec is an array.

    >>> as_dtype("float"), as_dtype(int), as_dtype("float64"), as_dtype(np.int64)
    (float32, int32, float64, int64)
    """
    if isinstance(spec, np.dtype) and spec in _BY_NUMPY:  # the usual case
        return _BY_NUMPY[spec]
    if isinstance(spec, DType):
        return spec
    if spec is bool:
        return bool_
    if spec is int:
        return default_width(int64)
    if spec is float:
        return default_width(float64)
    if spec is complex:
        return default_width(complex128)
    if isinstance(spec, str):
        if spec in _WITHOUT_WIDTH:
            return default_width(_WITHOUT_WIDTH[spec])
        dtype = LOW_PRECISION.get(spec)
    else:
        if is_array(spec):
            raise DTypeError(f"expected a dtype, got {array_words(spec)}",
                             hint="write dtype=x.dtype for the dtype of an array x")
        dtype = getattr(spec, "dtype", None)
    if isinstance(dtype, DType):
        return dtype
    return _from_numpy(spec)


def is_array(x: Any) -> bool:
    """Whether x is an array of this or another library, not a NumPy scalar or a dtype."""
    return hasattr(type(x), "__array__") and not isinstance(x, np.generic)


def array_words(x: Any) -> str:
    """Describe an array in an error, without its values; anything else by its repr."""
    return f"an array of {x.dtype}{list(x.shape)}" if is_array(x) else repr(x)


def _from_numpy(spec: Any) -> DType:
    """Return the DType of a spec that NumPy or ml_dtypes understands."""
    try:
        np_dtype = np.dtype(spec)
    except TypeError as e:
        raise DTypeError(f"expected a dtype, got {spec!r}",
                         hint="a shape is one argument, such as (2, 3)" if type(spec) is int else
                         isinstance(spec, str) and suggestion(spec, [str(t) for t in _BY_NUMPY])
                         or "use fnx.numpy.float32, a NumPy dtype or a name") from e
    dtype = _BY_NUMPY.get(np_dtype)
    if dtype is None:
        dtype = LOW_PRECISION.get(np_dtype.name)
        if dtype is None or np_dtype.itemsize != dtype.itemsize:
            raise _unsupported_dtype(str(np_dtype))
        _BY_NUMPY[np_dtype] = dtype
    return dtype


def default_width(t: DType) -> DType:
    """Return the default form of a 64-bit type: 32 bits wide, unless ``config.x64``.

    >>> default_width(int64)
    int32
    """
    return t if config.x64 else _WITHOUT_X64.get(t, t)


def inexact(t: DType) -> DType:
    """Return the inexact type that a type converts to in functions of inexact numbers.

    >>> inexact(uint8), inexact(int64), inexact(complex64)
    (float32, float64, complex64)
    """
    return t if t.is_inexact else float64 if t.is_integer and t.bits == 64 else float32


def complex_of(t: DType) -> DType:
    """Return the complex type whose parts hold the numbers of a type.

    >>> complex_of(float16), complex_of(float64), complex_of(complex64), complex_of(int64)
    (complex64, complex128, complex64, complex128)
    """
    return t if t.is_complex else complex128 if t.bits == 64 else complex64


def random_key_error() -> DTypeError:
    """Return the error for random keys where numbers are expected."""
    return DTypeError("expected numbers, got random keys",
                      hint="convert them with fnx.random.key_data(keys)")


def unsigned(t: DType) -> DType:
    """Return the unsigned integer type of the same width.

    >>> unsigned(int16)
    uint16
    """
    return next(u for u in USER if u.kind == "uint" and u.bits == t.bits)


def _unsupported_dtype(name: str) -> DTypeError:
    return DTypeError(f"expected one of {', '.join(t.name for t in USER)}; got {name}",
                      hint="convert the data with .astype(...) first")


# ---- promotion ----------------------------------------------------------------------------------

# JAX's lattice: the types that each type promotes to in one step. int* and float* are the weak
# types of Python numbers.
_PROMOTES_TO: dict[str, tuple[str, ...]] = {
    "bool": ("int*",), "int*": ("uint2", "uint4", "uint8", "int2", "int4", "int8"),
    "int8": ("int16",), "int16": ("int32",), "int32": ("int64",), "int64": ("float*",),
    "uint8": ("int16", "uint16"), "uint16": ("int32", "uint32"), "uint32": ("int64", "uint64"),
    "uint64": ("float*",), "int2": (), "uint2": (), "int4": (), "uint4": (),
    "float*": ("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "complex*"),
    "float8_e4m3fn": (), "float8_e5m2": (),
    "bfloat16": ("float32",), "float16": ("float32",),
    "float32": ("float64", "complex64"), "float64": ("complex128",),
    "complex*": ("complex64",), "complex64": ("complex128",), "complex128": (),
    "key<fry>": (),
}
_WEAK = {"bool": "bool", "int": "int*", "uint": "int*", "index": "int*", "float": "float*",
         "complex": "complex*", "key": "key<fry>"}


def least_upper_bound(a: str, b: str) -> str:
    """Return the narrowest type that both promote to.

    Raises:
        TypePromotionError: there is none; one operand must be converted.
    """
    common = _upper_bounds(a) & _upper_bounds(b)
    for name in common:
        if common <= _upper_bounds(name):
            return name
    raise TypePromotionError(f"{a} and {b} have no common type to which both promote",
                             hint=conversion_hint(a, b))


def conversion_hint(a: Any, b: Any, otherwise: str = "convert one of them with .astype(...)"
                    ) -> str:
    """Return how to give two values one dtype; ``otherwise`` if neither is a random key.

    >>> conversion_hint("key<fry>", "int32")
    'a key is no number: fnx.random.fold_in(key, n) makes another key of it'
    """
    names = {str(a), str(b)}
    if "key<fry>" not in names:
        return otherwise
    return ("random.PRNGKey returns the words of a key, random.key a key: use one of them "
            "everywhere, or convert by random.wrap_key_data(words) and random.key_data(key)"
            if "uint32" in names else
            "a key is no number: fnx.random.fold_in(key, n) makes another key of it")


def _upper_bounds(name: str) -> frozenset[str]:
    """Return the types that a type promotes to, including itself."""
    return frozenset({name}).union(*[_upper_bounds(wider) for wider in _PROMOTES_TO[name]])


def promote(a: DType, a_weak: bool, b: DType, b_weak: bool) -> tuple[DType, bool]:
    """Return the common type of two operands, and whether it is weak, by JAX's lattice.

    A weak operand (a Python scalar) yields to the other unless it is of a higher kind. Without
    ``config.x64`` narrower types never promote to a 64-bit type: uint32 with int32 is int32.

    Raises:
        TypePromotionError: they have no common type, or one of them would have to be converted and
            ``config.dtype_promotion`` is "strict".
    """
    if a is not b and config.dtype_promotion == "strict":
        _check_strict(a, a_weak, b, b_weak)
    return _promote_cached(a, a_weak, b, b_weak, config.x64)


_RANKS = {"uint": 0, "int": 0, "float": 1, "complex": 2}  # a weak number yields to its rank and up


def _check_strict(a: DType, a_weak: bool, b: DType, b_weak: bool) -> None:
    """Raise unless a weak number takes the type of an operand of its kind or a higher one."""
    weak, strong = (a, b) if a_weak else (b, a)
    rank, other = _RANKS.get(weak.kind, 9), _RANKS.get(strong.kind, -1)
    if not (a_weak or b_weak) or rank > other and not (a_weak and b_weak):
        raise TypePromotionError(
            f"expected operands of one dtype, got {a} and {b}, under "
            'numpy_dtype_promotion("strict")', hint="convert one of them with .astype")


@cache  # read by each eager call that is new
def _promote_cached(a: DType, a_weak: bool, b: DType, b_weak: bool,
                    x64: bool) -> tuple[DType, bool]:
    if a_weak == b_weak:
        name = least_upper_bound(a.name, b.name)
        common = _BY_NAME["float64" if name == "float*" else name]
        keeps_width = x64 or common.real.bits == max(a.real.bits, b.real.bits)
        return common if keeps_width else _WITHOUT_X64.get(common, common), \
            (a_weak or name == "float*") and not (a.is_bool and b.is_bool)
    weak, strong = (a, b) if a_weak else (b, a)
    name = least_upper_bound(_WEAK[weak.kind], strong.name)
    return (weak, True) if name.endswith("*") else (_BY_NAME[name], False)
