"""Types of the arguments and results of public functions, for annotations.

>>> from fnx.typing import ArrayLike
>>> def double(x: ArrayLike) -> Array:
...     return fnx.numpy.multiply(x, 2)
"""

from typing import TYPE_CHECKING

from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike, ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import lazy_module

__all__ = ["Array", "ArrayLike", "AxisLike", "DTypeLike", "Shape", "ShapeLike"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__)
