"""Looking into a safetensors file piece by piece: it may be larger than the memory."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sae_lens_c2r._support.errors import UserError

_PIECE = 1 << 24
_HEADER_LENGTH = 8
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True)
class TensorInFile:
    """A tensor of a safetensors file.

    Args:
        name: Its name.
        dtype: Its type.
        shape: Its shape.
        start: Where its bytes begin.
        stop: Where they end.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class WeightsFile:
    """A safetensors file whose header is true.

    Args:
        path: Where it lies.
        tensors: Its tensors by name.
        metadata: What its header says beside them.
    """

    path: Path
    tensors: dict[str, TensorInFile]
    metadata: dict[str, str]

    @classmethod
    def open(cls, path: Path) -> "WeightsFile":
        """Read and check a header.

        Args:
            path: The file.

        Returns:
            The file.

        Raises:
            UserError: If it is no safetensors file, or of types that are no weights'.
        """
        try:
            with safe_open(path, framework="pt") as checked:  # lengths, offsets, overlaps
                metadata = dict(checked.metadata() or {})
            with path.open("rb") as file:
                length = int.from_bytes(file.read(_HEADER_LENGTH), "little")
                header = json.loads(file.read(length))
        except (OSError, SafetensorError, ValueError) as error:
            raise UserError(f"{path} should be a safetensors file. {error}") from None
        tensors = {}
        for name, said in header.items():
            if name == "__metadata__":
                continue
            dtype = _DTYPES.get(said["dtype"])
            if dtype is None:
                raise UserError(
                    f"{path}: `{name}` should be of one of {', '.join(_DTYPES)}. "
                    f"Found {said['dtype']}."
                )
            start, stop = (_HEADER_LENGTH + length + offset for offset in said["data_offsets"])
            tensors[name] = TensorInFile(name, dtype, tuple(said["shape"]), start, stop)
        return cls(path, tensors, metadata)

    def pieces(self, tensor: TensorInFile) -> Iterator[Tensor]:
        """A tensor's numbers.

        Args:
            tensor: Which.

        Yields:
            Some of them at a time.
        """
        with self.path.open("rb") as file:
            file.seek(tensor.start)
            left = math.prod(tensor.shape) * tensor.dtype.itemsize
            while left:
                piece = bytearray(file.read(min(left, _PIECE)))
                left -= len(piece)
                yield torch.frombuffer(piece, dtype=tensor.dtype)
