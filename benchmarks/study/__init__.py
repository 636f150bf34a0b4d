"""Does C2R do what its paper says? Its comparisons, where the truth is known.

`python -m benchmarks.study` trains the paper's methods, ablations and backbones on hierarchies
of known features, several seeds each, and puts what they come to beside the paper's claims.
"""
