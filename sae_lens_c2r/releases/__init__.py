"""Releases: SAEs that one YAML file describes, and where these files lie."""
