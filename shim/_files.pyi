"""The generated binding: whatever limits_layout.h and usage_layout.h declare."""

from typing import Any

ffi: Any
lib: Any
