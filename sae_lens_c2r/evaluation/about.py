"""What is said of an evaluation beside its numbers: what was asked, and how it was answered."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True)


class Asked(_Said):
    """What an evaluation is of. One that is asked the same is not run again.

    Args:
        weights_sha256: Which weights, see `sae_lens_c2r.evaluation.hashing`.
        config_sha256: With which config.
        evaluation: Which evaluation.
        model: The language model; `None` for an evaluation of the weights alone.
        text: What SAELens's own evaluation reads; `None` for what the SAE was trained on.
        settings: The evaluation's settings, all of them.
        inputs: Files and folders that it reads, by what names them, each with a fingerprint.
    """

    weights_sha256: str
    config_sha256: str
    evaluation: str
    model: str | None
    text: str | None
    settings: dict[str, Any]
    inputs: dict[str, str]


class About(_Said):
    """What was asked, of which SAE, and what answered.

    Args:
        asked: What was asked.
        name: What the SAE is called where it is shown.
        architecture: SAELens's name of the SAE's form.
        trained_as: SAELens's name of what it was trained as, where that is known.
        d_in: Dimension of its inputs.
        d_sae: Its latents.
        device: Where it ran.
        versions: Versions of the packages that computed it.
        seconds: How long it took.
    """

    asked: Asked
    name: str
    architecture: str
    trained_as: str | None
    d_in: int
    d_sae: int
    device: str
    versions: dict[str, str]
    seconds: float
