"""`sae-lens-c2r demo`: BatchTopK with and without C2R, on a language model, offline."""
