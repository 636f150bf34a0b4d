"""Every mode of SAELens's own runners, with C2R on."""

from pathlib import Path
from typing import Any

import pytest
import torch
import wandb
from sae_lens import (
    CacheActivationsRunner,
    CacheActivationsRunnerConfig,
    LanguageModelSAERunnerConfig,
    LanguageModelSAETrainingRunner,
    LoggingConfig,
    MultiSAETrainingRunner,
    MultiSAETrainingRunnerConfig,
    cache_activations_runner,
)
from torch import Tensor

from tests.architectures.training import make_config
from tests.language_model import CONTEXT, D_MODEL, HOOK, rows_of_tokens, texts, tiny_model

Logs = list[dict[str, Any]]
STEPS, BATCH = 12, 16
SHORT: dict[str, Any] = {  # runs of a tiny model
    "hook_names": HOOK,
    "streaming": False,
    "prepend_bos": False,
    "context_size": CONTEXT,
    "training_tokens": STEPS * BATCH,
    "train_batch_size_tokens": BATCH,
    "store_batch_size_prompts": 3,
    "n_batches_in_buffer": 6,
    "n_eval_batches": 1,
    "checkpoint_path": None,
    "output_path": None,
}
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "autocast": {"autocast": True},
    "autocast of the model": {"autocast_lm": True},
    "compile_sae": {"compile_sae": True},
    "prefetch": {"prefetch_llm_batches": 2},
    "seqpos_slice": {"seqpos_slice": (2, -1)},
    "exclude_special_tokens": {"exclude_special_tokens": [0, 3, 7]},
    "texts": {"prepend_bos": False},
    "cached": {"use_cached_activations": True},
}
pytestmark = pytest.mark.filterwarnings("ignore")  # SAELens's, of so small a dataset


@pytest.fixture(autouse=True)
def model_of_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where SAELens takes no model that is loaded already."""
    monkeypatch.setattr(cache_activations_runner, "load_model", lambda **_: tiny_model())


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Logs:
    """What a run logs to wandb, which is offline."""
    logged: Logs = []
    log = wandb.Run.log

    def record(run: wandb.Run, values: dict[str, Any], **options: Any) -> None:
        logged.append(values)
        log(run, values, **options)

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setattr(wandb.Run, "log", record)
    return logged


def config(sae: Any, folder: Path, **mode: Any) -> LanguageModelSAERunnerConfig[Any]:
    if mode.get("use_cached_activations"):
        mode["cached_activations_path"] = str(cached_activations(folder))
    short = {name: value for name, value in SHORT.items() if name != "hook_names"}
    # SAELens's evaluations take rows of the text that it trains on. How many rows its thread
    # has read ahead by then is chance, and so is which rows the training goes without.
    every = 10**9 if mode.get("prefetch_llm_batches") else 5
    logger = LoggingConfig(
        wandb_log_frequency=1, eval_every_n_wandb_logs=every, log_weights_to_wandb=False
    )
    here: dict[str, Any] = {"model_name": "tiny", "dataset_path": "", "device": "cpu"}
    return LanguageModelSAERunnerConfig(
        sae=sae, hook_name=HOOK, logger=logger, **{**short, **here, **mode}
    )


def cached_activations(folder: Path) -> Path:
    path = folder / "activations"
    if not path.exists():
        caching = CacheActivationsRunnerConfig(
            dataset_path="",
            model_name="tiny",
            model_batch_size=3,
            hook_name=HOOK,
            d_in=D_MODEL,
            training_tokens=18 * CONTEXT,
            buffer_size_gb=1e-6,  # by default it is filled with as many tokens as 2 GB hold
            context_size=CONTEXT,
            new_cached_activations_path=str(path),
            prepend_bos=False,
            device="cpu",
            streaming=False,
        )
        CacheActivationsRunner(caching, override_dataset=rows_of_tokens()).run()
    return path


def train(sae: Any, folder: Path, mode: str) -> Tensor:
    """The decoder after training."""
    data = texts() if mode == "texts" else rows_of_tokens()
    cfg, model = config(sae, folder, **MODES[mode]), tiny_model()
    torch.manual_seed(0)  # after the model, which is drawn when it is first asked for
    runner = LanguageModelSAETrainingRunner(cfg, override_dataset=data, override_model=model)
    torch.manual_seed(1)
    return runner.run().W_dec.detach()


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=pytest.mark.exhaustive if mode == "compile_sae" else ())
        for mode in MODES
    ],
)
def test_every_log_of_every_mode_shows_the_metrics(
    mode: str, tmp_path: Path, logs: Logs
) -> None:
    torch._dynamo.reset()
    options: dict[str, Any] = {"d_in": D_MODEL, "d_sae": 32, "k": 4}
    W_dec = train(make_config("batchtopk_c2r", **options, c2r_interval=2), tmp_path, mode)
    assert W_dec.isfinite().all()
    steps = [logged for logged in logs if "losses/overall_loss" in logged]
    assert len(steps) == STEPS
    for step, logged in enumerate(steps):
        for metric in ("penalty", "effective_coefficient", "mean_max_cosine"):
            assert logged[f"metrics/c2r_{metric}"] >= 0
        assert logged["details/c2r_coefficient"] == 2
        assert ("losses/c2r_loss" in logged) == (step % 2 == 0)
    logs.clear()
    off = train(make_config("batchtopk_c2r", **options, c2r_coefficient=0.0), tmp_path, mode)
    backbone = train(make_config("batchtopk", **options), tmp_path, mode)
    tolerance = 1e-4 if mode == "compile_sae" else 0.0  # which compiles other kernels
    torch.testing.assert_close(off, backbone, rtol=tolerance, atol=tolerance)
    assert not torch.equal(W_dec, backbone)


def test_every_log_of_several_saes_shows_the_metrics_of_each(logs: Logs) -> None:
    options: dict[str, Any] = {"d_in": D_MODEL, "d_sae": 32, "k": 4}
    saes = {name: make_config(name, **options) for name in ("topk_c2r", "ort_c2r", "topk")}
    logger = LoggingConfig(wandb_log_frequency=1, eval_every_n_wandb_logs=5)
    read_ahead: dict[str, Any] = {"prefetch_llm_batches": True, "autocast": True}
    cfg = MultiSAETrainingRunnerConfig(saes=saes, logger=logger, **read_ahead, **SHORT)
    MultiSAETrainingRunner(
        cfg, override_dataset=rows_of_tokens(), override_model=tiny_model()
    ).run()
    steps = [logged for logged in logs if "topk/losses/overall_loss" in logged]
    assert len(steps) == STEPS
    for logged in steps:
        of_penalties = {name for name in logged if name.endswith("_penalty")}
        assert of_penalties == {
            "topk_c2r/metrics/c2r_penalty",
            *(f"ort_c2r/metrics/{name}_penalty" for name in ("c2r", "ort")),
        }
        assert all(logged[name] >= 0 for name in of_penalties)
