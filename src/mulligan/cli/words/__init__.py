"""From the words of a command line to the call of a command: its parameters, its help, completion."""
