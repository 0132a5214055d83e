"""Answers what users ask of running pods through the `resize` annotation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aliquot.protocol import resize
from aliquot.protocol.assignment import MalformedError
from aliquot.protocol.resize import Amounts, ResizeAnswer, ResizeRequest
from deviceplugin.booking.errors import Unsettled

__all__ = ["Outcome", "Resized", "Resizer", "answer_resize"]


class Resized(Protocol):
    """What a container has after a resize."""

    @property
    def memory_units(self) -> int: ...
    @property
    def compute_percent(self) -> int: ...


Resizer = Callable[[str, Amounts], Resized]
"""(container, wanted): carries it out, or raises with a text for the user; Unsettled when it is too
early to say."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the `resized` annotation shall say, and the event beside it."""

    answer: ResizeAnswer
    reason: str
    message: str

    @property
    def is_refused(self) -> bool:
        return bool(self.answer.refusal)


def answer_resize(
    text: str, answered: str, unit_mib: int, resizer: Resizer, refusals: tuple[type[Exception], ...]
) -> Outcome | None:
    """None when `answered`, the last answer, is about the same request already, and while it is too
    early to answer.

    `refusals` are what `resizer` raises when it is the user who has to do something. Containers are
    changed one after the other: after a refusal, the answer says what the earlier ones have now.
    """
    try:
        request = resize.decode_request(text).in_units_of(unit_mib)
    except MalformedError as error:
        # There is no id to answer to: the text itself says what was answered.
        answer = ResizeAnswer(text, f"the annotation cannot be read: {error}", unit_mib=unit_mib)
        return None if _id(answered) == answer.id else _refused(answer)
    if _id(answered) == request.id:
        return None
    done: dict[str, Amounts] = {}
    for name, wanted in request.containers.items():
        try:
            now = resizer(name, wanted)
        except Unsettled:
            return None
        except refusals as error:
            refusal = f"container {name}: {error}"
            return _refused(ResizeAnswer(request.id, refusal, done, unit_mib))
        done[name] = Amounts(now.memory_units, now.compute_percent)
    return _done(request, ResizeAnswer(request.id, "", done, unit_mib))


def _id(answered: str) -> str:
    try:
        return resize.decode_answer(answered).id if answered else ""
    except MalformedError:
        return ""


def _refused(answer: ResizeAnswer) -> Outcome:
    return Outcome(answer, "ResizeRefused", f"not resized: {answer.refusal}")


def _done(request: ResizeRequest, answer: ResizeAnswer) -> Outcome:
    texts = [
        f"container {name} now has {each.memory_units} memory units of {request.unit_mib} MiB "
        f"and {each.compute_percent} percent of compute"
        for name, each in answer.containers.items()
    ]
    return Outcome(answer, "Resized", "; ".join(texts))
