"""NumPy, which is needed for arrays only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import LlmccError, Status

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    #: An array of float32.
    Floats = npt.NDArray[np.float32]


def numpy_of(what: str) -> Any:
    """The module.

    :param what: what needs it.
    :raises LlmccError: it is not installed.
    """
    try:
        import numpy
    except ImportError:
        message = f"{what} need NumPy: `pip install numpy`, or pass numpy=False to get lists"
        raise LlmccError(message, Status.UNSUPPORTED) from None
    return numpy
