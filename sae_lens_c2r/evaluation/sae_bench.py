"""SAEBench's core and absorption, by their own entry points, and mends of their faults.

They run in a process of their own: SAEBench leaks memory, and is patched here.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from pydantic import BaseModel
from sae_lens import SAE
from transformers import set_seed

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.remote_code import TRUSTED, remote_code
from sae_lens_c2r.evaluation.process import run_process
from sae_lens_c2r.evaluation.results import Task
from sae_lens_c2r.evaluation.settings import ABSORPTION
from sae_lens_c2r.models.loading import (
    load_by_bridge,
    load_with,
    on_this_machine,
    output_of_block,
)
from sae_lens_c2r.models.reading import TRANSFORMERS

WORKING = ".working-"  # begins the name of the folder that processes work in
_GIVEN = {"dtype", "torch_dtype", "device"}  # options of a model that SAEBench gives itself
_SEED = 42
_PROBES = Path("..", ABSORPTION)  # which processes share, one after another
_OUTPUT = "of-sae-bench"
# Metrics with what SAEBench calls them of a letter.
_OF_LETTERS = {
    "absorption": "mean_absorption_fraction",
    "full_absorption": "full_absorption_rate",
}

Answer = Callable[[dict[str, Any]], None]
Give = Callable[[Task, dict[str, Any] | UserError], None]


class _Request(BaseModel):
    trust_remote_code: bool
    tasks: list[Task]


def run_sae_bench(tasks: Sequence[Task], log: Path, *, give: Give) -> None:
    """Run an evaluation of SAEs that share all else; give what was measured, or why not.

    An SAE that fails ends the process, and another one goes on with the rest.
    """
    waiting = list(tasks)

    def answered(answer: dict[str, Any]) -> bool:
        error = answer.get("error")
        give(waiting.pop(0), UserError(f"{error} Log: {log}") if error else answer)
        return not waiting

    with TemporaryDirectory(prefix=WORKING, dir=log.parent.resolve()) as working:
        while waiting:
            n_waiting = len(waiting)
            request = _Request(trust_remote_code=TRUSTED.get(), tasks=waiting)
            status = run_process(
                request.model_dump_json(), answered, working=Path(working), log=log
            )
            if len(waiting) == n_waiting:
                answered({"error": f"its process ended with status {status}."})


def run_request(request: str, answer: Answer) -> None:
    """Evaluate SAEs in the current folder, and answer with what was measured of each."""
    asked = _Request.model_validate_json(request)
    TRUSTED.set(asked.trust_remote_code)
    saes, task = _SAEs(asked.tasks, answer), asked.tasks[0]
    reading = task.reading
    with remote_code():
        if reading.model_class_name == TRANSFORMERS:
            revision = reading.model_from_pretrained_kwargs.get("revision")
            module = str(reading.hook_name)
            load_by_bridge(str(reading.model_name), module=module, revision=revision)
        elif options := _options(task):
            load_with(options)
        _entry_point(task)(saes, device=task.asked.device)
        if saes.n_done < len(saes):  # absorption ends with an SAE that has no result
            saes.take_result()


@dataclass
class _SAEs:
    """SAEs as SAEBench takes them: of a list, it asks for the next when it is done with one."""

    tasks: Sequence[Task]
    answer: Answer
    n_done: int = 0

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[tuple[str, SAE[Any]]]:
        for task in self.tasks:
            sae = task.load()
            metadata, settings = sae.cfg.metadata, task.asked.settings
            metadata.model_name = task.reading.model_name
            metadata.model_from_pretrained_kwargs = _options(task)
            if metadata.model_class_name == TRANSFORMERS:
                metadata.hook_name, _ = output_of_block(str(metadata.hook_name))
                metadata.model_from_pretrained_kwargs = {}
            sae.cfg.dtype = settings["llm_dtype"]
            # As in a process of its own, whatever the SAE before has left.
            torch.set_grad_enabled(True)
            set_seed(settings.get("random_seed", _SEED))
            yield _key(task), sae
            self.take_result()

    def take_result(self) -> None:
        """Take what SAEBench has written of an SAE; a UserError if that is nothing."""
        task = self.tasks[self.n_done]
        self.n_done += 1
        written = list(Path().rglob(f"{_key(task)}_custom_sae_eval_results.json"))
        if not written:  # SAEBench goes on after some failures as if there were none
            raise UserError("SAEBench could not evaluate the SAE, and the log says why.")
        found = json.loads(written[0].read_bytes())
        metrics = found["eval_result_metrics"]
        if task.name == ABSORPTION:
            metrics["f1_of_probes"] = _f1_of_probes(_key(task))
            metrics["by_letter"] = {
                name: {of["first_letter"]: of[score] for of in found["eval_result_details"]}
                for name, score in _OF_LETTERS.items()
            }
        self.answer(metrics)


def _key(task: Task) -> str:
    """A name of the SAE for SAEBench's files."""
    return f"{task.sae.weights_sha256}"[:16] + f"{task.sae.config_sha256}"[:16]


def _options(task: Task) -> dict[str, Any]:
    """The options that the model is loaded with, but for those that SAEBench gives itself."""
    options = on_this_machine(task.reading.model_from_pretrained_kwargs, str(task.asked.device))
    return {key: value for key, value in options.items() if key not in _GIVEN}


def _entry_point(task: Task) -> Callable[..., Any]:
    settings = dict(task.asked.settings)
    Path(_OUTPUT).mkdir()
    if task.name == ABSORPTION:
        from sae_bench.evals.absorption import main as absorption

        _prepare_absorption(settings["random_seed"])
        config = absorption.AbsorptionEvalConfig(**settings)
        return partial(absorption.run_eval, config, output_path=_OUTPUT)
    from sae_bench.evals.core.main import multiple_evals

    del settings["model_name"]  # the SAE has it
    return partial(
        multiple_evals,
        # the names that it has for fields of its config
        dtype=settings.pop("llm_dtype"),
        eval_batch_size_prompts=settings.pop("batch_size_prompts"),
        compute_featurewise_density_statistics=True,
        compute_featurewise_weight_based_metrics=True,
        output_folder=_OUTPUT,
        verbose=True,
        **settings,
    )


def _f1_of_probes(key: str) -> dict[str, float]:
    """The F1 of each letter's probe, which stands beside the score."""
    path = Path("artifacts", ABSORPTION, f"{key}_custom_sae_k_sparse_probing.json")
    f1 = {row["letter"]: row["f1_probe"] for row in json.loads(path.read_bytes())}
    return {**f1, "mean": sum(f1.values()) / len(f1)}


def _prepare_absorption(seed: int) -> None:
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
    here = _PROBES.absolute()
    places = {"experiment_dir": here, "probes_dir": here / "probes"}
    main.run_k_sparse_probing_experiment = partial(
        main.run_k_sparse_probing_experiment, **places
    )
    main.run_feature_absortion_experiment = partial(
        main.run_feature_absortion_experiment, **places, sparse_probing_experiment_dir=here
    )
    for module in (common, feature_absorption):
        module.get_alpha_tokens = lambda tokenizer: sorted(get_alpha_tokens(tokenizer))
