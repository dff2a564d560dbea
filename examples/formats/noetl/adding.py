result = a + b
