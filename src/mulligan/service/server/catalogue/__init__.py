"""The catalogue of a store: published workflows, their versions, and drafts."""
