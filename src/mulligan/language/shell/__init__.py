"""Shell text: values become environment variables, and never a part of the script."""
