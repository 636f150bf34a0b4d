"""A repository's card: what may be said of its SAEs, and the files that say it."""
