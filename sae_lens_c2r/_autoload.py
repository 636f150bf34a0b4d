"""The part that PyTorch loads: a file that `site-packages` has wherever the checkout is."""

import sys
import warnings


def install() -> None:
    """Have SAELens find our architectures; if that fails, warn, and let torch go on."""
    try:
        from sae_lens_c2r import discovery

        discovery.install()
    except (Exception, SystemExit) as error:
        warn("sae_lens_c2r should be installed again, or uninstalled. It was not loaded", error)


def warn(what_failed: str, error: BaseException) -> None:
    """Warn of an error that keeps nothing else from being imported."""
    text = f"{what_failed}: {type(error).__name__}: {error}"
    try:
        warnings.warn(text, stacklevel=2)
    except Warning:  # where warnings are errors, an import would fail after all
        print(text, file=sys.stderr)
