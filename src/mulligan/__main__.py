"""`python -m mulligan`: the command line."""

from mulligan.cli.main import main

main()
