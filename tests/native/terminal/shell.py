"""A shell of the smallest kind: one job in the foreground of its terminal, stopped and continued.

Run as a program with the terminal as standard input and the command as arguments. What it has to
say goes to descriptor 3 (`stopped N`, `exited N`, `killed N`); `fg` on descriptor 4 continues.
"""

import fcntl
import os
import signal
import sys
import termios


def foreground(group: int) -> None:
    os.tcsetpgrp(0, group)


def start(command: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        foreground(os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.close(3)
        os.close(4)
        os.execvp(command[0], command)
    return pid


def main() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A shell in the background must be able to take its terminal back.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = start(sys.argv[1:])
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            foreground(os.getpgrp())
            os.write(3, f"stopped {os.WSTOPSIG(status)}\n".encode())
            os.read(4, 16)
            foreground(job)
            os.killpg(job, signal.SIGCONT)
        elif os.WIFSIGNALED(status):
            os.write(3, f"killed {os.WTERMSIG(status)}\n".encode())
            return
        else:
            os.write(3, f"exited {os.WEXITSTATUS(status)}\n".encode())
            return


main()
