"""SAELens training architectures with C2R; importing this package registers them."""

from sae_lens_c2r.architectures.backbones import *  # noqa: F403
from sae_lens_c2r.architectures.with_c2r import with_c2r as with_c2r
