"""What the process of one evaluation is told."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

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
        path.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Request":
        """Read what another process wrote.

        Args:
            path: The file.

        Returns:
            The request.
        """
        content = json.loads(path.read_text(encoding="utf-8"))
        source = Source(**content["source"])
        if source.folder is not None:
            source = Source(source.name, Path(source.folder))
        asked = Asked(**content["asked"])
        return cls(asked, source, content["device"], Path(content["result"]))
