"""What type checkers call the arguments and results of public functions.

>>> from fnx.typing import ArrayLike
>>> def double(x: ArrayLike) -> Array:
...     return fnx.numpy.multiply(x, 2)
"""

from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike, ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.ops import Shape

__all__ = ["Array", "ArrayLike", "AxisLike", "DTypeLike", "Shape", "ShapeLike"]
