"""The tools of a playbook, and how several are called one after the other."""
