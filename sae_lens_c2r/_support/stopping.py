"""Signals that end a process, put off until training has come to the end of a step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


@dataclass
class StopRequest:
    """Whether the process was told to end.

    Args:
        deferrable: Whether there is something to finish first.
        received: Whether it was told while there was.
    """

    deferrable: bool = False
    received: bool = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Collect SIGINT, SIGTERM and SIGHUP, which raise KeyboardInterrupt where not deferrable.

    A second SIGINT does in any case: somebody at a keyboard does not want to wait.

    Yields:
        What was received. Other threads than the main one receive nothing.
    """
    request = StopRequest()

    def on_signal(number: int, _: FrameType | None) -> None:
        if not request.deferrable or (request.received and number == signal.SIGINT):
            raise KeyboardInterrupt
        request.received = True

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # What is ignored stays so: a program under nohup should outlive its terminal.
    heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in heeded}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
