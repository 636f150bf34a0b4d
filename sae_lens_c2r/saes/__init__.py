"""SAEs that exist: where they come from, and what plain SAELens makes of them."""
