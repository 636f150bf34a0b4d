"""What the process of one evaluation is told."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from sae_lens_c2r.evaluation.about import Asked
from sae_lens_c2r.saes.sources import Source


@dataclass(frozen=True)
class Request:
    """One evaluation of one SAE.

    Args:
        asked: What is asked.
        source: Where the SAE comes from.
        device: Torch device.
        result: The file to write.
    """

    asked: Asked
    source: Source
    device: str
    result: Path

    @property
    def model(self) -> str:
        """The language model."""
        return self.asked.model or ""

    def write(self, path: Path) -> None:
        """Write it for another process.

        Args:
            path: The file.
        """
        path.write_bytes(TypeAdapter(Request).dump_json(self))

    @classmethod
    def read(cls, path: Path) -> "Request":
        """Read what another process wrote.

        Args:
            path: The file.

        Returns:
            The request.
        """
        return TypeAdapter(Request).validate_json(path.read_bytes())
