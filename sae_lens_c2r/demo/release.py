"""What the demo keeps of a training, beside each SAE: `training.json`, as `train` does."""

import json
from pathlib import Path

from sae_lens_c2r.demo.settings import BATCH_SIZE, HOOK_NAME, DemoSettings
from sae_lens_c2r.offline.corpus import NAME
from sae_lens_c2r.offline.minilm import CONTEXT_SIZE, HUB_ID
from sae_lens_c2r.training.record import RECORD, circumstances

_DESCRIPTION = (
    "SAEs of all-MiniLM-L6-v2, a sentence encoder, after its fourth block: BatchTopK with and "
    "without C2R, from the same weights on the same tokens. They are what `sae-lens-c2r demo` "
    "trains within minutes, small and briefly trained, to show what C2R changes."
)


def write_record(folder: Path, settings: DemoSettings, *, seconds: float) -> None:
    """Write down how an SAE was trained.

    Args:
        folder: The SAE's.
        settings: The demo's options.
        seconds: The time of its own training steps.
    """
    steps = settings.tokens // BATCH_SIZE
    record = {
        "release": {
            "description": _DESCRIPTION,
            "license": "apache-2.0",  # MiniLM's
            "language_model": {
                "hub_id": HUB_ID,
                "hook_name": HOOK_NAME,
                "dataset": NAME,
                "context_size": CONTEXT_SIZE,
            },
        },
        "sae_id": folder.name,
        "steps": steps,
        "samples": steps * BATCH_SIZE,
        "seconds": seconds,
        **circumstances(settings.device),
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
