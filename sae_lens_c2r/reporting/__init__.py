"""Pictures, tables and the words in them, which reports and cards share."""
