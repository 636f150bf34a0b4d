"""The endings of files by which a text is read."""

from typing import Any

COMPRESSED = {".gz", ".gzip", ".bz2", ".xz", ".zst", ".zip"}
LOADERS: dict[str, tuple[str, dict[str, Any]]] = {  # of `datasets`, with their options
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), ("json", {})),
    **{".csv": ("csv", {}), ".tsv": ("csv", {"sep": "\t"})},
    **{".parquet": ("parquet", {}), ".arrow": ("arrow", {})},
}  # any other ending is one of plain text
