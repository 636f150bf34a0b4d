"""`sae-lens-c2r finetune`: an SAE that exists, trained on with C2R, before and after."""
