"""Helpers that every part of the package may use, and that know of none of them."""
