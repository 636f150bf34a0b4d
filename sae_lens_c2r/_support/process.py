"""A process: its place among those that `torchrun` starts, and the signals that end it."""

import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
_ACKNOWLEDGEMENT = b"\nStopping after this step; Ctrl-C again to stop now.\n"


def take_place() -> None:
    """Give a process a GPU of its own, and let only the first process print.

    All processes know their GPU by the same name, so that neither configs nor random states
    depend on where something is trained.
    """
    if "LOCAL_RANK" in os.environ:
        local, visible = os.environ["LOCAL_RANK"], os.environ.get("CUDA_VISIBLE_DEVICES")
        # With too few GPUs a process has none, and is refused when it asks for the device.
        own = [local] if visible is None else visible.split(",")[int(local) :][:1]
        os.environ["CUDA_VISIBLE_DEVICES"] = "".join(own)
    if int(os.environ.get("RANK", "0")) > 0:
        os.environ["TQDM_DISABLE"] = "1"
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)


def was_restarted() -> bool:
    """Whether `torchrun` has started the process in place of one that has ended."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


class Interrupted(KeyboardInterrupt):
    """An end by a signal, with the exit status that tells shells which signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


@dataclass
class StopRequest:
    """Whether the process was told to end."""

    deferrable: bool = False  # there is something to finish first
    received: int = 0  # the signal that came meanwhile


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Collect signals to end, which raise KeyboardInterrupt where not deferrable."""
    # The first SIGINT is acknowledged at once, a second one raises in any case: somebody at a
    # keyboard does not want to wait. Other threads than the main one receive nothing.
    request = StopRequest()

    def on_signal(number: int, _: FrameType | None) -> None:
        if not request.deferrable or (request.received and number == signal.SIGINT):
            raise Interrupted(number)
        request.received = number
        if number == signal.SIGINT and os.environ.get("RANK", "0") == "0":
            os.write(2, _ACKNOWLEDGEMENT)  # `print` may be what the signal has interrupted

    heeded = []
    if threading.current_thread() is threading.main_thread():
        # What is ignored stays so: a program under nohup should outlive its terminal.
        # Nor can what another program has set be set again, in which Python runs.
        kept = (signal.SIG_IGN, None)
        heeded = [number for number in _SIGNALS if signal.getsignal(number) not in kept]
    before = {number: signal.signal(number, on_signal) for number in heeded}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
