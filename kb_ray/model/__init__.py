"""Sources of completions: the protocol they share, an OpenAI-compatible server, and a script of answers."""
