"""What the process of one evaluation is told."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sae_lens_c2r.sources import Source


@dataclass(frozen=True)
class Request:
    """One evaluation of one SAE.

    Args:
        evaluation: Which evaluation.
        source: Where the SAE comes from.
        model: The language model.
        text: What SAELens's own evaluation reads; `None` for what the SAE was trained on.
        settings: The evaluation's, all of them.
        device: Torch device.
        result: The file to write.
    """

    evaluation: str
    source: Source
    model: str
    text: str | None
    settings: dict[str, Any]
    device: str
    result: Path

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
        source = Source(**content.pop("source"))
        if source.folder is not None:
            source = Source(source.name, Path(source.folder))
        content["result"] = Path(content["result"])
        return cls(source=source, **content)
