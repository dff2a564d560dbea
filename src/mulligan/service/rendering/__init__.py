"""Data as text, JSON, HTML and SVG."""
