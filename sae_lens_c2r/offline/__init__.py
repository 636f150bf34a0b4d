"""Two models and two texts that need no network."""
