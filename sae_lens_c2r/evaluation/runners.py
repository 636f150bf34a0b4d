"""Calling SAEBench, each evaluation by its own entry point, SAELens, and our own measures."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jaxtyping
import torch
from sae_lens import SAE, __version__
from sae_lens.evals import get_eval_everything_config, run_evals
from sae_lens.synthetic import SyntheticModel
from sae_lens.training.activation_scaler import ActivationScaler
from torch import Tensor, nn
from transformers import set_seed

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import fill_once
from sae_lens_c2r._support.remote_code import remote_code
from sae_lens_c2r.analysis import co_firing
from sae_lens_c2r.analysis.recovery import feature_recovery
from sae_lens_c2r.evaluation import catalog
from sae_lens_c2r.evaluation.report import PROBES, RESULT
from sae_lens_c2r.evaluation.settings import config_class_of, short_name
from sae_lens_c2r.evaluation.tasks import Task
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.contexts import encode
from sae_lens_c2r.offline.models import MINILM
from sae_lens_c2r.releases.language_models import TRANSFORMERS, load_by_bridge, output_of_block
from sae_lens_c2r.releases.model import PARTS, TextSource
from sae_lens_c2r.releases.text import read_text
from sae_lens_c2r.saes.record import KNOWN_FEATURES, SAE_LENS
from sae_lens_c2r.training.configs import synthetic_model_config

_MOST_TOKENS = 100_000  # of which the activations are held, for co-firing
_NAME, _SEED = "sae", 42


def run_evaluation(task: Task, sae: SAE[Any], working: Path) -> None:
    """Run an evaluation of an SAE, and write its result in the form of SAEBench's files."""
    sae.cfg.metadata.model_name = task.asked.model
    if task.name not in (SAE_LENS, KNOWN_FEATURES):
        shutil.move(_run_sae_bench(task, sae, working), working / RESULT)
        return
    measure = _measure_text if task.name == SAE_LENS else _measure_features
    content = {
        "eval_type_id": task.name,
        "eval_config": task.asked.settings,
        "eval_result_metrics": measure(task, sae),
        "sae_lens_version": __version__,
    }
    (working / RESULT).write_text(json.dumps(content), encoding="utf-8")


def _measure_text(task: Task, sae: SAE[Any]) -> dict[str, Any]:
    """SAELens's own `run_evals`, for models of any class that SAELens loads, and co-firing."""
    asked, metadata = task.asked, sae.cfg.metadata
    source = asked.text or metadata.dataset_path
    if not source:
        raise UserError("`text` should be given: the SAE does not say what it was trained on.")
    settings = dict(asked.settings)
    text = read_text(TextSource(source, **{key: settings.pop(key, None) for key in PARTS}))
    rows = settings["n_eval_sparsity_variance_batches"] * settings["batch_size_prompts"]
    n_tokens = min(rows * (metadata.context_size or 1), _MOST_TOKENS)
    reader = ActivationSource(
        text, model=asked.model, n_tokens=n_tokens, device=task.device, tell=print
    )
    model = reader.model_of(sae)
    store = reader.store_of(sae, store_batch_size_prompts=settings["batch_size_prompts"])
    config = get_eval_everything_config(**settings)
    # Its head is random: nobody trained all-MiniLM-L6-v2 to predict a token.
    config.compute_kl = config.compute_ce_loss = asked.model != MINILM.hub_id
    special = metadata.exclude_special_tokens or False
    _splice_where_trained(model, slice(*store.seqpos_slice))
    _compute_loss_in_float32(model)
    metrics, _ = run_evals(
        sae, store, model, ActivationScaler(), config, exclude_special_tokens=special
    )
    acts = (acts for _, acts in encode(sae, reader.activations(sae, str(task.sae.name))))
    return {**metrics, **co_firing(acts).summary()}


