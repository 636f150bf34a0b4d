"""No code of a stranger runs unless `--trust-remote-code` says so, wherever it comes from."""

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import datasets
import pytest
import torch
import yaml
from sae_lens import SAE
from sae_lens.loading import pretrained_sae_loaders
from sae_lens.saes.sae import SAEMetadata
from transformer_lens import loading_from_pretrained
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
)

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.remote_code import TRUSTED, harmless_options, remote_code
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.models.offline import MINILM, model_folder
from sae_lens_c2r.models.text_source import OFFLINE_DATASET, TextSource
from sae_lens_c2r.releases.files import release_of
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.plan import make_plan, runner_config
from tests.command import run_command
from tests.forkserver import Completed
from tests.saes.forms import make_form

MODEL, DATASET, HOOK = "stranger/m", "stranger/d", "model.layers.0"
OPTION = "--trust-remote-code"
NUMBERS = range(1, 200), range(199)
WORDS = [*map("The {0}th sentence says that {0} comes after {1}.".format, *NUMBERS)]
# A name is enough for `transformers` to take code for the model's own.
MODEL_CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path({marker!r}).touch()
class EvilConfig(LlamaConfig):
    model_type = "evil"
class Evil(LlamaForCausalLM):
    config_class = EvilConfig
"""
DATASET_CODE = """
from pathlib import Path
import datasets
Path({marker!r}).touch()
class D(datasets.GeneratorBasedBuilder):
    def _info(self):
        text = {{"text": datasets.Value("string")}}
        return datasets.DatasetInfo(features=datasets.Features(text))
    def _split_generators(self, _):
        return [datasets.SplitGenerator("train")]
    def _generate_examples(self):
        words = map("The {{0}}th sentence says that {{0}} comes after {{1}}.".format, *{words})
        yield from enumerate([{{"text": " ".join(words)}}] * 9)
"""
Trust = Callable[[bool], object]
TRUSTING = {"trust_remote_code": True}
RUNNER = {"model_class_name": "AutoModelForCausalLM", "prepend_bos": False}
RUNNER |= {"model_from_pretrained_kwargs": TRUSTING, "dataset_trust_remote_code": True}
has_scripts = hasattr(datasets.load, "_load_importable_file")  # until version 4 of datasets


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is small, with a tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = AutoTokenizer.from_pretrained(model_folder(MINILM))
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=1, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def marker(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the code of a model and of a dataset, both in the current folder, leaves behind."""
    marker, model = tmp_path / "code-has-run", tmp_path / MODEL
    shutil.copytree(weights, model)
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "evil", "architectures": ["Evil"]}
    config["auto_map"] = {"AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.Evil"}
    (model / "config.json").write_text(json.dumps(config))
    (model / "evil.py").write_text(MODEL_CODE.format(marker=str(marker)))
    (tmp_path / DATASET).mkdir()
    code = DATASET_CODE.format(marker=str(marker), words=NUMBERS)
    (tmp_path / DATASET / "d.py").write_text(code)
    (tmp_path / "t.txt").write_text(" ".join(WORDS))
    Path(tmp_path / "rows").mkdir()
    rows = [json.dumps({"text": " ".join(WORDS)})] * 9
    (tmp_path / "rows" / "train.jsonl").write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path)
    return marker


@pytest.fixture
def trust() -> Iterator[Trust]:
    """What a command's option does, undone in the end."""
    yield TRUSTED.set
    TRUSTED.set(False)


def plant(folder: Path, model: str = MODEL, options: Any = TRUSTING, **about: Any) -> Path:
    """A stranger's SAE, which asks for trust."""
    said = {"model_name": model, "hook_name": HOOK, "model_class_name": "AutoModelForCausalLM"}
    said |= {"context_size": 16, "prepend_bos": False, "dataset_path": "rows", **about}
    metadata = SAEMetadata(**said, model_from_pretrained_kwargs=options)
    form: Any = make_form("jumprelu", d_in=8, d_sae=16, metadata=metadata)
    form.save_model(folder)
    return folder


