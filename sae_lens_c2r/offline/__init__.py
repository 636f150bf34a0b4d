"""A transformer and a text that need no network: MiniLM, and Python's documentation."""
