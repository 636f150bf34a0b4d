"""Fine-tuning of SAEs that exist, against the same steps without C2R and from scratch.

Measured twice: on hierarchies of known features, over seeds, and on the demo's SAE of MiniLM.
"""
