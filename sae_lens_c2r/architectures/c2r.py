"""C2R for any SAELens training architecture: mixins for its config and for its SAE."""

from dataclasses import dataclass
from typing import Any

from sae_lens.registry import get_sae_class
from sae_lens.saes.sae import SAEConfig
from torch import Tensor

from sae_lens_c2r.architectures.penalized import (
    Decoder,
    Measured,
    PenalizedMixin,
    PenaltyConfigMixin,
    Scaling,
    check_penalty_options,
)
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.c2r import Gate, Pairs, evaluate


@dataclass(kw_only=True)
class C2RConfigMixin(PenaltyConfigMixin):
    """
    Configuration of the C2R penalty, a mixin to put before a training config.

    Args:
        c2r_coefficient (float): Strength of the penalty, lambda in the paper, whose choice is 5. With 0 the SAE trains as its backbone does, bit for bit.
        c2r_warm_up_steps (int): Training steps over which the coefficient grows linearly from 0, counted from the first.
        c2r_start_step (int): Training steps before the penalty is applied; it is only measured until then.
        c2r_interval (int): Apply the penalty at every c2r_interval-th step, multiplied by c2r_interval; T in the paper.
        c2r_chunk_size (int | None): Latents among which a nearest neighbour is searched, drawn anew at each penalty step; C in the paper. None, on the command line the flag alone, searches the whole dictionary.
        c2r_exponent (float): Exponent of the summed norms; 1 in the paper.
        c2r_pairs (str): 'nearest' penalizes each latent with its nearest neighbour; 'all' with every other latent of the chunk, the paper's ablation NoNNR.
        c2r_gate (str): 'relu' weights a pair by its squared rectified cosine, as the paper does; 'none' does not, the paper's ablation NoRCG.
        c2r_scaling (str): 'transfer' rescales the coefficient so that one value suits every batch size, width and scale of activations; 'none' takes it literally, for activations of unit norm.
        c2r_seed (int): Seed of the chunks; with the number of the step it determines them.
    """

    c2r_coefficient: float = 2.0
    c2r_warm_up_steps: int = 0
    c2r_start_step: int = 0
    c2r_interval: int = 5
    c2r_chunk_size: int | None = 8192
    c2r_exponent: float = 1.0
    c2r_pairs: Pairs = "nearest"
    c2r_gate: Gate = "relu"
    c2r_scaling: Scaling = "transfer"
    c2r_seed: int = 0

    def __post_init__(self, *init_vars: Any) -> None:
        """Check the options, then let the backbone check its own."""
        check_penalty_options(self, "c2r", C2RConfigMixin)
        super().__post_init__(*init_vars)  # type: ignore[misc]  # of the config this is mixed into

    @classmethod
    def architecture(cls) -> str:
        """The backbone's name and `_c2r`."""
        return f"{super().architecture()}_c2r"  # type: ignore[misc]

    def get_inference_config_class(self) -> type[SAEConfig]:
        """The backbone's inference form, which SAELens alone loads."""
        try:
            return super().get_inference_config_class()  # type: ignore[misc]
        except KeyError:  # SAELens's default is a form of the training architecture's name
            return get_sae_class(super().architecture())[1]  # type: ignore[misc]


class C2RMixin(PenalizedMixin):
    """The C2R penalty among the losses of a training SAE, a mixin to put before its class.

    Every T-th step adds `c2r_loss` = T * lambda_eff * `c2r_penalty`, Eq. (26) of the paper.
    Every step shows the last values of `c2r_penalty`, `c2r_effective_coefficient` (lambda_eff,
    without T) and, of nearest neighbours, `c2r_mean_max_cosine` (the mean cosine with them).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_penalty("c2r", self._measure_c2r)

    def _measure_c2r(self, feature_acts: Tensor, decoder: Decoder, step: int) -> Measured:
        cfg = self.cfg
        size, seed = cfg.c2r_chunk_size, cfg.c2r_seed
        return evaluate(
            feature_acts,
            self.W_dec,
            decoder.inverse,
            # SAELens has them in units of unit rows where it multiplies by decoder norms.
            None if getattr(cfg, "rescale_acts_by_decoder_norm", False) else decoder.lengths,
            exponent=cfg.c2r_exponent,
            pairs=cfg.c2r_pairs,
            gate=cfg.c2r_gate,
            neighbors=decoder.search(size, seed, step) if cfg.c2r_pairs == "nearest" else None,
            draw=(size, step_generator(seed, step), self.process_group),
        )
