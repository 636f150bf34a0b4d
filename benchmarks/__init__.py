"""What every timing and memory figure in the README was measured with."""
