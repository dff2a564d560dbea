"""What commands print: tables, errors, pictures that fill the terminal; and how Ctrl-C ends them."""
