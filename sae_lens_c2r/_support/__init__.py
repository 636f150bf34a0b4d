"""What every part of the package may use, and what knows of none of them."""
