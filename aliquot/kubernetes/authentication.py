"""The ways to say who we are that kubeconfigs and service accounts know."""

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from aliquot.kubernetes.http import basic

__all__ = ["Fixed", "Plugin", "TokenFile", "bearer", "password"]

PLUGIN_S = 60.0
"""A plugin may have to ask somewhere else; none may ask the user."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same for ever."""

    text: str

    def header(self) -> str:
        return self.text

    def replace(self, _: str, /) -> str:
        return ""


def bearer(token: str) -> Fixed:
    return Fixed(f"Bearer {token}")


def password(name: str, word: str) -> Fixed:
    return Fixed(basic(f"{name}:{word}"))


@dataclass(slots=True)
class TokenFile:
    """Read once more when the server takes the token no longer: the kubelet puts new ones there."""

    path: Path
    _token: str = ""

    def header(self) -> str:
        return f"Bearer {self._token or self._read()}"

    def replace(self, refused: str, /) -> str:
        found = f"Bearer {self._read()}"
        return found if found != refused else ""

    def _read(self) -> str:
        self._token = token = self.path.read_text().strip()
        return token


class _Status(msgspec.Struct, frozen=True):
    token: str = ""


class _Credential(msgspec.Struct, frozen=True):
    status: _Status = _Status()


@dataclass(slots=True)
class Plugin:
    """A program that tells a token, asked at first and whenever the server takes it no longer."""

    command: Sequence[str]
    environment: Mapping[str, str]
    api_version: str
    hint: str = ""
    """What its users were told about getting it."""
    _token: str = ""
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def header(self) -> str:
        with self._guard:
            if not self._token:
                self._token = self._ask()
            return f"Bearer {self._token}"

    def replace(self, refused: str, /) -> str:
        with self._guard:
            if refused == f"Bearer {self._token}":
                self._token = ""
        return self.header()

    def _ask(self) -> str:
        told = {
            "kind": "ExecCredential",
            "apiVersion": self.api_version,
            "spec": {"interactive": False},
        }
        known = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(told).decode()}
        try:
            answer = subprocess.run(
                self.command,
                env={**os.environ, **self.environment, **known},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PLUGIN_S,
                check=True,
            ).stdout
            token = msgspec.json.decode(answer, type=_Credential).status.token
        except FileNotFoundError:
            raise self._failure("it is not installed") from None
        except subprocess.CalledProcessError as error:
            raise self._failure(error.stderr.decode(errors="replace").strip()) from None
        except subprocess.TimeoutExpired:
            raise self._failure(f"it did not answer within {PLUGIN_S:g} s") from None
        except msgspec.DecodeError as error:
            raise self._failure(f"its answer is none: {error}") from None
        if not token:
            raise self._failure("it gives no token, the only credential that we take from plugins")
        return token

    def _failure(self, why: str) -> OSError:
        text = f"the credential plugin {self.command[0]} failed: {why}"
        return OSError(f"{text} ({self.hint})" if self.hint else text)
