"""SAEs on the Hugging Face Hub: loading one, and publishing some with a measured card."""

from sae_lens_c2r.hub.card import write_card
from sae_lens_c2r.hub.repository import load
from sae_lens_c2r.hub.rules import Target
from sae_lens_c2r.hub.submission import Submission
from sae_lens_c2r.hub.uploading import show_proposal, upload

__all__ = ["Submission", "Target", "load", "show_proposal", "upload", "write_card"]
