"""Runs a command as a child that gets signals, terminal and streams as if started directly."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["attend", "hold_signals", "start"]

# Those that are about ourselves, and those that nobody can hold.
_NOT_HELD = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT),
}
_HELD = signal.valid_signals() - _NOT_HELD

# Python ignores these, and what is ignored stays ignored across exec.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)

_STOPS_OF_JOB_CONTROL = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

_GROUP_S = 0.02
"""Within this time a signal to our group, which we have got, has reached the child as well."""


def hold_signals() -> set[signal.Signals]:
    """From here on signals wait until there is a child to have them; answers the mask before."""
    # Ignored by whoever started us, it would keep the child's exit code from us.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return {signal.Signals(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)}


def start(command: list[str], environment: Mapping[str, str], mask: set[signal.Signals]) -> int:
    """Starts the command with the signal mask that we were started with; answers its pid.

    It stays in our process group, so the terminal reaches it (Ctrl-C, Ctrl-Z, the window's size)
    without us, and pipelines stay what they are.
    """
    return os.posix_spawnp(command[0], command, environment, setsigmask=mask, setsigdef=_RESTORED)


def attend(pid: int) -> int:
    """Passes on what is sent to us until the child ends; its exit code, or 128 and its signal."""
    has_stopped = False
    while True:
        received = signal.sigwaitinfo(_HELD)
        if received.si_signo == signal.SIGCONT:
            if has_stopped:
                _continue_if_stopped(pid)
            continue
        if received.si_signo != signal.SIGCHLD:
            if _is_meant_for_us(received, pid):
                _send(pid, received.si_signo)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if ended != pid:
            continue
        if os.WIFSTOPPED(status):
            has_stopped = True
            _stop_like(os.WSTOPSIG(status))
        elif os.WIFSIGNALED(status):
            return 128 + os.WTERMSIG(status)
        else:
            return os.WEXITSTATUS(status)


def _continue_if_stopped(pid: int) -> None:
    """Passes on a SIGCONT that only we have got.

    A shell continues the whole group. Passed on then as well, it could undo a Ctrl-Z that follows
    at once: the child would run on, and the shell wait for a stop that it never sees.
    """
    time.sleep(_GROUP_S)
    change = os.WSTOPPED | os.WCONTINUED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    if os.waitid(os.P_PID, pid, change) is None:
        _send(pid, signal.SIGCONT)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except PermissionError:
        pass  # it has become somebody else (sudo), and would not hear its own terminal either


def _is_meant_for_us(received: signal.struct_siginfo, child: int) -> bool:
    """Whether the child has not had it yet: the kernel signals the terminal's whole group, and the
    child itself can only have meant its group (`kill 0`)."""
    return received.si_code <= 0 and not _descends_from(received.si_pid, child)


def _descends_from(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return False
        pid = int(status.rpartition(")")[2].split()[1])
    return False


def _stop_like(number: int) -> None:
    """Stops us as well, or the shell would not know that its job has stopped; it continues both."""
    if number in _STOPS_OF_JOB_CONTROL or _has_terminal():
        os.kill(os.getpid(), signal.SIGSTOP)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True
