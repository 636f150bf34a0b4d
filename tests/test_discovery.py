"""SAELens finds our architectures by itself, and nothing we do can break an import.

Every test runs processes that have not imported SAELens, nor us: what matters is the order of
imports. The libraries that SAELens imports are there, and PyTorch does at its first import what
it does when it is loaded; a few processes have imported nothing at all.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forkserver
from tests.forkserver import FRESH, LIBRARIES, Completed

REGISTERED = "assert 'batchtopk_c2r' in sae_lens.registry.SAE_TRAINING_CLASS_REGISTRY"
NOT_REGISTERED = REGISTERED.replace(" in ", " not in ")
AUTOLOAD_OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def run_python(*arguments: str, fresh: bool = False, **environment: str) -> Completed:
    """A process; the caller's own environment and `environment`."""
    env = {**os.environ, **environment}
    if fresh:
        return subprocess.run([FRESH, *arguments], env=env, capture_output=True, text=True)
    return forkserver.run(*arguments, env=env, level=LIBRARIES)


def succeeds(code: str, *, fresh: bool = False, **environment: str) -> Completed:
    """Run `code`, which must succeed without a warning from us."""
    process = run_python("-c", code, fresh=fresh, **environment)
    assert process.returncode == 0, process.stderr
    assert "sae_lens_c2r" not in process.stderr
    assert "plugin" not in process.stderr
    return process


def warned_once(process: Completed) -> str:
    """The one warning of a process that has succeeded."""
    assert process.returncode == 0, process.stderr
    [warned] = [line for line in process.stderr.splitlines() if "UserWarning: The SAE" in line]
    return warned


SAE = "{'architecture': 'batchtopk_c2r', 'd_in': 8, 'd_sae': 16, 'k': 2, 'c2r_interval': 3}"


WAYS_IN = {
    "LanguageModelSAERunnerConfig": "from sae_lens import LanguageModelSAERunnerConfig as C; "
    f"cfg = C.from_dict({{'sae': {SAE}, 'logger': {{}}}}); "
    "assert cfg.sae.architecture() == 'batchtopk_c2r' and cfg.sae.c2r_interval == 3",
    "SyntheticSAERunnerConfig": "from sae_lens.synthetic import SyntheticModelConfig as Model; "
    "from sae_lens.synthetic import SyntheticSAERunnerConfig as C; "
    "model = Model(num_features=8, hidden_dim=8).to_dict(); "
    f"cfg = C.from_dict({{'synthetic_model': model, 'sae': {SAE}}}); "
    "assert cfg.sae.architecture() == 'batchtopk_c2r'",
    "MultiSAETrainingRunnerConfig": "from sae_lens import TrainingSAEConfig; "
    "from sae_lens import MultiSAETrainingRunnerConfig as C; "
    f"cfg = C(saes={{'a': TrainingSAEConfig.from_dict({SAE})}}, hook_names='hook'); "
    "from sae_lens.registry import get_sae_training_class; "
    "sae_class, _ = get_sae_training_class(cfg.saes['a'].architecture()); "
    "assert sae_class(cfg.saes['a']).cfg.c2r_interval == 3",
    "command line": "from sae_lens.llm_sae_training_runner import _parse_cfg_args as parse; "
    "flags = '--architecture batchtopk_c2r --c2r_chunk_size --c2r_scaling none'; "
    "cfg = parse(flags.split()).sae; "
    "assert (cfg.c2r_chunk_size, cfg.c2r_scaling) == (None, 'none')",
}


@pytest.mark.parametrize("code", WAYS_IN.values(), ids=WAYS_IN)
def test_ways_in_without_an_import_of_ours(code: str) -> None:
    succeeds(code)


FIRST, LAST = "import sae_lens_c2r, sae_lens", "import sae_lens, sae_lens_c2r"
BACKBONES = "sae_lens_c2r.architectures.backbones"


