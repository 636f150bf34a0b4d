"""`sae-lens-c2r repair`: an SAE that exists, trained on with C2R, and what that changed."""
