"""A command that tells every signal it gets, and obeys lines of standard input."""

import os
import signal
import sys

COUNTED = (
    *(signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGWINCH, signal.SIGQUIT, signal.SIGCONT, signal.SIGRTMIN + 3),
)
counts = dict.fromkeys(map(int, COUNTED), 0)


def count(number: int, _frame: object) -> None:
    counts[number] += 1
    print("got", number, flush=True)


for each in COUNTED:
    signal.signal(each, count)
print("ready", os.getpid(), os.getppid(), flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "quit":
        break
    if word == "signal-group":
        os.killpg(0, signal.SIGUSR1)
    print("heard", word, flush=True)
print("counts", *(f"{number}={times}" for number, times in counts.items() if times), flush=True)
sys.exit(5)
