"""Reads node, pod, arrival and event lists, and writes decisions; errors name file and line."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scheduler_ext.placement import Gpu, Node, Request

# Lists without GPU memory mean: the same share of memory as of compute.
GPU_MEMORY_UNITS = 1000


class InputError(Exception):
    """One line that says in which file and line what is wrong."""


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    request: Request

    @property
    def gpu_milli(self) -> int:
        return self.request.gpus * self.request.compute_milli


@dataclass(frozen=True, slots=True)
class Event:
    time: float
    seq: str
    arrives: bool
    pod: Pod


class _Row:
    """One line of a list, whose fields are read with the place of the error at hand."""

    def __init__(self, path: Path, line: int, fields: dict[str, str]) -> None:
        self.place = f"{path}:{line}"
        self._fields = fields

    def text(self, name: str) -> str:
        return self._fields[name]

    def optional(self, name: str) -> str:
        return self._fields.get(name, "")

    def whole_number(self, name: str) -> int:
        # Programs that know missing numbers write "12000.0".
        text = self._fields[name].removesuffix(".0")
        # Digits only: int() would also take "1_000", " 7" and other scripts' digits.
        if not (text.isascii() and text.isdigit()) or len(text) > 15:
            raise self.wrong(f"{name} is {self._fields[name]!r}, not a whole number")
        return int(text)

    def time(self, name: str) -> float:
        try:
            value = float(self._fields[name])
        except ValueError:
            raise self.wrong(f"{name} is {self._fields[name]!r}, not a number") from None
        if not 0 <= value < float("inf"):
            raise self.wrong(f"{name} is {self._fields[name]!r}, not a time")
        return value

    def wrong(self, text: str) -> InputError:
        return InputError(f"{self.place}: {text}")


def read_nodes(path: Path) -> list[Node]:
    nodes: list[Node] = []
    names: set[str] = set()
    for row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        name = row.text("sn")
        if not name or name in names:
            raise row.wrong(f"node {name!r} has no name of its own")
        names.add(name)
        gpus = tuple(
            Gpu(f"{name}/{device}", row.text("model"), GPU_MEMORY_UNITS)
            for device in range(_at_most(row, "gpu", 16))
        )
        nodes.append(
            Node(name, row.whole_number("cpu_milli"), row.whole_number("memory_mib"), gpus)
        )
    if not any(node.gpus for node in nodes):
        raise InputError(f"{path}: no node has a GPU")
    return nodes


def read_pods(path: Path) -> list[Pod]:
    pods = [_pod(row, "name") for row in _rows(path, ("name", *_REQUEST))]
    if not any(pod.gpu_milli for pod in pods):
        raise InputError(f"{path}: no pod asks for a GPU")
    return pods


def read_arrivals(path: Path) -> list[Event]:
    events: list[Event] = []
    seen: set[str] = set()
    for row in _rows(path, ("seq", "pod", *_REQUEST)):
        if row.optional("event"):
            raise row.wrong("a list with arrivals and leaves is read by --events")
        _claim(row, seen)
        events.append(Event(0.0, row.text("seq"), True, _pod(row, "pod")))
    return events


def read_events(path: Path) -> list[Event]:
    events: list[Event] = []
    arrived: dict[str, Pod] = {}
    left: set[str] = set()
    for row in _rows(path, ("time", "seq", "event", "pod", *_REQUEST)):
        seq, kind, time = row.text("seq"), row.text("event"), row.time("time")
        if events and time < events[-1].time:
            raise row.wrong(f"time {row.text('time')} is before the line above")
        if kind == "arrive":
            if seq in arrived:
                raise row.wrong(f"seq {seq!r} arrived before")
            arrived[seq] = _pod(row, "pod")
        elif kind != "leave":
            raise row.wrong(f"event is {kind!r}, neither 'arrive' nor 'leave'")
        elif seq not in arrived or seq in left:
            raise row.wrong(f"seq {seq!r} is not there to leave")
        else:
            left.add(seq)
        events.append(Event(time, seq, kind == "arrive", arrived[seq]))
    return events


def write_decisions(path: Path, rows: list[tuple[str, str, tuple[int, ...]]]) -> None:
    lines = ["seq,node,devices\n"]
    for seq, node, devices in rows:
        lines.append(f"{seq},{node},{'-'.join(map(str, devices))}\n")
    text = "".join(lines)
    try:
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


_REQUEST = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


def _pod(row: _Row, name: str) -> Pod:
    gpus, compute = row.whole_number("num_gpu"), _at_most(row, "gpu_milli", 1000)
    if gpus and not compute:
        raise row.wrong("gpu_milli is 0 with num_gpu above 0")
    # An optional column, for lists in which memory and compute differ.
    memory = compute
    if row.optional("gpu_memory_milli"):
        memory = _at_most(row, "gpu_memory_milli", GPU_MEMORY_UNITS)
    models = frozenset(filter(None, row.optional("gpu_spec").split("|")))
    request = Request(
        row.whole_number("cpu_milli"),
        row.whole_number("memory_mib"),
        gpus,
        compute if gpus else 0,
        memory if gpus else 0,
        models if gpus else frozenset(),
    )
    return Pod(row.text(name), request)


def _at_most(row: _Row, name: str, most: int) -> int:
    value = row.whole_number(name)
    if value > most:
        raise row.wrong(f"{name} is {value}, more than {most}")
    return value


def _claim(row: _Row, seen: set[str]) -> None:
    seq = row.text("seq")
    if seq in seen:
        raise row.wrong(f"seq {seq!r} arrived before")
    seen.add(seq)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        # Spreadsheets put a mark before the first column's name.
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise InputError(f"{path}: the gzip data is damaged") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text") from None
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader, [])
    for column in columns:
        if column not in header:
            raise InputError(f"{path}:1: there is no column {column!r}")
    try:
        for fields in reader:
            if not fields:
                continue
            if len(fields) != len(header):
                raise InputError(
                    f"{path}:{reader.line_num}: {len(fields)} fields, the header has {len(header)}"
                )
            yield _Row(path, reader.line_num, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}") from None
