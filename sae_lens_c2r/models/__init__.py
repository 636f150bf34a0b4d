"""Language models and texts, before there is an SAE."""
