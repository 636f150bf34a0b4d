"""What an SAE of each method, strength and seed comes to in worlds, and what penalties cost."""
