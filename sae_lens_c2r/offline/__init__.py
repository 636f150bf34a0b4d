"""Two transformers and a text that need no network: MiniLM, SmolLM2, Python's documentation."""
