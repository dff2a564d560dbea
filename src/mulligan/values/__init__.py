"""Values of Python steps: what they return as JSON and files, and back as what a parameter's annotation says.

Runs in the process of a step, which may be another interpreter: only the standard library, and the libraries of the
user where a value is theirs.
"""
