"""Read what attempts wrote: by position, by line, while it is written."""
