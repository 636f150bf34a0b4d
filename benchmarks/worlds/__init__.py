"""What SAEs are trained on and measured by: a file for each kind of world."""
