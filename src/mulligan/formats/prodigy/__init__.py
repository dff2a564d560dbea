"""Prodigy's files: regular workflows in all their forms, and MapReduce; `workflow` puts the translated file together.

What their steps run is in `runtime`. Nothing is imported here: a worker that runs a step does not load the reader.
"""
