"""Which of the processes that train together live, and which one has ended.

When a process ends, the others' next exchange with it fails, in whichever of them is its
neighbour: that error names a socket. So each counts its heartbeats in torch's store, and says
there with which error it leaves; whoever meets a failed exchange looks who has fallen silent.
A process that hangs, or whose end does not reach the others, ends them too, later.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Event, Thread, current_thread, main_thread

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError

INTERVAL = 0.5  # seconds between two beats
LOOK = 20  # beats until a process looks whether the others' go on
MISSED = 30  # looks without a beat after which it ends: 5 minutes
SILENT = 8 * INTERVAL  # after which a process is taken to have ended
INTERRUPTED = "Interrupted."
PATIENCE = 20.0  # seconds to look for it: `torchrun` gives 30 when another has ended


class RankEndedError(UserError):
    """A rank without which the others cannot go on.

    Args:
        text: What is known of it.
        ended: The ranks that have ended; none where that is not known.
        told: Whether one of them has said why.
    """

    def __init__(self, text: str, ended: list[int], *, told: bool) -> None:
        super().__init__(text)
        self.ended = ended
        self.told = told


class Heartbeat:
    """The signs of life of the ranks.

    Args:
        rank: This one.
        size: How many there are.
        name: Of the training, no other than which uses it in the same store.
    """

    def __init__(self, rank: int, size: int, name: str) -> None:
        self._rank, self._size = rank, size
        self._others = [other for other in range(size) if other != rank]
        # A connection of its own: another thread may wait on torch's.
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        server = TCPStore(*address, is_master=False, timeout=timedelta(seconds=PATIENCE))
        self._store = PrefixStore(f"sae-lens-c2r/{name}", server)
        self._over = Event()
        self._thread = Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        try:
            self._beat_and_watch()
        except RuntimeError:  # the store is gone, and rank 0 with it, unless it is `torchrun`'s
            if not self._over.wait(PATIENCE):  # the main thread has not noticed
                self._end([0])

    def _beat_and_watch(self) -> None:
        counts, n_same = dict.fromkeys(self._others, 0), dict.fromkeys(self._others, 0)
        while True:
            for _ in range(LOOK):
                self._store.add(f"beats/{self._rank}", 1)
                if self._over.wait(INTERVAL):
                    return
            for rank, before in counts.items():
                counts[rank] = self._beats(rank)
                lives = counts[rank] != before or before == 0  # or has yet to begin
                n_same[rank] = 0 if lives else n_same[rank] + 1
            silent = [rank for rank in self._others if n_same[rank] >= MISSED]
            if silent and not self._over.is_set():
                self._end(silent)

    def _end(self, silent: list[int]) -> None:
        """End this process: its main thread waits for one that is gone, on a GPU perhaps."""
        if self._rank == min(set(range(self._size)) - set(silent)):
            print(self._error(silent), file=sys.stderr, flush=True)
        os._exit(1)

    def leave(self, why: str | None = None) -> None:
        """Beat no more.

        Args:
            why: The error that this process ends with, for those that it leaves behind.
        """
        if why is not None:
            with suppress(RuntimeError):
                self._store.set(f"left/{self._rank}", why)
        self._over.set()
        # A thread that is in the store when Python ends aborts the process.
        self._thread.join(SILENT)

    def another_failed(self, error: BaseException) -> RankEndedError | None:
        """What an interruption may be the consequence of.

        Args:
            error: With which this process ends.

        Returns:
            The error of another process, after which `torchrun` interrupts the rest; `None` if
            there is none.
        """
        reasons = self._why_others_left() if isinstance(error, KeyboardInterrupt) else {}
        failed = [rank for rank, why in reasons.items() if why != INTERRUPTED]
        return self._error(failed) if failed else None

    def _why_others_left(self) -> dict[int, str]:
        reasons = {}
        with suppress(RuntimeError):  # where the store is gone
            for rank in self._others:
                if self._store.check([f"left/{rank}"]):
                    reasons[rank] = self._store.get(f"left/{rank}").decode()
        return reasons

    def who_ended(self) -> RankEndedError:
        """What to say after an exchange that has failed. Takes seconds."""
        with _undisturbed():
            try:
                return self._find_out()
            except RuntimeError:
                return self._the_store_is_gone()

    def _the_store_is_gone(self) -> RankEndedError:
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":  # it was rank 0's
            return RankEndedError("Rank 0 has ended.", [0], told=False)
        if self._rank == 0:
            return RankEndedError("`torchrun` has ended.", [], told=False)
        return RankEndedError("Rank 0 or its `torchrun` has ended.", [0], told=False)

    def _find_out(self) -> RankEndedError:
        begun = time.monotonic()
        beats = {rank: (self._beats(rank), begun) for rank in range(self._size)}
        while time.monotonic() - begun < PATIENCE:
            if self._store.check(["verdict"]):  # who looks later finds more that have ended
                ended = [int(rank) for rank in self._store.get("verdict").decode().split()]
                return self._error(ended)
            silent = []
            for rank, (count, since) in beats.items():
                if self._beats(rank) != count:
                    beats[rank] = self._beats(rank), time.monotonic()
                elif time.monotonic() - since > SILENT:
                    silent.append(rank)
            if ended := list(self._why_others_left()) or silent:
                self._store.set("verdict", " ".join(map(str, ended)))
                return self._error(ended)
            time.sleep(INTERVAL / 10)
        return RankEndedError("The ranks have lost each other.", [], told=False)

    def _beats(self, rank: int) -> int:
        return int(self._store.add(f"beats/{rank}", 0))

    def _error(self, ended: list[int]) -> RankEndedError:
        reasons = self._why_others_left()
        told = [f"Rank {rank} has ended: {reasons[rank]}" for rank in ended if rank in reasons]
        silent = [f"Rank {rank} has ended." for rank in ended if rank not in reasons]
        return RankEndedError(" ".join([*told, *silent]), ended, told=bool(told))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Heed no SIGTERM, which `torchrun` sends to all when one has ended."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
