"""Serve applications and the YAML files that configure them."""
