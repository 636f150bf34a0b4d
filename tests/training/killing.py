"""Training processes that are killed, at any moment, and what they leave."""

import hashlib
import json
import os
import random
import resource
import signal
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from tests.language_model import RUNNER, WIDTH
from tests.training.rank_processes import Before

STEPS = 24
IDS = [f"layer_0/{name}" for name in ("batchtopk_c2r", "ort_c2r", "matryoshka")]
# An SAE for each of three processes, one by another seed.
RELEASE: dict[str, Any] = {
    "runner": {
        **RUNNER,
        "train_batch_size_tokens": 50,
        "feature_sampling_window": 7,
        "n_batches_for_norm_estimate": 5,
    },
    "sae": {
        "d_in": WIDTH,
        "d_sae": 256,
        "k": 4,
        "k_anneal_steps": 8,
        "normalize_activations": "expected_average_only_in",
        "c2r_chunk_size": 100,
        "c2r_warm_up_steps": 12,
    },
    "grids": [
        {
            "id": "layer_0/{architecture}",
            "axes": {"architecture": ["batchtopk_c2r", "ort_c2r"]},
        },
        {
            "id": IDS[2],
            "sae": {
                "architecture": "matryoshka_batchtopk_c2r",
                "matryoshka_widths": [64, 256],
                "seed": 1,
            },
        },
    ],
}
MINILM = "minilm-layer-3"
SMALL = {  # makes it small: 4 steps
    "language_model.training_tokens": 2048,
    "runner.autocast": False,  # as parts of a batch are rounded otherwise than the whole
    "runner.lr_decay_steps": 1,
    "runner.train_batch_size_tokens": 512,
    "runner.n_batches_in_buffer": 8,
    "runner.store_batch_size_prompts": 4,
    "runner.n_batches_for_norm_estimate": 2,
    "sae.d_sae": 512,
}


def as_options(changes: dict[str, Any]) -> list[str]:
    """Changes of a release, as the command takes them."""
    return [f"--set={key}={json.dumps(value)}" for key, value in changes.items()]


def hashes(out: Path) -> dict[str, str]:
    """SHA-256 of everything that was trained, by its path."""
    found = {}
    for folder in trained(out):
        # SAELens writes a config's keys in an order that varies from process to process.
        config = json.loads((folder / "cfg.json").read_text())
        contents = {
            "cfg.json": json.dumps(config, sort_keys=True).encode(),
            "sae_weights.safetensors": (folder / "sae_weights.safetensors").read_bytes(),
        }
        for name, content in contents.items():
            path = (folder / name).relative_to(out).as_posix()
            found[path] = hashlib.sha256(content).hexdigest()
    return found


def checkpoints(out: Path) -> list[Path]:
    """The folders of checkpoints, under their final names, from the oldest."""
    return sorted(out.glob(".training/step-*"))


def trained(out: Path) -> list[Path]:
    """The folders of SAEs, under their final names."""
    return sorted(
        path.parent
        for path in out.rglob("cfg.json")
        if ".training" not in path.relative_to(out).parts
    )


def left(out: Path) -> tuple[int, int, int]:
    """Numbers of checkpoints, of partial ones and of finished SAEs that a process leaves."""
    partial = list(out.glob(".training/partial-*"))
    return len(checkpoints(out)), len(partial), len(trained(out))


def half_written(out: Path) -> list[str]:
    """Return the folders that have their final name and are not whole."""
    from sae_lens_c2r.training.output_dir import read_checkpoint

    wrong = []
    for folder in checkpoints(out):
        try:
            read_checkpoint(folder)
        except (OSError, ValueError, KeyError, TypeError) as damage:
            wrong.append(f"{folder.name}: {damage}")
    for folder in trained(out):
        names = {path.name for path in folder.iterdir()}
        if names != {"sae_weights.safetensors", "cfg.json", "training.json"}:
            wrong.append(f"{folder.name}: {sorted(names)}")
    return wrong


OPERATIONS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "shutil.rmtree"}


def at_operations(out: Path, heed: Callable[[str, tuple[Any, ...]], None]) -> None:
    """Have this process heed every operation on files below a folder, before it is done."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in OPERATIONS and str(arguments[0]).startswith(str(out)):
            heed(event, arguments)

    sys.addaudithook(hook)


def kill_at_file_operation(out: Path, number: int) -> None:
    """Have this process killed at one of the operations on files below a folder."""
    operations = count(1)

    def heed(*_: Any) -> None:
        if next(operations) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    at_operations(out, heed)


def after_checkpoints(out: Path, number: int, kind: int) -> Before:
    return signal_after_naming, (out, "step-*", number, kind)


def signal_after_naming(out: Path, pattern: str, number: int, kind: int) -> None:
    """Have this process get a signal once, when so many folders have such final names."""
    n_named = 0

    def heed(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal n_named
        if n_named == number:
            n_named += 1
            os.kill(os.getpid(), kind)
        if event == "os.rename" and Path(str(arguments[1])).match(pattern):
            n_named += 1

    at_operations(out, heed)


def signal_behind_the_last_step(kind: int) -> None:
    """Have this process get a signal before it saves its SAEs."""
    from sae_lens_c2r.training import train

    save = train._save

    def signal_and_save(*arguments: Any) -> None:
        os.kill(os.getpid(), kind)
        save(*arguments)

    train._save = signal_and_save


def limit_file_size(n_bytes: int) -> None:
    """Have this process fail to write more to a file, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def signal_amid_work(kind: int, seed: str) -> None:
    """Have this process get a signal a random moment after so many calls and returns.

    A training begins, with its first step, in about 670,000 of them, on any machine: with
    fewer at most, one would never come further. The moment is for what lies between two.
    """
    rng = random.Random(seed)
    number, seconds = rng.randrange(1, 1_100_000), rng.uniform(0, 0.01)
    calls = count(1)

    def heed(*_: Any) -> None:
        if next(calls) == number:
            sys.setprofile(None)
            send = threading.Timer(seconds, os.kill, (os.getpid(), kind))
            send.daemon = True
            send.start()

    sys.setprofile(heed)
