"""How cost grows: what `bench/growth.py` measures, one module for each thing that grows, and how it is drawn."""