def in_the_cache(folder: Path) -> Path:
    return folder / "models--org--sae" / "snapshots" / "c0ffee" / "a"


def with_record(folder: Path) -> Path:
    """As training records it: of a release, whoever has written it."""
    source = {"hub_id": MODEL, "dataset": "rows"}
    record = {"sae_id": "a", "settings": {"runner": RUNNER}, "source": source}
    folder.mkdir()
    (folder / "training.json").write_text(json.dumps(record))
    return folder


ORIGINS: dict[str, Callable[[Path], Path]] = {
    "a folder": lambda folder: folder,
    "the Hub's cache": in_the_cache,
    "with a record": with_record,
}
EVALUATE = ("evaluate", "--set", "sae_lens.n_eval_sparsity_variance_batches=1")
EVALUATE += ("--set", "sae_lens.n_eval_reconstruction_batches=1", "--device", "cpu")
EVALUATE += ("--set", "sae_lens.batch_size_prompts=2")
FINETUNE = ("finetune", "--tokens", "64", "--device", "cpu")
FINETUNE += ("--set", "runner.train_batch_size_tokens=32", "--set", "sae.k=2")
# As a name: the model lies here, and so is not taken for the Hub's.
FINETUNE += ("--set", f"language_model.hub_id={MODEL}", "--set", f"language_model.name={MODEL}")
INSPECT = ("inspect", "--tokens", "200", "--device", "cpu")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize(
    "command",
    [(*INSPECT, "--text", "t.txt"), (*EVALUATE, "--text", "t.txt"), FINETUNE],
    ids=lambda command: command[0],
)
def test_code_of_an_saes_model_runs_only_if_it_is_trusted(
    command: tuple[str, ...], origin: str, marker: Path, tmp_path: Path
) -> None:
    sae = plant(ORIGINS[origin](tmp_path / "sae"))
    ran = run_command(command[0], sae, *command[1:])
    assert ran.returncode in (1, 2)
    assert f"`{OPTION}`" in ran.stderr
    assert not marker.exists()
    trusted(command[0], sae, *command[1:], marker=marker)


def trusted(*command: object, marker: Path) -> Completed:
    """The same command with the option, which runs the code."""
    again = ("--overwrite",) if command[0] == "inspect" else ()
    ran = run_command(*command, OPTION, *again)
    assert ran.returncode == 0, ran.stderr
    assert marker.exists()
    return ran


def write_release(path: Path, model: str = MODEL, dataset: str = "rows", **init: Any) -> Path:
    """A stranger's release, which asks for trust."""
    reads = {"context_size": 16, "training_tokens": 64, "hook_name": HOOK}
    sizes = {"train_batch_size_tokens": 32, "store_batch_size_prompts": 2}
    runner = {**RUNNER, **sizes, "n_batches_in_buffer": 2}
    sae = {"architecture": "batchtopk", "d_in": 8, "d_sae": 16, "k": 2, **init}
    release = {
        **{"name": "strange", "description": "A stranger's.", "license": "mit"},
        **{"repo_id": "org/strange", "runner": runner, "sae": sae, "grids": [{"id": "a"}]},
        "language_model": {"hub_id": model, "dataset": dataset, **reads},
    }
    path.write_text(yaml.safe_dump(release))
    return path


@pytest.mark.parametrize("starts", [False, True])
def test_code_of_a_releases_model_runs_only_if_it_is_trusted(
    starts: bool, marker: Path, tmp_path: Path
) -> None:
    init = {"init": {"folder": str(plant(tmp_path / "sae"))}} if starts else {}
    command = ("train", write_release(tmp_path / "strange.yaml", **init), "--device", "cpu")
    for also in (("--dry-run",), ()):
        ran = run_command(*command, *also)
        assert f"`{OPTION}`" in ran.stderr
        assert not marker.exists()
    trusted(*command, marker=marker)


