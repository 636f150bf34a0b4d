"""A number is of what it says: the tokens that training read, by whichever command.

SAEs are trained in every way that decides which activations they see. What the commands then
measure on that text is what transformers, and SAELens's `encode` and `decode`, give by hand.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import SAE
from sae_lens.tokenization_and_batching import (
    concat_and_batch_sequences,
    tokenize_with_chat_template,
)
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from sae_lens_c2r.evaluation.sae_lens import OnText
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.comparison import inspect
from sae_lens_c2r.models import loading
from sae_lens_c2r.models.offline import MINILM, model_folder
from sae_lens_c2r.models.text_source import TextSource
from sae_lens_c2r.releases.files import release_of
from sae_lens_c2r.saes.record import Evaluation
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.train import train
from tests.language_model import tiny_model

pytestmark = pytest.mark.filterwarnings("ignore")  # SAELens's, of so small a text
WIDTH, CONTEXT, D_SAE = 16, 8, 32
NUMBERS = ("explained_variance", "l0", "dead_latents", "n_tokens")
WORDS = ["one two three four five", "six seven", "eight nine ten one two three one", "four"]
TEMPLATE = "{% for m in messages %}<user> {{ m.content }} <end>{% endfor %}"
# Of a release: its language model, runner and SAE.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "a residual stream": ({}, {}, {}),
    "an MLP's output": ({"hook_name": "model.layers.0.mlp"}, {}, {}),
    "scaled inputs": ({}, {}, {"normalize_activations": "expected_average_only_in"}),
    "layer norm": ({}, {}, {"normalize_activations": "layer_norm"}),
    "a chat": ({}, {"use_chat_formatting": True}, {}),
    "norms left out": (
        {},
        {
            "max_activation_norm_multiple": 1.02,
            "store_batch_size_prompts": 3,
            "seqpos_slice": [1, None],
        },
        {},
    ),
    "special tokens left out": ({}, {"exclude_special_tokens": True}, {}),
    "a column": ({"column": "body"}, {}, {}),
    "one head": (
        {"hub_id": "org/tiny", "name": None, "hook_name": "blocks.0.attn.hook_z"},
        {"model_class_name": "HookedTransformer", "hook_head_indices": 1},
        {"d_in": 3},
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of transformers, with a template of chats, and a text."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_attention_heads": 2}
    tokenizer = AutoTokenizer.from_pretrained(model_folder(MINILM))
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=2, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    rows = [{"text": words, "body": words[::-1]} for words in WORDS * 40]
    (folder / "text.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def release(folder: Path, case: str) -> Any:
    language_model, runner, sae = CASES[case]
    read = {"name": str(folder), "hook_name": "model.layers.0", "context_size": CONTEXT}
    read |= {"dataset": str(folder / "text.jsonl"), "training_tokens": 640}
    how = {"model_class_name": "AutoModelForCausalLM", "prepend_bos": False}
    how |= {"sequence_separator_token": None, "train_batch_size_tokens": 64, "lr": 1e-3}
    how |= {"n_batches_in_buffer": 16, "n_batches_for_norm_estimate": 2}
    fields = {"d_in": WIDTH, "d_sae": D_SAE, "k": 4, "topk_threshold_lr": 0.2}
    document = {
        "name": "mine",
        "description": "Mine.",
        "language_model": {**read, **language_model},
        "runner": {**how, **runner},
        "sae": {"architecture": "batchtopk_c2r", **fields, **sae},
        "grids": [{"id": "a"}],
    }
    return release_of(document, overrides=None)


def inputs_by_hand(folder: Path, case: str, n_tokens: int) -> Tensor:
    """What an SAE sees of a text, by transformers, or by TransformerLens for a head."""
    language_model, runner, _ = CASES[case]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = [json.loads(line) for line in (folder / "text.jsonl").read_text().splitlines()]
    column = language_model.get("column", "text")

    def tokens(words: str) -> Tensor:
        if runner.get("use_chat_formatting"):
            return tokenize_with_chat_template([{"role": "user", "content": words}], tokenizer)
        if case == "one head":
            return tiny_model().to_tokens(words, prepend_bos=False, truncate=False)[0]
        return torch.tensor(tokenizer(words)["input_ids"])

    found = concat_and_batch_sequences((tokens(row[column]) for row in rows), CONTEXT)
    read = torch.stack(list(found))[: n_tokens // CONTEXT]
    kept = torch.ones_like(read, dtype=torch.bool)
    kept[:, : runner.get("seqpos_slice", [0])[0]] = False
    if runner.get("exclude_special_tokens"):
        left_out = torch.tensor([tokenizer.sep_token_id, tokenizer.pad_token_id])
        kept &= ~torch.isin(read, left_out)  # what SAELens calls special
    if case == "one head":
        _, cache = tiny_model().run_with_cache(read, prepend_bos=False)
        return cache["blocks.0.attn.hook_z"][:, :, 1][kept]
    model = AutoModelForCausalLM.from_pretrained(folder)
    acts: list[Tensor] = []
    module = model.get_submodule(language_model.get("hook_name", "model.layers.0"))

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        acts.append(output if isinstance(output, Tensor) else output[0])

    module.register_forward_hook(keep)
    with torch.no_grad():
        model(read)
    multiple = runner.get("max_activation_norm_multiple")
    if multiple is None:
        return acts[0][kept]
    parts = []
    n = runner["store_batch_size_prompts"]
    for each, kept_of_each in zip(acts[0].split(n), kept.split(n), strict=True):
        inside = each[kept_of_each]
        norms = inside.norm(dim=1)
        parts.append(inside[norms <= multiple * norms.median()])
    return torch.cat(parts)


@torch.no_grad()
def numbers_by_hand(sae: SAE[Any], inputs: Tensor) -> dict[str, float]:
    sae.turn_off_forward_pass_hook_z_reshaping()
    acts = sae.encode(inputs)
    errors = (inputs - sae.decode(acts)).double()
    deviations = (inputs - inputs.mean(dim=0)).double()
    return {
        "explained_variance": 1 - (errors.square().sum() / deviations.square().sum()).item(),
        "l0": (acts != 0).sum().item() / len(inputs),
        "dead_latents": (acts == 0).all(dim=0).double().mean().item(),
        "n_tokens": len(inputs),
    }


@pytest.mark.parametrize("case", CASES)
def test_all_measure_what_training_read(
    case: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "one head":
        monkeypatch.setattr(loading, "load_model", lambda *_, **__: tiny_model())
    [trained] = train(make_plan(release(folder, case), device="cpu"), tmp_path, log=str)
    text, n_tokens = TextSource(str(folder / "text.jsonl")), 60 * CONTEXT
    told: list[str] = []
    source = ActivationSource(text, n_tokens=n_tokens, device="cpu", tell=told.append)
    ref = SAERef(folder=trained)
    [inspected], _ = inspect([ref], device="cpu", source=source, on_error=pytest.fail)
    inputs = inputs_by_hand(folder, case, n_tokens)
    expected = numbers_by_hand(ref.load("cpu"), inputs)
    rows = {"batch_size_prompts": 4, "n_eval_sparsity_variance_batches": 15}
    asked = Evaluation(
        text=text.dataset,
        model=inspected.config.metadata.model_name,
        settings={**rows, "n_eval_reconstruction_batches": 1},
        device="cpu",
        metrics={},
    )
    evaluated = OnText(told.append).measure(ref.load_for_inference("cpu"), "a", asked)
    for found in (inspected.metrics(), evaluated):
        shown = {key: found[key] for key in NUMBERS}
        assert shown == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert found["n_tokens"] + found["n_tokens_left_out"] == n_tokens
    assert told == []  # the SAE says all of it
    assert expected["n_tokens"] > n_tokens / 4
