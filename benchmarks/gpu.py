"""What only a GPU can show, in four parts: `make gpu`.

A part takes at most eight minutes. What is stopped then, or in any other way, goes on at the
next call. What is done is skipped, until its line in `benchmarks/results/gpu.json` is deleted:
that file names the card and the versions. **No part has been run yet.** Where there is no
`make`, `python -m benchmarks.gpu [PART ...]` is the same.
"""

import json
import re
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import nullcontext, suppress
from pathlib import Path
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
PIECE = 16 * 2**20  # bytes of a file, so that any host takes it
PARTS = {  # what Python is to run
    "devices": ["pytest", "tests/test_devices.py", "-v", "-k", "cuda or gpu"],
    "penalty": ["benchmarks.penalty", "--device", "cuda"],
    "training_step": ["benchmarks.training_step", "--device", "cuda"],
    "release": [
        *("benchmarks", "language_model", "--size", "wide", "--device", "cuda", "--jobs", "5")
    ],
}


def run(part: str) -> bool:
    """Run a part, without the tests that have passed, and return whether it ended in time."""
    command, log = [sys.executable, "-m", *PARTS[part]], None
    if part == "devices":
        log = TESTED.open("a+")
        log.seek(0)
        passed = re.findall(r"^(\S+) PASSED", log.read(), re.MULTILINE)
        command += [f"--deselect={test}" for test in passed]
    with log or nullcontext(), suppress(subprocess.TimeoutExpired):
        status = subprocess.run(command, timeout=LIMIT, stdout=log).returncode
        return status in (0, 5)  # 5: all tests had passed before
    return False


def keep_release() -> None:
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
        if not run(name):
            print(f"{name}: not done; call again to go on")
            return 2
        if name == "release":
            keep_release()
        done[name] = {**environment("cuda"), "seconds": round(monotonic() - begun)}
        RECORD.write_text(json.dumps(done, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
