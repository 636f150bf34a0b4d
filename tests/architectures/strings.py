"""Somebody's configs whose annotations are strings, in a module of their own."""

from __future__ import annotations

from dataclasses import dataclass

from sae_lens_c2r import BatchTopKC2RTrainingSAEConfig, OrtTrainingSAEConfig, with_c2r
from tests.architectures.test_with_c2r import MineTrainingSAE, MineTrainingSAEConfig


@dataclass
class Inherited(BatchTopKC2RTrainingSAEConfig):
    c2r_coefficient: float = 2.0
    c2r_chunk_size: int | None = None
    c2r_note: str = "mine"


@dataclass
class InheritedOrt(OrtTrainingSAEConfig):
    ort_coefficient: float = 0.5


MadeSAE, MadeConfig = with_c2r((MineTrainingSAE, MineTrainingSAEConfig))


@dataclass
class OfMade(MadeConfig):
    c2r_coefficient: float = 3.0
