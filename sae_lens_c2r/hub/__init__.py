"""Publishing SAEs on the Hugging Face Hub: what is collected, checked and redacted for it."""
