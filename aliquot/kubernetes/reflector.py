"""Keeps somebody's picture of a collection equal to the API server's: list once, then watch."""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from aliquot.kubernetes.backoff import Backoff
from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError, ApiServerError, UnreachableError
from aliquot.kubernetes.watch import Change, Watch

__all__ = ["Reflector"]

T = TypeVar("T")

log = logging.getLogger(__name__)

SHORT_WATCH_S = 1.0
"""A watch that ends sooner, without a word, is a server in trouble and not one that is done."""


class Reflector(Generic[T]):
    """Both callbacks run in its one thread, in the server's order, and must not take long.

    `on_replace` gets everything there is: at the start, and whenever changes may have been missed.
    A callback that raises is logged and answered by a new list.
    """

    def __init__(
        self,
        client: ApiClient,
        path: str,
        type: type[T],  # noqa: A002 (as in ApiClient)
        on_replace: Callable[[list[T]], None],
        on_change: Callable[[Change[T]], None],
        *,
        label_selector: str = "",
        field_selector: str = "",
        from_cache: bool = False,
        backoff: Backoff | None = None,
    ) -> None:
        self.synced = threading.Event()
        """Set after the first whole list has been handed over; never unset."""
        self.lists = 0
        """How many lists were handed over."""
        self.trouble = ""
        """Why the last attempt failed; empty while all is well."""
        self._mishap = ""
        """The last failure of ours, which is described in full only once."""
        self._client = client
        self._path = path
        self._type = type
        self._on_replace = on_replace
        self._on_change = on_change
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._from_cache = from_cache
        self._backoff = backoff or Backoff()
        self._heard_at_s = -math.inf
        self._resource_version = ""
        self._watch: Watch[T] | None = None
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reflect {path}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 15.0) -> None:
        """No callback runs after it, unless the thread was stuck in one for `timeout_s`."""
        self._stopping.set()
        with self._guard:
            if self._watch is not None:
                self._watch.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    @property
    def age_s(self) -> float:
        """Since the server's last word: about a minute at most while all is well."""
        watch = self._watch
        heard_at_s = max(self._heard_at_s, watch.heard_at_s if watch else -math.inf)
        return time.monotonic() - heard_at_s

    def _run(self) -> None:
        while not self._stopping.is_set():
            at_least_s, level = 0.0, logging.INFO
            try:
                if not self._resource_version:
                    self._list()
                if self._follow():
                    self._backoff.reset()
                    continue
                self.trouble = "the server ends watches at once"
            except ApiServerError as error:
                self.trouble = str(error)
                if isinstance(error, ApiError):
                    at_least_s = error.retry_after_s
                    # Mostly a missing permission, which somebody has to grant.
                    level = logging.WARNING if error.is_final else logging.INFO
                if not isinstance(error, UnreachableError):
                    # Only a broken line lets us go on from where we were.
                    self._resource_version = ""
            except Exception as error:
                # Whatever it is: nobody else would notice that nothing is taken in any more.
                trouble = f"a change could not be taken in: {type(error).__name__}: {error}"
                if trouble != self._mishap:
                    log.exception("%s: a change could not be taken in; listing anew", self._path)
                self.trouble = self._mishap = trouble
                self._resource_version = ""
            pause_s = self._backoff.next_s(at_least_s)
            if not self._stopping.is_set():
                log.log(level, "%s: %s; again in %.1f s", self._path, self.trouble, pause_s)
            self._stopping.wait(pause_s)

    def _list(self) -> None:
        listing = self._client.list(
            self._path,
            self._type,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            from_cache=self._from_cache,
        )
        self._heard_at_s = time.monotonic()
        if self._stopping.is_set():
            return
        self._on_replace(listing.items)
        self._resource_version = listing.resource_version
        self.lists += 1
        self.synced.set()

    def _follow(self) -> bool:
        """One watch; false when it ended suspiciously soon."""
        began_s = time.monotonic()
        watch = self._client.watch(
            self._path,
            self._type,
            self._resource_version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        with self._guard:
            self._watch = watch
            if self._stopping.is_set():
                watch.close()
        self.trouble = ""
        told = 0
        try:
            for change in watch:
                if self._stopping.is_set():
                    break
                self._on_change(change)
                # Here and not by the watch: a change counts when it was taken in.
                self._resource_version = watch.resource_version
                self._backoff.reset()
                told += 1
            self._resource_version = watch.resource_version
        finally:
            self._heard_at_s = watch.heard_at_s
            with self._guard:
                self._watch = None
            watch.close()
        return told > 0 or time.monotonic() - began_s > SHORT_WATCH_S
