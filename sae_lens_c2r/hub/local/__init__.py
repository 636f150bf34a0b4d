"""SAEs on this machine: found, checked, redacted, and what is known of them."""