@pytest.mark.parametrize(
    ("imports", "options"),
    [
        ("import sae_lens", {"fresh": True}),  # nothing before
        *((FIRST, AUTOLOAD_OFF), (LAST, AUTOLOAD_OFF)),  # an import of ours does it
        *((FIRST, {}), (LAST, {})),
        ("import torch, sae_lens", {}),
        *((f"import sae_lens.{name}", {}) for name in ("registry", "saes.batchtopk_sae")),
        ("import sae_lens_c2r.architectures.with_c2r, sae_lens", {}),
        ("import sae_lens_c2r.penalties, sae_lens_c2r.analysis, sae_lens", {}),
        (f"import importlib, {BACKBONES} as ours, sae_lens; importlib.reload(ours)", {}),
        ("from sae_lens_c2r import BatchTopKC2RTrainingSAE; import sae_lens", {}),
        ("import sae_lens_c2r as c2r; c2r.register(); c2r.register(); import sae_lens", {}),
    ],
)
def test_any_order_of_imports(imports: str, options: dict[str, Any]) -> None:
    succeeds(f"{imports}; {REGISTERED}", **options)


def test_autoload_off_turns_it_off() -> None:
    succeeds(f"import sae_lens; {NOT_REGISTERED}", **AUTOLOAD_OFF)


def test_import_torch_brings_nothing_heavy() -> None:
    code = "import torch, sys, json; print(json.dumps(sorted(sys.modules)))"
    with_us, without_us = (
        set(json.loads(succeeds(code, fresh=True, **environment).stdout))
        for environment in ({}, AUTOLOAD_OFF)
    )
    brought = {name.split(".")[0] for name in with_us - without_us}
    assert brought - sys.stdlib_module_names == {
        *("sae_lens_c2r", "sae_lens_c2r_autoload", "wrapt")
    }


def plugin(folder: Path, name: str, module: str, entry_point: str) -> dict[str, str]:
    """Install a plugin for SAELens in `folder`; returns the environment that finds it first."""
    (folder / f"{name}.py").write_text(module)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sae_lens.plugins]\n{name} = {entry_point}\n")
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("module", "cause"),
    [
        ("raise RuntimeError('out of order')", "RuntimeError: out of order"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("register = None", "TypeError: 'NoneType' object is not callable"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_broken_plugin_beside_ours_is_one_warning(
    module: str, cause: str, tmp_path: Path
) -> None:
    environment = plugin(tmp_path, "broken", module, "broken:register")
    process = run_python("-c", f"import sae_lens; {REGISTERED}", **environment)
    assert f"`broken = broken:register` was not loaded: {cause}" in warned_once(process)


THIEF = """
def register():
    from sae_lens.registry import register_sae_training_class
    from sae_lens.saes.topk_sae import TopKTrainingSAE, TopKTrainingSAEConfig
    register_sae_training_class("batchtopk_c2r", TopKTrainingSAE, TopKTrainingSAEConfig)
"""


def test_a_taken_name_is_left_alone_and_both_classes_are_named(tmp_path: Path) -> None:
    environment = plugin(tmp_path, "thief", THIEF, "thief:register")
    owner = "sae_lens.registry.SAE_TRAINING_CLASS_REGISTRY['batchtopk_c2r'][0].__name__"
    code = f"import sae_lens; assert {owner} == 'TopKTrainingSAE'"
    warned = warned_once(run_python("-c", code, **environment))
    assert "sae_lens.saes.topk_sae.TopKTrainingSAE" in warned
    assert "sae_lens_c2r.architectures.backbones.BatchTopKC2RTrainingSAE" in warned

    process = run_python("-c", "import sae_lens_c2r; sae_lens_c2r.register()", **environment)
    assert process.returncode != 0
    assert "ValueError: The architecture 'batchtopk_c2r'" in process.stderr


@pytest.mark.parametrize("errors", [False, True])
def test_without_wrapt_torch_and_sae_lens_import_with_one_warning(
    errors: bool, tmp_path: Path
) -> None:
    """Where warnings are errors, it is printed instead."""
    environment = plugin(tmp_path, "broken", "raise SystemExit(3)", "broken:register")
    (tmp_path / "wrapt.py").write_text("raise ImportError('wrapt is broken')")
    code = f"import torch, sae_lens; {NOT_REGISTERED}"
    if errors:
        code = "import warnings; warnings.simplefilter('error', UserWarning); import torch"
    process = run_python("-c", code, fresh=True, **environment)
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("ImportError: wrapt is broken") == 1
