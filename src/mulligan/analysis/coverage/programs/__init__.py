"""Coverage of programs: the rehearsed path of one is played with each of its calls failing in each way."""
