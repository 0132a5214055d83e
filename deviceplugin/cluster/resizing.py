"""Answers what users ask of running pods through the `resize` annotation."""

import logging
from collections.abc import Callable, Mapping
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


log = logging.getLogger(__name__)

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
        # There is no id to answer to: the text itself stands for one.
        text_id = resize.id_of_unreadable(text)
        refusal = f"the annotation cannot be read: {error}"
        return None if _id(answered) == text_id else _refused(text_id, refusal, {}, unit_mib)
    if _id(answered) == request.id:
        return None
    done: dict[str, Amounts] = {}
    for name, wanted in request.containers.items():
        try:
            now = resizer(name, wanted)
        except Unsettled:
            return None
        except refusals as error:
            return _refused(request.id, f"container {name}: {error}", done, unit_mib)
        except Exception as error:
            # The user has to hear of a mistake of ours, too, and the watch of pods must go on.
            log.exception("container %s could not be resized", name)
            refusal = f"container {name}: the agent failed ({type(error).__name__}: {error})"
            return _refused(request.id, refusal, done, unit_mib)
        done[name] = Amounts(now.memory_units, now.compute_percent)
    return _done(request, ResizeAnswer(request.id, "", done, unit_mib))


def _id(answered: str) -> str:
    try:
        return resize.decode_answer(answered).id if answered else ""
    except MalformedError:
        return ""


def _refused(request_id: str, refusal: str, done: Mapping[str, Amounts], unit_mib: int) -> Outcome:
    if len(refusal) > resize.REFUSAL_MOST:
        refusal = f"{refusal[: resize.REFUSAL_MOST - 3]}..."
    answer = ResizeAnswer(request_id, refusal, done, unit_mib)
    return Outcome(answer, "ResizeRefused", f"not resized: {refusal}")


def _done(request: ResizeRequest, answer: ResizeAnswer) -> Outcome:
    texts = [
        f"container {name} now has {each.memory_units} memory units of {request.unit_mib} MiB "
        f"and {each.compute_percent} percent of compute"
        for name, each in answer.containers.items()
    ]
    return Outcome(answer, "Resized", "; ".join(texts))
