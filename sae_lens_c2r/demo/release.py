"""What the demo trains, as a release of its own, which nobody publishes."""

from sae_lens_c2r.demo.options import BATCH_SIZE, PLAIN, REGULARIZED, DemoOptions
from sae_lens_c2r.offline.minilm import CLS, CONTEXT_SIZE, PAD, SEP
from sae_lens_c2r.offline.source import OFFLINE_DATASET, OFFLINE_MODEL
from sae_lens_c2r.releases.model import Grid, LanguageModel, Release

HOOK_NAME = "bert.encoder.layer.3"
_DESCRIPTION = (
    "SAEs of all-MiniLM-L6-v2, a sentence encoder, after its fourth block: BatchTopK with and "
    "without C2R, from the same weights on the same tokens. They are what `sae-lens-c2r demo` "
    "trains within minutes, small and briefly trained, to show what C2R changes."
)
_RUNNER = {
    "model_class_name": "AutoModelForCausalLM",
    "prepend_bos": False,
    "exclude_special_tokens": [PAD, CLS, SEP],
    "streaming": False,
    "train_batch_size_tokens": BATCH_SIZE,
    "store_batch_size_prompts": 32,
    "n_batches_in_buffer": 256,
    "n_batches_for_norm_estimate": 10,
    "lr": 1e-3,
    "dead_feature_window": 100,
    "feature_sampling_window": 200,
}


def demo_release(options: DemoOptions) -> Release:
    """BatchTopK with and without C2R, from the same weights on the same activations."""
    c2r = {"c2r_coefficient": options.c2r_coefficient, "c2r_seed": options.seed}
    return Release(
        name="minilm-demo",
        description=_DESCRIPTION,
        license="apache-2.0",  # MiniLM's
        repo_id="sae-lens-c2r/minilm-demo",
        status="planned",
        language_model=LanguageModel(
            hub_id=OFFLINE_MODEL,
            hook_name=HOOK_NAME,
            dataset=OFFLINE_DATASET,
            context_size=CONTEXT_SIZE,
            training_tokens=options.tokens,
        ),
        runner={**_RUNNER, "seed": options.seed},
        sae={
            "d_in": 384,
            "d_sae": options.d_sae,
            "k": options.k,
            "seed": options.seed,
            "normalize_activations": "expected_average_only_in",
            "topk_threshold_lr": 0.1,  # 0.01, the default, takes more steps than there are
        },
        grids=[
            Grid(id=PLAIN, sae={"architecture": PLAIN}),
            Grid(id=REGULARIZED, sae={"architecture": REGULARIZED, **c2r}),
        ],
    )
