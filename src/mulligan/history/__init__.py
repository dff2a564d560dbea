"""Explains what runs did: the story, the views behind `--json`, the reasons. Pure, and never needed to take a turn."""
