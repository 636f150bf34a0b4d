"""Calling each evaluation: SAEBench's by their own entry points, SAELens's, and ours."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jaxtyping
import torch
from huggingface_hub import snapshot_download
from sae_lens import SAE
from torch import nn
from transformers import set_seed

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import write_text
from sae_lens_c2r._support.remote_code import remote_code
from sae_lens_c2r.evaluation import catalog
from sae_lens_c2r.evaluation.on_text import on_text
from sae_lens_c2r.evaluation.report import LOG
from sae_lens_c2r.evaluation.settings import config_class_of, short_name
from sae_lens_c2r.evaluation.tasks import Measure, Task, without_given
from sae_lens_c2r.models.loading import (
    load_by_bridge,
    load_with,
    on_this_machine,
    output_of_block,
)
from sae_lens_c2r.models.offline import where_model_is
from sae_lens_c2r.models.reading import TRANSFORMERS
from sae_lens_c2r.saes.hashes import sae_hashes

_SEED, _PROMPTS = 42, "adamkarvonen/ravel_prompts"


def run_evaluations(tasks: Sequence[Task], working: Path) -> None:
    """Run an evaluation of SAEs that share all else, and write each one's result at once."""
    if tasks[0].name in catalog.EVALUATIONS:
        _run_sae_bench(tasks, working)
        return
    measure: Measure | None = None
    for task, sae in _in_turn(tasks):
        measure = measure or on_text(task, sae)
        content = {"eval_type_id": task.name, "eval_result_metrics": measure(task, sae)}
        write_text(working / f"{task.key}.json", json.dumps(content))


def _in_turn(tasks: Sequence[Task]) -> Iterator[tuple[Task, SAE[Any]]]:
    """Load one SAE after another, and give each a log of its own."""
    for task in tasks:
        if task is not tasks[0]:  # whose log is open
            with (task.folder / LOG).open("wb") as log:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                    os.dup2(log.fileno(), stream.fileno())
        sae = task.source.load_for_inference(task.device)
        if sae_hashes(sae) != (task.sae.weights_sha256, task.sae.config_sha256):
            raise UserError(f"{task.sae.name} has changed since the evaluation was planned.")
        sae.cfg.metadata.model_name = task.asked.model
        options = task.shared.get("model_from_pretrained_kwargs")
        sae.cfg.metadata.model_from_pretrained_kwargs = options
        yield task, sae


@dataclass
class _SAEs:
    """SAEs as SAEBench takes them: of a list, it asks for the next when it is done with one."""

    tasks: Sequence[Task]
    working: Path
    n_done: int = 0

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[tuple[str, SAE[Any]]]:
        for task, sae in _in_turn(self.tasks):
            metadata, settings = sae.cfg.metadata, task.asked.settings
            if metadata.model_class_name == TRANSFORMERS:
                metadata.hook_name, _ = output_of_block(str(metadata.hook_name))
                metadata.model_from_pretrained_kwargs = {}
            options = metadata.model_from_pretrained_kwargs
            options = without_given(on_this_machine(options or {}, task.device))
            metadata.model_from_pretrained_kwargs = options
            if settings.get("llm_dtype"):
                sae.cfg.dtype = settings["llm_dtype"]
            # As in a process of its own, whatever the SAE before has left.
            torch.set_grad_enabled(True)
            set_seed(settings.get("random_seed", _SEED))
            yield task.key, sae
            self.take_result()

    def take_result(self) -> None:
        """Take what SAEBench has written of an SAE; a UserError if that is nothing."""
        task = self.tasks[self.n_done]
        self.n_done += 1
        written = list(self.working.rglob(f"{task.key}_custom_sae_eval_results.json"))
        if task.name == catalog.ABSORPTION:
            _add_probes(task.key, written, task.asked.settings)
        if not written:  # SAEBench goes on after some failures as if there were none
            raise UserError(
                "SAEBench could not evaluate the SAE, and wrote no result: the log says why."
            )
        os.replace(written[0], self.working / f"{task.key}.json")


@remote_code()
def _run_sae_bench(tasks: Sequence[Task], working: Path) -> None:
    """Run one of SAEBench's evaluations in the current folder."""
    shared, saes = tasks[0].shared, _SAEs(tasks, working)
    of_model = shared["model_from_pretrained_kwargs"] or {}
    if shared["model_class_name"] == TRANSFORMERS:
        revision = of_model.get("revision")
        load_by_bridge(str(tasks[0].asked.model), module=shared["hook_name"], revision=revision)
    elif options := without_given(on_this_machine(of_model, tasks[0].device)):
        load_with(options)
    # SAEBench's sparse probing passes shapes that its annotations forbid.
    jaxtyping.config.update("jaxtyping_disable", True)
    _entry_point(tasks, working)(saes, device=tasks[0].device)
    if saes.n_done < len(saes):  # absorption ends with an SAE that has no result
        saes.take_result()


