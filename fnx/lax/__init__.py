"""The functions of ``jax.lax``: array and shape operations, control flow, collectives."""

from typing import TYPE_CHECKING, Any

from fnx.core.support.errors import lazy_module
from fnx.core.support.process import lazy_import
from fnx.lax import (
    barrier,
    contraction,
    control_flow,
    convolution,
    cumulative,
    elementwise,
    gather_scatter,
    generic_reductions,
    parallel,
    reductions,
    shape_ops,
    slicing,
    sorting,
)
from fnx.lax.barrier import *
from fnx.lax.contraction import *
from fnx.lax.control_flow import *
from fnx.lax.convolution import *
from fnx.lax.cumulative import *
from fnx.lax.elementwise import *
from fnx.lax.gather_scatter import *
from fnx.lax.generic_reductions import *
from fnx.lax.parallel import *
from fnx.lax.reductions import *
from fnx.lax.shape_ops import *
from fnx.lax.slicing import *
from fnx.lax.sorting import *

if TYPE_CHECKING:  # loaded on first use
    from fnx.lax import linalg
    from fnx.lax.bit_ops import *
    from fnx.lax.conv_shapes import *
    from fnx.lax.enums import *
    from fnx.lax.fourier import *
    from fnx.lax.gamma_beta import betainc, digamma
    from fnx.lax.gamma_beta import gammainc as igamma
    from fnx.lax.gamma_beta import gammaincc as igammac
    from fnx.lax.gamma_beta import gammaln as lgamma
    from fnx.lax.implicit import *
    from fnx.lax.parallel_permutes import *
    from fnx.lax.ragged import *
    from fnx.lax.special_functions import i0e as bessel_i0e
    from fnx.lax.special_functions import i1e as bessel_i1e
    from fnx.numpy import (
        acos,
        acosh,
        asin,
        asinh,
        atanh,
        broadcast_shapes,
    )
    from fnx.numpy.bits import bitcast_convert_type
    from fnx.sharding import with_sharding_constraint

primitives = lazy_import("fnx.lax.primitives")
_HOMES = {
    **dict.fromkeys((
        "Precision", "PrecisionLike", "RoundingMethod", "broadcast_to_rank", "clz", "collapse",
        "dtype", "population_count", "shape_as_value", "split"), "fnx.lax.enums"),
    **dict.fromkeys((
        "broadcast_like", "conj", "empty", "igamma_grad_a", "imag", "index_take", "mulhi",
        "nextafter", "platform_dependent", "polygamma", "random_gamma_grad", "real",
        "reduce_precision", "stack", "tile", "unstack", "zeta"), "fnx.lax.bit_ops"),
    **dict.fromkeys((
        "ConvGeneralDilatedDimensionNumbers", "DotDimensionNumbers", "conv_general_dilated_local",
        "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple",
        "conv_transpose_shape_tuple", "padtype_to_pads", "reduce_window_shape_tuple"),
        "fnx.lax.conv_shapes"),
    **dict.fromkeys((
        "acos", "acosh", "asin", "asinh", "atanh", "broadcast_shapes"), "fnx.numpy"),
    **dict.fromkeys(("betainc", "digamma"), "fnx.lax.gamma_beta"),
    "bessel_i0e": "fnx.lax.special_functions:i0e", "bessel_i1e": "fnx.lax.special_functions:i1e",
    "igamma": "fnx.lax.gamma_beta:gammainc", "igammac": "fnx.lax.gamma_beta:gammaincc",
    "lgamma": "fnx.lax.gamma_beta:gammaln",
    **dict.fromkeys(("all_to_all", "pbroadcast", "ppermute", "pshuffle", "pswapaxes"),
                    "fnx.lax.parallel_permutes"),
    **dict.fromkeys(("custom_linear_solve", "custom_root"), "fnx.lax.implicit"),
    **dict.fromkeys(("RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general"),
                    "fnx.lax.ragged"),
    "bitcast_convert_type": "fnx.numpy.bits",
    "FftType": "fnx.lax.fourier", "fft": "fnx.lax.fourier",
    "with_sharding_constraint": "fnx.sharding", "linalg": "fnx.lax.linalg",
}

__all__ = [
    *parallel.__all__, *contraction.__all__, *convolution.__all__, *elementwise.__all__,
    *generic_reductions.__all__, *gather_scatter.__all__, *control_flow.__all__,
    *barrier.__all__, *reductions.__all__, *cumulative.__all__, *shape_ops.__all__,
    *slicing.__all__, *sorting.__all__,
    *_HOMES,
]

if not TYPE_CHECKING:  # type checkers would accept any name
    _find_name, __dir__ = lazy_module(__name__, __all__, modules=_HOMES)

    def __getattr__(name: str) -> Any:
        return primitives.primitive(name) if name.endswith("_p") else _find_name(name)