@pytest.mark.skipif(not has_scripts, reason="from version 4, datasets runs no code")
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("command", ["inspect", "evaluate", "finetune", "train"])
def test_code_of_a_dataset_runs_only_if_it_is_trusted(
    command: str, weights: Path, marker: Path, tmp_path: Path
) -> None:
    """Once it was trusted, a copy of it lies where `datasets` asks no more."""
    shutil.copytree(weights, tmp_path / "org" / "plain")
    sae = plant(tmp_path / "sae", "org/plain", {}, dataset_path=DATASET)
    release = write_release(tmp_path / "strange.yaml", "org/plain", DATASET)
    run = {
        "inspect": (INSPECT[0], sae, *INSPECT[1:], "--text", DATASET),
        "evaluate": (EVALUATE[0], sae, *EVALUATE[1:]),
        "finetune": (FINETUNE[0], sae, *FINETUNE[1:-4]),
        "train": ("train", release, "--device", "cpu"),
    }[command]
    for again in (False, True):
        overwrite = ("--overwrite",) if again and command == "inspect" else ()
        ran = run_command(*run, *overwrite)
        assert ran.returncode in (1, 2)
        assert f"`{OPTION}`" in ran.stderr
        assert not marker.exists()
        if not again:
            trusted(*run, marker=marker)
            marker.unlink()
            for name in [name for name in sys.modules if name.startswith("datasets_modules.")]:
                del sys.modules[name]
            for name in ("finetuned", "saes", "evaluation"):
                shutil.rmtree(tmp_path / name, ignore_errors=True)


def of_transformer_lens(model: str) -> None:
    """TransformerLens trusts some models by itself."""
    needing = loading_from_pretrained.NEED_REMOTE_CODE_MODELS
    loading_from_pretrained.NEED_REMOTE_CODE_MODELS = (model,)
    try:
        loading_from_pretrained.get_pretrained_model_config(model)
    except NotImplementedError:  # TransformerLens's word for an architecture that it lacks
        pass
    finally:
        loading_from_pretrained.NEED_REMOTE_CODE_MODELS = needing


def in_a_tokenizer(model: str) -> None:
    path = Path(model, "tokenizer_config.json")
    about = json.loads(path.read_text()) | {"tokenizer_class": "EvilTokenizer"}
    path.write_text(json.dumps({**about, "auto_map": {"AutoTokenizer": ["evil.T", None]}}))
    with Path(model, "evil.py").open("a") as code:
        code.write("\nfrom transformers import PreTrainedTokenizerFast\n")
        code.write("class T(PreTrainedTokenizerFast):\n    pass\n")
    AutoTokenizer.from_pretrained(model)


ASKING: dict[str, Callable[[str], Any]] = {
    "a config": AutoConfig.from_pretrained,
    "a model": AutoModelForCausalLM.from_pretrained,
    "a model that is trusted": lambda m: AutoModelForCausalLM.from_pretrained(m, **TRUSTING),
    "a tokenizer": in_a_tokenizer,
    "TransformerLens": of_transformer_lens,
}
SCRIPTS: dict[str, Callable[[str], Any]] = {
    "a dataset": lambda _: datasets.load_dataset(DATASET, streaming=True),
    "as SAEBench": lambda _: datasets.load_dataset(DATASET, streaming=True, **TRUSTING),
    "a file": lambda _: datasets.load_dataset(f"{DATASET}/d.py", streaming=True),
}


