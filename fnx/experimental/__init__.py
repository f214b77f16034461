"""Functions under the names of ``jax.experimental``."""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.experimental.x64_context import disable_x64, enable_x64
from fnx.transforms.host_callbacks import io_callback

if TYPE_CHECKING:  # loaded on first use
    from fnx.experimental import (
        checkify,
        jet,
        mesh_utils,
        multihost_utils,
        ode,
        pallas,
        serialize_executable,
        sparse,
    )

__all__ = ["checkify", "disable_x64", "enable_x64", "io_callback", "jet", "mesh_utils",
           "multihost_utils", "ode", "pallas", "serialize_executable", "sparse"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules={
        name: f"fnx.experimental.{name}"
        for name in ("checkify", "jet", "mesh_utils", "multihost_utils", "ode", "pallas",
                     "serialize_executable", "sparse")})
