"""What runs in every container: the preload library, and Python's side of the files it reads."""

from pathlib import Path

__all__ = ["PRELOAD_LIBRARY"]

PRELOAD_LIBRARY = Path(__file__).with_name("libaliquot.so")
