"""What of a data set does not come back from a format, and where a chat template and a format part."""
