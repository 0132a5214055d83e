"""Calls of NVML, and one kind of error with a text for everything that goes wrong in them."""

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

__all__ = ["NvmlError", "ask", "ask_or", "ask_to_show"]

_SESSION_ENDED = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""What a session answers whose driver was unloaded or exchanged under it."""

_Default = TypeVar("_Default")


class NvmlError(Exception):
    """NVML did not answer; the text says what was asked and why there is no answer."""

    def __init__(self, asked: str, why: str, code: int = 0) -> None:
        super().__init__(f"{asked}: {why}")
        self.why = why
        self.code = code

    @property
    def is_lost(self) -> bool:
        """The GPU is not there any more, or does nothing until it is reset."""
        return self.code in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)

    @property
    def ends_session(self) -> bool:
        """Asking again is useless before the session is opened anew."""
        return self.code in _SESSION_ENDED

    @property
    def is_driverless(self) -> bool:
        """There is no driver, as on every node without GPUs."""
        return self.code in (
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        )

    @property
    def is_unsupported(self) -> bool:
        return self.code in (
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        )


def ask(asked: str, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlError(asked, _reason(error), int(error.value)) from None
    except pynvml.NVMLLibraryMismatchError as error:
        why = f"the driver is too old for this: {error}"
        raise NvmlError(asked, why, pynvml.NVML_ERROR_NOT_SUPPORTED) from None
    except UnicodeDecodeError as error:
        raise NvmlError(asked, f"the answer is no text: {error}") from None


def ask_or(default: _Default, asked: str, call: Callable[..., Any], *arguments: Any) -> _Default:
    """The answer, or the default where this GPU or driver does not have such a thing."""
    try:
        answer: _Default = ask(asked, call, *arguments)
    except NvmlError as error:
        if not error.is_unsupported:
            raise
        return default
    return answer


def ask_to_show(
    default: _Default, asked: str, call: Callable[..., Any], *arguments: Any
) -> _Default:
    """For what nothing hangs on: a GPU that answers all else is not ill for the want of it."""
    try:
        answer: _Default = ask(asked, call, *arguments)
    except NvmlError as error:
        if error.is_lost or error.ends_session:
            raise
        return default
    return answer


def _reason(error: Any) -> str:
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "libnvidia-ml.so.1 was not found: there is no NVIDIA driver, or it is not mounted"
    if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "the driver was updated under its library; restart the agent to load the new one"
    if error.value == pynvml.NVML_ERROR_NOT_FOUND:
        return "it is not there any more"
    return str(error)
