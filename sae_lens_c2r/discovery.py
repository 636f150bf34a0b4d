"""How SAELens finds our architectures without an import of this package.

SAELens reads no entry points, so we read them for SAELens:

1. `import torch` calls `sae_lens_c2r_autoload`, as which `_autoload.py` is installed, and
   which pyproject.toml names in PyTorch's own group of auto-loaded entry points,
   ``torch.backends``; and that calls `install`. It costs a few milliseconds and only leaves a
   note for later: a hook on the import of ``sae_lens.config``.
2. `import sae_lens` triggers the hook, which loads the group ``sae_lens.plugins``, ours and
   anybody else's. Should SAELens scan that group itself one day, step 1 can go. SAELens's
   classes and registry are complete by then, while the package `sae_lens` itself is not: a
   plugin imports from its modules, ``from sae_lens.registry import ...``.

With ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` step 1 does not happen; then `import sae_lens_c2r`,
before or after `import sae_lens`, takes its place.
"""

import functools
import importlib
from importlib.metadata import entry_points

from sae_lens_c2r_autoload import warn

PLUGIN_GROUP = "sae_lens.plugins"

# The base classes and the registry are complete when this module has been imported. It must
# not be `sae_lens` itself: that is being imported already when it imports torch.
_SAE_LENS_IS_READY = "sae_lens.config"


@functools.cache
def install() -> None:
    """Have the import of SAELens load its plugins once; at once if SAELens is imported."""
    from wrapt import register_post_import_hook

    register_post_import_hook(lambda _: _load_plugins(), _SAE_LENS_IS_READY)


def register() -> None:
    """Add our architectures to SAELens's registry. Calling it again changes nothing.

    The entry point of this package in the group ``sae_lens.plugins``. It only imports: the
    architectures register themselves as they finish importing, so that it does not matter
    which of SAELens and our modules is imported first.

    Raises:
        ValueError: If another package has registered an architecture under one of our names.
    """
    importlib.import_module("sae_lens_c2r.architectures")


def _load_plugins() -> None:
    for plugin in entry_points(group=PLUGIN_GROUP):
        try:
            plugin.load()()
        except (Exception, SystemExit) as error:
            warn(f"The SAELens plugin `{plugin.name} = {plugin.value}` was not loaded", error)