def _splice_where_trained(model: Any, positions: slice) -> None:
    """Have SAELens leave activations as they are where the SAE was not trained.

    It would replace a row's first token, too, which attention rests on in many models.
    """
    run = model.run_with_hooks

    def splice(replace: Callable[..., Tensor], activations: Tensor, hook: Any) -> Tensor:
        spliced = activations.clone()
        spliced[:, positions] = replace(activations, hook=hook)[:, positions]
        return spliced

    def run_with_hooks(*args: Any, fwd_hooks: list[Any], **options: Any) -> Any:
        there = [(name, partial(splice, replace)) for name, replace in fwd_hooks]
        return run(*args, fwd_hooks=there, **options)

    model.run_with_hooks = run_with_hooks


def _compute_loss_in_float32(model: Any) -> None:
    """Have SAELens take the loss of logits in float32: bfloat16 would round it to 1/64."""
    wrapped = getattr(model, "model", None)  # of `transformers`
    head = wrapped.get_output_embeddings() if wrapped else model.unembed
    head.register_forward_hook(lambda _module, _inputs, logits: logits.float())


def _measure_features(task: Task, sae: SAE[Any]) -> dict[str, Any]:
    """`feature_recovery` of the features that the SAE was trained on, drawn again."""
    config = synthetic_model_config(task.features or {})
    model = SyntheticModel.load_from_source(config, device=task.device)
    settings = dict(task.asked.settings)
    torch.manual_seed(settings.pop("seed"))
    return feature_recovery(sae, model, **settings)


@remote_code()
def _run_sae_bench(task: Task, sae: SAE[Any], working: Path) -> Path:
    """Run one of SAEBench's evaluations in the current folder; the file that it wrote."""
    settings, metadata, out = task.asked.settings, sae.cfg.metadata, working / "of-sae-bench"
    if task.name == catalog.ABSORPTION:
        _share_probes(task, sae, working)
    if metadata.model_class_name == TRANSFORMERS:
        module, options = str(metadata.hook_name), metadata.model_from_pretrained_kwargs or {}
        load_by_bridge(str(task.asked.model), module=module, revision=options.get("revision"))
        metadata.hook_name, _ = output_of_block(module)
        metadata.model_from_pretrained_kwargs = {}
    # SAEBench gives these itself.
    for name in ("dtype", "torch_dtype", "device"):
        (metadata.model_from_pretrained_kwargs or {}).pop(name, None)
    if settings.get("llm_dtype"):
        sae.cfg.dtype = settings["llm_dtype"]
    # SAEBench's sparse probing passes shapes that its annotations forbid.
    jaxtyping.config.update("jaxtyping_disable", True)
    out.mkdir()
    run = _entry_point(task, dict(settings), str(out))
    set_seed(settings.get("random_seed", _SEED))  # which SAEBench's absorption does not use
    run([(_NAME, sae)], device=task.device)
    written = list(out.rglob(f"{_NAME}_custom_sae_eval_results.json"))
    if task.name == catalog.ABSORPTION:
        _add_probes(written, settings)
    if not written:  # SAEBench goes on after some failures as if there were none
        raise UserError(
            "SAEBench could not evaluate the SAE, and wrote no result: the log says why."
        )
    return written[0]


def _entry_point(task: Task, settings: dict[str, Any], out: str) -> Callable[..., Any]:
    package = catalog.EVALUATIONS[task.name].package
    if task.name == "core":
        del settings["model_name"]
        return partial(
            import_module(f"{package}.main").multiple_evals,
            # the names that it has for fields of its config
            dtype=settings.pop("llm_dtype"),
            eval_batch_size_prompts=settings.pop("batch_size_prompts"),
            compute_featurewise_density_statistics=True,
            compute_featurewise_weight_based_metrics=True,
            output_folder=out,
            verbose=True,
            **settings,
        )
    config = config_class_of(task.name)(**settings)
    options: dict[str, Any] = {"output_path": out}
    if task.name in ("scr", "tpp", "sparse_probing"):
        options |= {"clean_up_activations": True, "save_activations": False}
    elif task.name == catalog.ABSORPTION:
        _order_vocabulary()
    elif task.name == catalog.RAVEL:
        _prepare_ravel(config)
    elif task.name == "autointerp":
        options["api_key"] = os.environ[catalog.API_KEY]
    return partial(import_module(f"{package}.main").run_eval, config, **options)


