"""How far one driver reaches: whole runs whose model and bench only wait, over the real HTTP, Ray and store paths."""
