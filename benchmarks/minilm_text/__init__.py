"""C2R on a real model's activations alone, and each half of its gradient.

Nothing is known of these activations' features: what is measured is what anybody can measure on
an SAE, explained variance, composition, co-firing and dead latents.
"""
