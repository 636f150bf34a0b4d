"""What only a GPU can show, in four parts: `make gpu`.

A part takes at most eight minutes. What is stopped then, or in any other way, goes on at the
next call. What is done is skipped, until its line in `benchmarks/results/gpu.json` is deleted:
that file names the card and the versions. **No part has been run yet.** Where there is no
`make`, `python -m benchmarks.gpu [PART ...]` is the same.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from time import monotonic

import torch
from safetensors.torch import load_file, save

from benchmarks.__main__ import DATA, RESULTS
from benchmarks.experiment import saved_in
from benchmarks.measure import environment
from benchmarks.worlds.language_model import SIZES

LIMIT = 8 * 60  # seconds
RECORD, TESTED = RESULTS / "gpu.json", RESULTS / "devices-cuda.txt"
RELEASE = Path("hub_cards/smollm2-135m-layer-9-wide")
CHOSEN = "cuda or gpu"  # of the tests of devices
PIECE = 16 * 2**20  # bytes of a file, so that any host takes it


def python(*arguments: object) -> list[str]:
    """Return a command of this Python."""
    return [sys.executable, "-m", *map(str, arguments)]


def run(command: list[str], seconds: float) -> bool:
    """Run a command, and return whether it ended well in time."""
    try:
        return subprocess.run(command, timeout=seconds).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def devices(seconds: float) -> bool:
    """Run the tests of devices on the GPU, but for those that have passed."""
    passed = TESTED.read_text().split() if TESTED.exists() else []
    options = ["-v", "-k", CHOSEN, *(f"--deselect={test}" for test in passed)]
    command = python("pytest", "tests/test_devices.py", *options)
    with (
        TESTED.open("a") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        timer = Timer(seconds, process.kill)
        timer.start()
        for line in process.stdout or ():
            print(line, end="", flush=True)
            test, _, result = line.partition(" ")
            if result.startswith("PASSED"):
                print(test, file=file, flush=True)
        timer.cancel()
    return process.returncode in (0, 5)  # 5: all had passed before


def penalty(seconds: float) -> bool:
    """Time the penalty against Eq. (16) in plain autograd."""
    return run(python("benchmarks.penalty", "--device", "cuda"), seconds)


def training_step(seconds: float) -> bool:
    """Time training steps with the penalty and without it."""
    return run(python("benchmarks.training_step", "--device", "cuda"), seconds)


def release(seconds: float) -> bool:
    """Train SAEs of 16,384 latents on SmolLM2, and keep two of them in half precision."""
    size = ("language_model", "--size", "wide", "--device", "cuda", "--jobs", 5)
    return run(python("benchmarks", *size), seconds) and keep_release()


def keep_release() -> bool:
    """Write BatchTopK and C2R of the first seed, in eight files."""
    # `cat sae_weights.safetensors.* > sae_weights.safetensors` joins the weights of an SAE
    # again; `sae-lens-c2r evaluate --sae-bench absorption` and `card` then make its card.
    for sae in SIZES["wide"][0].runs():
        if sae.seed or (sae.method, sae.strength) not in {("BatchTopK", 0), ("C2R", 5)}:
            continue
        folder = RELEASE / f"{sae.method}-{sae.strength}".lower()
        folder.mkdir(parents=True, exist_ok=True)
        saved = saved_in(DATA, sae)
        (folder / "cfg.json").write_bytes((saved / "cfg.json").read_bytes())
        weights = load_file(saved / "sae_weights.safetensors")
        halved = save({name: each.half() for name, each in weights.items()})
        for number, start in enumerate(range(0, len(halved), PIECE)):
            piece = folder / f"sae_weights.safetensors.{number}"
            piece.write_bytes(halved[start : start + PIECE])
    return True


PARTS: dict[str, Callable[[float], bool]] = {
    part.__name__: part for part in (devices, penalty, training_step, release)
}


def main() -> int:
    """Run the parts that are not done, and return a status."""
    parser = ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    names = parser.parse_args().parts or list(PARTS)
    if unknown := set(names) - PARTS.keys():
        parser.error(f"A part should be one of {list(PARTS)}. Found {sorted(unknown)}.")
    if not torch.cuda.is_available():
        print("This needs a GPU that torch can use by CUDA. Found none.", file=sys.stderr)
        return 1
    done = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in names:
        if name in done:
            print(f"{name}: done already, on {done[name]['gpu']}")
            continue
        begun = monotonic()
        ended = PARTS[name](LIMIT)
        print(f"{name}: {'done' if ended else 'not done; call again to go on'}", flush=True)
        if not ended:
            return 2
        done[name] = {**environment("cuda"), "seconds": round(monotonic() - begun)}
        RECORD.write_text(json.dumps(done, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
