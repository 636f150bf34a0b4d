"""SAELens finds no architectures by entry points.

Proposal: on import, call every entry point of the group `sae_lens.plugins`, and warn of
one that fails, as TransformerLens does with `transformer_lens.architectures`.
"""

import sys
import tempfile
from importlib import import_module
from pathlib import Path

site = Path(tempfile.mkdtemp())
(site / "my_plugin.py").write_text("def register(): pass")
info = site / "my_plugin-1.0.dist-info"
info.mkdir()
(info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
(info / "entry_points.txt").write_text("[sae_lens.plugins]\nmine = my_plugin:register\n")
sys.path.insert(0, str(site))

import_module("sae_lens")

assert "my_plugin" not in sys.modules, "SAELens has mended this."
