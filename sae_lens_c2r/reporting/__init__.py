"""What reports share: pictures, tables, a look."""
