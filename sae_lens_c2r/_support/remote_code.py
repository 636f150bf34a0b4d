"""Code that comes with a model or a dataset: none runs unless `--trust-remote-code` says so."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any
from unittest.mock import Mock, patch

from sae_lens_c2r._support.errors import UserError, first_sentence, tell_once

TRUST, _OPTIONS = "trust_remote_code", "model_from_pretrained_kwargs"
TRUSTED: ContextVar[bool] = ContextVar(TRUST, default=False)  # set while a command runs
HARMLESS = {  # options of a model that bring no code and open no pickle
    *("dtype", "torch_dtype", "device_map", "n_devices", "max_memory", "low_cpu_mem_usage"),
    *("revision", "variant", "subfolder", "gguf_file", "use_safetensors", "n_ctx", "fold_ln"),
    *("attn_implementation", "quantization_config", "load_in_4bit", "load_in_8bit"),
    *("center_writing_weights", "center_unembed", "fold_value_biases", "checkpoint_index"),
    *("checkpoint_value", "first_n_layers", "default_prepend_bos", "default_padding_side"),
    *("local_files_only", "rope_scaling", "tp_plan"),
}
_IGNORED = "ignored, since it may run code or is not known"
_CODE = re.compile(rf"{TRUST}|^attn_implementation .*/")  # a slash is of a kernel on the Hub


def harmless_options(said: Any, whose: str) -> dict[str, Any]:
    """Leave out what may run code of what an SAE or a release says of loading its model."""
    options = said if isinstance(said, dict) else {}
    kept = {k: v for k, v in options.items() if k in HARMLESS and not _CODE.search(f"{k} {v}")}
    done = {TRUST} if TRUSTED.get() else set()  # all the same
    if ignored := ", ".join(key for key in options if key not in {*kept, *done}):
        tell_once(f"{whose}: {_IGNORED}: {ignored}.")
    return kept


def harmless_runner(fields: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Leave it out of fields of SAELens's runner."""
    kept = {key: value for key, value in fields.items() if not (value and key.endswith(TRUST))}
    if kept != fields:
        tell_once(f"{whose}: {_IGNORED}: dataset_{TRUST}.")
    options = kept.get(_OPTIONS)
    return {**kept, _OPTIONS: harmless_options(options, whose)} if options else kept


@contextmanager
def remote_code() -> Iterator[None]:
    """Have such code run if it is trusted, and a UserError in its place if it is not."""
    # SAELens, TransformerLens and SAEBench trust some by themselves, and these two ask at a
    # terminal. Some versions lack some of the names.
    from datasets import load as datasets
    from transformers import dynamic_module_utils as models

    trusted, refuse = TRUSTED.get(), Mock(side_effect=ValueError(f"Code needs `{TRUST}`."))
    changes: list[tuple[Any, str, Any]] = [(datasets, f"resolve_{TRUST}", lambda *_: trusted)]
    if trusted:
        changes += [(models, "input", lambda _: "y")]
    else:
        changes += [
            (models, "TIME_OUT_REMOTE_CODE", 0),
            (models, "get_class_in_module", refuse),
        ]
        changes += [(datasets, "_load_importable_file", refuse)]
        if lens := sys.modules.get("transformer_lens.loading_from_pretrained"):
            changes += [(lens, "NEED_REMOTE_CODE_MODELS", ())]
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(patch.object(*change, create=True))
        try:
            yield
        except ValueError as error:
            if trusted or isinstance(error, UserError) or TRUST not in str(error):
                raise
            advice = first_sentence(error)
            raise UserError("--trust-remote-code", "be given", more=advice) from error