def _add_probes(written: list[Path], settings: dict[str, Any]) -> None:
    """Put the F1 of each letter's probe beside the score, or say which probes are missing."""
    path = Path("artifacts", catalog.ABSORPTION, f"{_NAME}_custom_sae_k_sparse_probing.json")
    probes = {row["letter"]: row["f1_probe"] for row in json.loads(path.read_bytes())}
    probes["mean"] = sum(probes.values()) / len(probes)
    good = sum(f1 > settings["min_GT_probe_f1"] for f1 in probes.values())
    if not written and good < settings["min_feats_for_eval"]:
        raise UserError(
            f"absorption should have probes of {settings['min_feats_for_eval']} letters with "
            f"an F1 above {settings['min_GT_probe_f1']}, on which its score rests. "
            f"{settings['model_name']} has {good}, with a mean F1 of {probes['mean']:.2f}."
        )
    for result in written:
        content = json.loads(result.read_bytes())
        content["eval_result_metrics"][catalog.PROBES] = probes
        result.write_text(json.dumps(content), encoding="utf-8")


def _share_probes(task: Task, sae: SAE[Any], working: Path) -> None:
    """Have SAEs of the same activations share probes, which take most of absorption's time.

    SAEBench keeps probes and results beside its own files, by the name of a model, and takes
    them again for another model of that name.
    """
    from sae_bench.evals.absorption import k_sparse_probing, main

    metadata, asked = sae.cfg.metadata, {"model", "settings", "inputs", "device", "versions"}
    place = (metadata.hook_name, metadata.hook_layer, metadata.model_from_pretrained_kwargs)
    key = json.dumps([task.asked.model_dump(mode="json", include=asked), place], default=str)
    here = working / catalog.ABSORPTION
    probes = (working / PROBES).resolve() / sha256(key.encode()).hexdigest()
    load_or_train = k_sparse_probing.load_or_train_probe

    def load_or_train_once(**options: Any) -> Any:
        fill_once(probes, lambda folder: load_or_train(**{**options, "probes_dir": folder}))
        set_seed(task.asked.settings["random_seed"])  # the same, whichever SAE had them trained
        return load_or_train(**options)

    k_sparse_probing.load_or_train_probe = load_or_train_once
    places = {"experiment_dir": here, "probes_dir": probes}
    main.run_k_sparse_probing_experiment = partial(
        main.run_k_sparse_probing_experiment, **places
    )
    main.run_feature_absortion_experiment = partial(
        main.run_feature_absortion_experiment, **places, sparse_probing_experiment_dir=here
    )


def _order_vocabulary() -> None:
    """Let absorption split words in the same order in every process.

    A tokenizer gives its vocabulary in another order each time it is loaded, so that a seed
    alone does not make two runs find the same.
    """
    from sae_bench.evals.absorption import common, feature_absorption, vocab

    for module in (common, feature_absorption):
        module.get_alpha_tokens = lambda tokenizer: sorted(vocab.get_alpha_tokens(tokenizer))


def _prepare_ravel(config: Any) -> None:
    """Name the model as SAEBench's RAVEL does, and give RAVEL the tuples that it expects."""
    from sae_bench.evals.ravel.main import LLM_NAME_MAP
    from sae_bench.sae_bench_utils import activation_collection

    model = config.model_name
    if short_name(model) not in LLM_NAME_MAP:
        known = ", ".join(LLM_NAME_MAP)
        raise UserError(f"SAEBench's ravel knows the models {known}. Found {model}.")
    config.model_name = short_name(model)
    get_module = activation_collection.get_module
    activation_collection.get_module = lambda *args: _with_tuples(get_module(*args))


def _with_tuples(layer: nn.Module) -> Any:
    """Return what takes hooks for a layer, and shows them its output in a tuple.

    SAEBench's RAVEL takes a layer's output from a tuple, and puts another into it. Since
    version 5 of transformers there is no tuple.
    """

    def register(hook: Callable[..., Any]) -> Any:
        def adapted(layer: nn.Module, inputs: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return hook(layer, inputs, output)
            changed = hook(layer, inputs, (output,))
            return None if changed is None else changed[0]

        return layer.register_forward_hook(adapted)

    return SimpleNamespace(register_forward_hook=register)
