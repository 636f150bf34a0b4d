"""Calling SAEBench, each evaluation by its own entry point.

The file that an evaluation writes is demanded, because SAEBench goes on after some failures as
if there were none.
"""

import os
import random
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sae_lens import SAE
from torch import nn

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.catalog import API_KEY, EVALUATIONS
from sae_lens_c2r.evaluation.eval_settings import config_class_of, short_name
from sae_lens_c2r.evaluation.tasks import Task

_NAME, _SEED = "sae", 42
Run = Callable[[list[Any], str], Any]  # of the SAEs with their names, on a device


def run_sae_bench(task: Task, sae: SAE[Any], out: Path) -> Path:
    """Run one of SAEBench's evaluations in the current folder.

    Returns:
        The file that it wrote.

    Raises:
        UserError: If it wrote none, or asks for something that is missing.
    """
    evaluation, settings = task.about.asked.evaluation, task.about.asked.settings
    if settings.get("llm_dtype"):
        sae.cfg.dtype = settings["llm_dtype"]
    out.mkdir()
    if evaluation == "core":
        run = _core(settings, str(out))
    else:
        config = config_class_of(EVALUATIONS[evaluation])(**settings)
        run = _entry_point(evaluation, config, str(out))
    _seed(settings.get("random_seed", _SEED))
    run([(_NAME, sae)], task.about.device)
    written = list(out.rglob(f"{_NAME}_custom_sae_eval_results.json"))
    if not written:
        raise UserError(
            "SAEBench wrote no result: it could not evaluate the SAE, and its log says why."
        )
    return written[0]


def _seed(seed: int) -> None:
    """SAEBench's absorption has a seed among its settings, and does not use it."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _core(settings: dict[str, Any], out: str) -> Run:
    from sae_bench.evals.core.main import multiple_evals

    options = {key: value for key, value in settings.items() if key != "model_name"}
    options |= {  # the names that its entry point has for fields of its config
        "dtype": options.pop("llm_dtype"),
        "eval_batch_size_prompts": options.pop("batch_size_prompts"),
        "compute_featurewise_density_statistics": True,
        "compute_featurewise_weight_based_metrics": True,
        "output_folder": out,
        "verbose": True,
    }
    return lambda selected, device: multiple_evals(selected, device=device, **options)


def _entry_point(evaluation: str, config: Any, out: str) -> Run:
    run_eval = import_module(f"{EVALUATIONS[evaluation].package}.main").run_eval
    arguments: list[Any] = [out]
    options: dict[str, Any] = {}
    if evaluation in ("scr", "tpp", "sparse_probing"):
        options = {"clean_up_activations": True, "save_activations": False}
    elif evaluation == "absorption":
        _order_vocabulary()
    elif evaluation == "ravel":
        config.model_name = _model_of_ravel(config.model_name)
        _give_tuples()
    elif evaluation == "autointerp":
        arguments = [os.environ[API_KEY], out]
    return lambda selected, device: run_eval(config, selected, device, *arguments, **options)


def _order_vocabulary() -> None:
    """Let absorption split words in the same order in every process.

    A tokenizer gives its vocabulary in another order each time it is loaded, so that a seed
    alone does not make two runs find the same.
    """
    from sae_bench.evals.absorption import common, feature_absorption, vocab

    for module in (common, feature_absorption):
        module.get_alpha_tokens = lambda tokenizer: sorted(vocab.get_alpha_tokens(tokenizer))


def _model_of_ravel(model: str) -> str:
    from sae_bench.evals.ravel.main import LLM_NAME_MAP

    if short_name(model) not in LLM_NAME_MAP:
        known = ", ".join(LLM_NAME_MAP)
        raise UserError(f"SAEBench's ravel knows the models {known}. Found {model}.")
    return short_name(model)


def _give_tuples() -> None:
    from sae_bench.sae_bench_utils import activation_collection

    get_module = activation_collection.get_module
    activation_collection.get_module = lambda *args: TupleOutput(get_module(*args))


class TupleOutput:
    """A layer whose hooks see its output in a tuple.

    SAEBench's RAVEL takes a layer's output from a tuple, and puts another into it. Since
    version 5 of transformers there is no tuple.

    Args:
        layer: The layer.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    def register_forward_hook(self, hook: Callable[..., Any]) -> Any:
        """As torch's."""

        def adapted(layer: nn.Module, inputs: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return hook(layer, inputs, output)
            changed = hook(layer, inputs, (output,))
            return None if changed is None else changed[0]

        return self._layer.register_forward_hook(adapted)
