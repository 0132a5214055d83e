"""The generated binding: whatever worth_layout.h declares."""

from typing import Any

ffi: Any
lib: Any
