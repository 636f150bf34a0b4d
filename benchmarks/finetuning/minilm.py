"""The demo's SAE of MiniLM, trained on in three ways, on text that it never saw."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset
from sae_lens import SAE
from torch.nn.functional import cosine_similarity

from benchmarks.finetuning.runs import BEFORE, WAYS, Way
from sae_lens_c2r.demo.demo import HELD_OUT_SHARE, PLAIN, REGULARIZED
from sae_lens_c2r.finetune.release import TOKENS, finetuning_release, read_subjects
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.measures import cosine_summary, measure
from sae_lens_c2r.offline import corpus
from sae_lens_c2r.offline.minilm import CONTEXT_SIZE, model_folder
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.record import read_record
from sae_lens_c2r.training.train import train


def execute(demo: Path, out: Path) -> dict[str, Any]:
    """Train the demo's plain SAE on, and measure all of them; what is there is left."""
    rows, held_out = _text()
    model = str(model_folder())
    n_tokens = len(held_out) * CONTEXT_SIZE
    reader = ActivationSource(held_out, model=model, n_tokens=n_tokens, device="cpu")
    before: SAE[Any] = SAE.load_from_disk(demo / PLAIN)
    text = reader.activations(before, PLAIN)
    found = {}
    for number, way in enumerate(WAYS):
        path = out / "minilm" / f"way_{number}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = _trained(way, demo, path.with_suffix(""), rows)
            sae: SAE[Any] = SAE.load_from_disk(folder)
            kept = cosine_summary(cosine_similarity(sae.W_dec, before.W_dec))
            measured = {**measure(sae, way.name, text).metrics(), **kept}
            path.write_text(json.dumps(measured), encoding="utf-8")
        found[way.name] = json.loads(path.read_text(encoding="utf-8"))
    return {"held_out_tokens": len(text.activations), "ways": found}


def _text() -> list[Dataset]:
    """What the demo trains on, and what it holds out."""
    parts = corpus.split(corpus.documents(), held_out_share=HELD_OUT_SHARE, seed=0)
    return [corpus.in_rows(tuple(texts), str(model_folder())) for texts in parts]


def _trained(way: Way, demo: Path, out: Path, rows: Dataset) -> Path:
    """The folder of an SAE: the demo's, or one that is trained on now."""
    if way.name == BEFORE:
        return demo / PLAIN
    if not way.finetuned:
        return demo / REGULARIZED
    architecture = {} if way.coefficient else {"sae.architecture": PLAIN}
    [subject] = read_subjects([SAERef(folder=demo / PLAIN)], architecture).values()
    record = read_record(demo / PLAIN)
    assert record is not None, "the demo wrote one"
    changes = {
        TOKENS: round(way.share * (record.samples or 0)),
        "runner.lr": subject.runner["lr"] / way.slower,
        **architecture,
    }
    plan = make_plan(finetuning_release({PLAIN: subject}, changes), device="cpu")
    train(replace(plan, dataset=rows), out, resume=True)
    return out / PLAIN
