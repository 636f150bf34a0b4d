"""The Hub: what it has, and how files get there in one commit."""
