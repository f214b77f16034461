"""Where a product with few rows is one of dot products along contiguous terms."""

from __future__ import annotations

# Dot products instead of packing: least vectors along the sum; terms that pay for the horizontal
# reduction, in thirds for each row; most rows, beyond which enough of them share a packed factor.
_MIN_VECTORS, _REDUCTION_COST, _MAX_ROWS = 4, 3, 96


def takes_dots(rows: int, terms: int, lanes: int) -> bool:
    """Whether so few rows are multiplied that packing the other factor, whose columns are strided,
    costs more than to add the lanes of each result at the end of its sum.

    >>> takes_dots(8, 512, 16), takes_dots(8, 32, 16), takes_dots(200, 2048, 16)
    (True, False, False)
    """
    return terms >= _MIN_VECTORS * lanes and \
        rows * lanes <= min(_REDUCTION_COST * terms, _MAX_ROWS * lanes)
