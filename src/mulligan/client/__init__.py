"""The Python face: `mulligan.load`, `mulligan.run`, `mulligan.open`, and the runs that they give.

A face like the command line: it calls `Service` and gives its answers as objects. Import its names from `mulligan`.
"""
