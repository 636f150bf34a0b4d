"""The Hub: what it has, how files get there in one commit, and an SAE back from it."""