@pytest.mark.parametrize("way", [*ASKING, *(SCRIPTS if has_scripts else {})])
def test_no_library_runs_code_that_is_not_trusted(
    way: str, marker: Path, trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a library asks at a terminal, where somebody says yes, or trusts by itself."""
    monkeypatch.setattr("builtins.input", lambda _: "y")
    ask = {**ASKING, **SCRIPTS}[way]
    with pytest.raises(UserError, match="`--trust-remote-code` should"), remote_code():
        ask(MODEL)
    assert not marker.exists()
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked"))
    trust(True)
    with remote_code():
        ask(MODEL)
    assert marker.exists()


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"dtype": "bfloat16", "revision": "refs/pr/1"}, ["dtype", "revision"]),
        ({"attn_implementation": "sdpa", "n_ctx": 4}, ["attn_implementation", "n_ctx"]),
        ({"attn_implementation": "org/kernel"}, []),
        ({"quantization_config": {"load_in_4bit": True}}, ["quantization_config"]),
        ({"quantization_config": TRUSTING}, []),
        ({**TRUSTING, "weights_only": False, "cache_dir": "x", "code_revision": "x"}, []),
        ({"custom_generate": "x", "use_kernels": True, "allow_all_kernels": True}, []),
        *(([], []), ("trust_remote_code", []), (None, [])),
    ],
)
def test_what_may_run_code_is_left_out_and_told(
    said: Any, kept: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = plant(tmp_path / "sae", options=said)
    with caplog.at_level(logging.WARNING, "sae_lens_c2r"):
        found = SAERef(folder=folder).load("cpu").cfg.metadata.model_from_pretrained_kwargs
    assert list(found or {}) == kept
    left_out = [key for key in said if key not in kept] if isinstance(said, dict) else []
    assert len(caplog.messages) == bool(left_out)
    assert all(key in caplog.text for key in left_out)
    assert list(harmless_options(said, "again")) == kept


def test_an_sae_in_memory_is_not_trusted_either(marker: Path, tmp_path: Path) -> None:
    """Nor what it says of opening pickles."""
    weights = tmp_path / MODEL / "model.safetensors"
    weights.unlink()
    torch.save(_Evil(marker), weights.with_name("pytorch_model.bin"))
    config = json.loads(weights.with_name("config.json").read_text())
    config |= {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    del config["auto_map"]
    weights.with_name("config.json").write_text(json.dumps(config))
    sae = SAE.load_from_disk(plant(tmp_path / "sae", options={"weights_only": False}))
    reader = ActivationSource(TextSource(OFFLINE_DATASET), n_tokens=100, device="cpu")
    with pytest.raises(UnpicklingError):
        reader.activations(sae, "a")
    assert not marker.exists()


class _Evil:
    """A pickle that runs code where it is opened."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def test_weights_are_no_pickles(marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of SAELens's releases lie in files of torch's, which were pickles once."""
    torch.save(_Evil(marker), "ae.pt")
    config = {"architecture": "standard", "d_in": 8, "d_sae": 16}
    loader = "get_qwen_scope_config_from_hf"
    monkeypatch.setattr(pretrained_sae_loaders, loader, lambda *_, **__: config)
    monkeypatch.setattr(pretrained_sae_loaders, "hf_hub_download", lambda *_, **__: "ae.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        pretrained_sae_loaders.qwen_scope_sae_huggingface_loader("org/sae", "ae.pt")
    assert not marker.exists()


@pytest.mark.parametrize("trusted", [False, True])
def test_training_trusts_as_the_option_says(
    trusted: bool, trust: Trust, tmp_path: Path
) -> None:
    """Whatever SAELens and a release say."""
    document = yaml.safe_load(write_release(tmp_path / "strange.yaml").read_text())
    for says in (True, None):
        if says is None:
            del document["runner"]["dataset_trust_remote_code"]
            document["runner"]["model_from_pretrained_kwargs"] = {"dtype": "float32"}
        trust(trusted)
        plan = make_plan(release_of(document, overrides={}), device="cpu")
        config: Any = runner_config(plan, sae_ids=["a"])
        assert config.dataset_trust_remote_code is trusted
        assert config.model_from_pretrained_kwargs.get("trust_remote_code", False) is trusted
    assert config.model_from_pretrained_kwargs["dtype"] == "float32"
