"""Calls a library's functions as it is told on its standard input; see cuda_client.py."""

import ctypes
import json
import sys
from typing import Any


class HandleByValue(ctypes.Structure):
    """CUipcMemHandle, the one struct that is passed by value."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)

    def __init__(self, content: bytes) -> None:
        super().__init__((ctypes.c_ubyte * 64)(*content))


def serve(library: ctypes.CDLL) -> None:
    for line in sys.stdin:
        name, words = json.loads(line)
        written: list[Any] = []
        arguments: list[Any] = []
        for word in words:
            if word == "out":
                written.append(ctypes.c_uint64(0))
                arguments.append(ctypes.byref(written[-1]))
            elif isinstance(word, dict):
                ((kind, digits),) = word.items()
                content = bytes.fromhex(digits)
                if kind == "value":
                    arguments.append(HandleByValue(content))
                    continue
                buffer = ctypes.create_string_buffer(content, len(content))
                arguments.append(buffer)
                if kind == "inout":
                    written.append(buffer)
            elif isinstance(word, str):
                arguments.append(word.encode())
            else:
                arguments.append(ctypes.c_uint64(word))
        result = getattr(library, name)(*arguments)
        values = [
            cell.value if isinstance(cell, ctypes.c_uint64) else cell.raw.hex() for cell in written
        ]
        print(json.dumps([result, *values]), flush=True)


if __name__ == "__main__":
    serve(ctypes.CDLL(sys.argv[1]))