def _entry_point(tasks: Sequence[Task], working: Path) -> Callable[..., Any]:
    name, settings = tasks[0].name, dict(tasks[0].asked.settings)
    out = working / "of-sae-bench"
    out.mkdir(exist_ok=True)  # or left by a process in which an SAE failed
    package = catalog.EVALUATIONS[name].package
    if name == "core":
        del settings["model_name"]
        return partial(
            import_module(f"{package}.main").multiple_evals,
            # the names that it has for fields of its config
            dtype=settings.pop("llm_dtype"),
            eval_batch_size_prompts=settings.pop("batch_size_prompts"),
            compute_featurewise_density_statistics=True,
            compute_featurewise_weight_based_metrics=True,
            output_folder=str(out),
            verbose=True,
            **settings,
        )
    config = config_class_of(name)(**settings)
    options: dict[str, Any] = {"output_path": str(out)}
    if name in ("scr", "tpp", "sparse_probing"):
        # With saved activations, scores would depend on whether an SAE is the first.
        options |= {"clean_up_activations": True, "save_activations": False}
    elif name == catalog.ABSORPTION:
        _prepare_absorption(settings["random_seed"], working / catalog.ABSORPTION)
    elif name == catalog.RAVEL:
        _prepare_ravel(config, tasks[0].shared["model_from_pretrained_kwargs"] or {})
    elif name == "autointerp":
        options["api_key"] = os.environ[catalog.API_KEY]
    return partial(import_module(f"{package}.main").run_eval, config, **options)


def _add_probes(key: str, written: list[Path], settings: dict[str, Any]) -> None:
    """Put the F1 of each letter's probe beside the score, or say which probes are missing."""
    path = Path("artifacts", catalog.ABSORPTION, f"{key}_custom_sae_k_sparse_probing.json")
    probes = {row["letter"]: row["f1_probe"] for row in json.loads(path.read_bytes())}
    least, letters = settings["min_GT_probe_f1"], settings["min_feats_for_eval"]
    good = sum(f1 > least for f1 in probes.values())
    probes["mean"] = sum(probes.values()) / len(probes)
    if not written and good < letters:
        should = f"have probes of {letters} letters with an F1 above {least}, for a score"
        found = f"{good} in {settings['model_name']}, with a mean F1 of {probes['mean']:.2f}"
        raise UserError("model", should, found)
    for result in written:
        content = json.loads(result.read_bytes())
        content["eval_result_metrics"][catalog.PROBES] = probes
        result.write_text(json.dumps(content), encoding="utf-8")


def _prepare_absorption(seed: int, here: Path) -> None:
    """Have SAEBench keep probes, by the name of a model, in a folder of this command's."""
    # It has them beside its own files. And a tokenizer gives its vocabulary in another order
    # each time it is loaded, so that a seed alone does not make two runs find the same.
    from sae_bench.evals.absorption import common, feature_absorption, k_sparse_probing, main
    from sae_bench.evals.absorption.vocab import get_alpha_tokens

    load_or_train = k_sparse_probing.load_or_train_probe

    def load_or_train_and_seed(**options: Any) -> Any:
        probe = load_or_train(**options)
        set_seed(seed)  # the same, whichever SAE had it trained
        return probe

    k_sparse_probing.load_or_train_probe = load_or_train_and_seed
    places = {"experiment_dir": here, "probes_dir": here / "probes"}
    main.run_k_sparse_probing_experiment = partial(
        main.run_k_sparse_probing_experiment, **places
    )
    main.run_feature_absortion_experiment = partial(
        main.run_feature_absortion_experiment, **places, sparse_probing_experiment_dir=here
    )
    for module in (common, feature_absorption):
        module.get_alpha_tokens = lambda tokenizer: sorted(get_alpha_tokens(tokenizer))


def _prepare_ravel(config: Any, of_model: dict[str, Any]) -> None:
    """Name the model as RAVEL does, and give RAVEL the tuples and the files that it expects."""
    from sae_bench.evals.ravel.main import LLM_NAME_MAP
    from sae_bench.sae_bench_utils import activation_collection

    model = config.model_name
    if short_name(model) not in LLM_NAME_MAP:
        known = ", ".join(LLM_NAME_MAP)
        raise UserError("model", f"be one that SAEBench's ravel knows: {known}", model)
    if found := [key for key, value in without_given(of_model).items() if value]:
        should = "be empty for SAEBench's ravel, which loads models without options"
        raise UserError("metadata.model_from_pretrained_kwargs", should, ", ".join(found))
    config.model_name = short_name(model)
    if "/" in model:  # another of that name, or a folder
        LLM_NAME_MAP[config.model_name] = where_model_is(model)
    base = Path(config.artifact_dir, "base")
    if not base.exists():  # SAEBench itself would not look for it in the Hub's cache
        base.parent.mkdir(parents=True, exist_ok=True)
        base.symlink_to(snapshot_download(_PROMPTS, repo_type="dataset"))
    get_module = activation_collection.get_module
    activation_collection.get_module = lambda *args: _with_tuples(get_module(*args))


def _with_tuples(layer: nn.Module) -> Any:
    """Return what takes hooks for a layer, and shows them its output in a tuple."""
    # SAEBench's RAVEL takes a layer's output from a tuple, and puts another into it. Since
    # version 5 of transformers there is no tuple.

    def register(hook: Callable[..., Any]) -> Any:
        def adapted(layer: nn.Module, inputs: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return hook(layer, inputs, output)
            changed = hook(layer, inputs, (output,))
            return None if changed is None else changed[0]

        return layer.register_forward_hook(adapted)

    return SimpleNamespace(register_forward_hook=register)
