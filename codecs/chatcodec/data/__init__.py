"""Data sets: files as streams of rows, and conversions of whole files by many processes that can be resumed."""
