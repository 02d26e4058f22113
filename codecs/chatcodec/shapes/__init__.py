"""The shapes of conversations in rows of data sets, and what is put right in them.  `chatcodec.convert` goes from one to another."""
