"""The adversarial suite and the honest suite: cases that must be refused, and look-alikes that must be accepted."""
