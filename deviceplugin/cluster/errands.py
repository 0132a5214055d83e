"""Things to do at the API server sometime soon, each tried until it is done or pointless."""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from aliquot.kubernetes.backoff import Backoff
from aliquot.kubernetes.errors import ApiError, ApiServerError

__all__ = ["Errand", "Errands"]

log = logging.getLogger(__name__)

Errand = Callable[[], None]
"""Returns when it is done or no longer makes sense; an ApiServerError lets it be tried again,
unless it is hopeless."""


@dataclass(slots=True)
class _Pending:
    errand: Errand
    backoff: Backoff
    due_s: float = 0.0
    complaint: str = field(default="")


class Errands:
    """One thread; one that fails does not hold up the others. Submitting never waits."""

    def __init__(
        self,
        new_backoff: Callable[[], Backoff] = Backoff,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        """`give_way` is called before each errand: it returns when others need not go first."""
        self._new_backoff = new_backoff
        self._give_way = give_way
        self._pending: dict[Hashable, _Pending] = {}
        self._running: Hashable = None
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="errands", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, key: Hashable, errand: Errand) -> None:
        """Takes the place of an older errand of the same key that has not been done yet."""
        with self._changed:
            if key in self._pending:
                self._pending[key].errand = errand
            else:
                self._pending[key] = _Pending(errand, self._new_backoff())
            self._changed.notify_all()

    def cancel(self, key: Hashable) -> None:
        with self._changed:
            self._pending.pop(key, None)
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Waits until nothing is left to do."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._pending and self._running is None, timeout_s
            )

    def stop(self, timeout_s: float = 2.0) -> None:
        """What can be done at once is still done."""
        until_s = time.monotonic() + timeout_s
        if self._thread.is_alive():
            self.flush(timeout_s)
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(max(0.0, until_s - time.monotonic()))

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            key, pending = taken
            complaint, retry_after_s = "", 0.0
            self._give_way()
            try:
                pending.errand()
            except ApiServerError as error:
                if isinstance(error, ApiError) and error.is_hopeless:
                    log.warning("%s was refused for good: %s", key, error)
                else:
                    complaint = str(error)
                    retry_after_s = error.retry_after_s if isinstance(error, ApiError) else 0.0
            except Exception:
                # Trying again would not help against a mistake of ours, nor would dying.
                log.exception("%s failed", key)
            with self._changed:
                self._running = None
                if complaint:
                    self._put_back(key, pending, complaint, retry_after_s)
                self._changed.notify_all()

    def _take(self) -> tuple[Hashable, _Pending] | None:
        with self._changed:
            while not self._stopping:
                key = min(self._pending, key=lambda each: self._pending[each].due_s, default=None)
                wait_s = None
                if key is not None:
                    wait_s = self._pending[key].due_s - time.monotonic()
                    if wait_s <= 0:
                        self._running = key
                        return key, self._pending.pop(key)
                self._changed.wait(wait_s)
        return None

    def _put_back(
        self, key: Hashable, pending: _Pending, complaint: str, retry_after_s: float
    ) -> None:
        if complaint != pending.complaint:
            log.warning("%s has to wait: %s", key, complaint)
        newer = self._pending.get(key)
        if newer is not None:
            pending.errand = newer.errand
        pending.complaint = complaint
        pending.due_s = time.monotonic() + pending.backoff.next_s(retry_after_s)
        self._pending[key] = pending
