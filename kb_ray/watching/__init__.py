"""How a run is seen from outside while it goes: what is measured and exported, and what its store tells."""
