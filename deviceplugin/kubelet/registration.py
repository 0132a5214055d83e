"""Keeps us registered: serves first, then registers, and does both anew when the kubelet restarts.

A kubelet that starts removes every socket of the folder and makes its own again. Pods that are
bound and not yet started are lost if a plugin is late then, so the folder is looked at often.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from deviceplugin.kubelet import wire
from deviceplugin.kubelet.proto import device_plugin_pb2 as api
from deviceplugin.kubelet.server import SOCKET_PREFIX, ResourceServer

__all__ = ["KUBELET_SOCKET", "Registration"]

API_VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
LOOK_EVERY_S = 0.2
CALL_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 1.0
SOCKET_PATH_BYTES_MOST = 107
"""What fits into a sockaddr_un."""

PAUSE_LEAST_S, PAUSE_MOST_S = 1.0, 30.0
"""Between registrations that the kubelet takes and then drops."""

log = logging.getLogger(__name__)


class RegistrationError(Exception):
    """Why we are not registered now; it is tried again."""


class Registration:
    def __init__(
        self,
        folder: Path,
        make_servers: Callable[[], Sequence[ResourceServer]],
        on_new_kubelet: Callable[[], None],
    ) -> None:
        """`on_new_kubelet` is called before we register with one that has started anew."""
        self._folder = folder
        self._make_servers = make_servers
        self._on_new_kubelet = on_new_kubelet
        self._servers: Sequence[ResourceServer] = ()
        self._kubelet: tuple[int, int] | None = None
        self._dropped = False
        self._pause_s = PAUSE_LEAST_S
        self._registered_s = 0.0
        self._look = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="registration")
        self.problem = "not registered with the kubelet yet"
        """Why the kubelet does not know our ids, empty when it does."""
        self.count = 0
        """How often we have registered."""

    def start(self) -> None:
        self._sweep()
        self._thread.start()

    def stop(self) -> None:
        """Takes our sockets away: the kubelet sees our resources end at once."""
        self._stopping = True
        self._look.set()
        if self._thread.is_alive():
            self._thread.join()
        for server in self._servers:
            server.stop()

    @property
    def is_complete(self) -> bool:
        """Registered, and the kubelet follows the lists of all our resources."""
        servers = self._servers
        return not self.problem and bool(servers) and all(each.is_watched for each in servers)

    @property
    def term(self) -> int | None:
        """Which time we are registered, 0 before the first; None while the kubelet does not follow
        our lists. Where it is the same before and after, no kubelet has started in between."""
        if self.count and (self._dropped or not self.is_complete):
            return None
        return self.count

    def note_stream_end(self) -> None:
        """A list that the kubelet followed has ended, and not by us."""
        self._dropped = True
        self._look.set()

    def _run(self) -> None:
        while not self._stopping:
            try:
                if self._is_stale():
                    self._renew()
                self.problem = ""
            except (RegistrationError, OSError, RuntimeError) as error:
                # gRPC says by a RuntimeError that a socket cannot be bound.
                if str(error) != self.problem:
                    log.warning("not registered: %s", error)
                self.problem = str(error)
            except Exception as error:  # without this thread no kubelet would hear of us again
                problem = f"registering failed: {error!r}"
                if problem != self.problem:
                    log.exception("registering failed; trying again")
                self.problem = problem
            self._look.wait(LOOK_EVERY_S)
            self._look.clear()

    def _is_stale(self) -> bool:
        if self._kubelet != self._identify():
            return True
        if not all(server.socket.exists() for server in self._servers):
            return True
        return self._dropped and time.monotonic() >= self._registered_s + self._pause_s

    def _identify(self) -> tuple[int, int]:
        """Which kubelet.sock is there now; a restart makes another one."""
        try:
            status = (self._folder / KUBELET_SOCKET).stat()
        except FileNotFoundError:
            raise RegistrationError(
                f"{self._folder / KUBELET_SOCKET} is not there; is the kubelet running?"
            ) from None
        return status.st_ino, status.st_mtime_ns

    def _renew(self) -> None:
        kubelet = self._identify()
        self._knock()
        self._adjust_pause(kubelet)
        self._dropped = False
        if kubelet != self._kubelet:
            self._on_new_kubelet()
        servers = self._make_servers()
        try:
            for server in servers:
                _check_length(server.socket)
                server.start()
                self._register(server)
        except BaseException:
            for server in servers:
                server.stop()
            raise
        old, self._servers = self._servers, servers
        self._kubelet, self._registered_s = kubelet, time.monotonic()
        self.count += 1
        log.info("registered %s with the kubelet", ", ".join(each.resource for each in servers))
        for server in old:
            # It lets open calls end, and another kubelet may come meanwhile.
            threading.Thread(target=server.stop, name="closing", daemon=True).start()

    def _knock(self) -> None:
        """Servers are only made for a kubelet that listens."""
        path = self._folder / KUBELET_SOCKET
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
            knocking.settimeout(CONNECT_TIMEOUT_S)
            try:
                knocking.connect(str(path))
            except OSError as error:
                raise RegistrationError(f"nobody answers at {path}: {error}") from None

    def _adjust_pause(self, kubelet: tuple[int, int]) -> None:
        lasted_s = time.monotonic() - self._registered_s
        if kubelet == self._kubelet and lasted_s < 2 * PAUSE_MOST_S:
            self._pause_s = min(PAUSE_MOST_S, 2 * self._pause_s)
            log.warning("the kubelet dropped us %.0f s after we registered", lasted_s)
        else:
            self._pause_s = PAUSE_LEAST_S

    def _register(self, server: ResourceServer) -> None:
        request = api.RegisterRequest(
            version=API_VERSION,
            endpoint=server.socket.name,
            resource_name=server.resource,
            options=server.options,
        )
        path = wire.address(self._folder / KUBELET_SOCKET)
        with grpc.insecure_channel(path, options=wire.SOCKET_OPTIONS) as channel:
            register = wire.caller(channel, api.DESCRIPTOR, "Registration", "Register")
            try:
                register(request, timeout=CALL_TIMEOUT_S)
            except grpc.RpcError as error:
                raise RegistrationError(
                    f"the kubelet refused {server.resource}: {error.details()}"
                ) from None

    def _sweep(self) -> None:
        """Removes sockets that a killed agent has left; where somebody listens they stay."""
        for path in self._folder.glob(f"{SOCKET_PREFIX}*.sock"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
                knocking.settimeout(CONNECT_TIMEOUT_S)
                try:
                    knocking.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    log.debug("left %s alone: %s", path, error)


def _check_length(path: Path) -> None:
    if len(bytes(path)) > SOCKET_PATH_BYTES_MOST:
        raise RegistrationError(
            f"{path} is too long for a socket ({SOCKET_PATH_BYTES_MOST} bytes); "
            "use a shorter kubelet folder"
        )
