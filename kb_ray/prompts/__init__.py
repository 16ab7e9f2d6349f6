"""What is said to a model: the opening of an episode, and feedback on a verdict. Wording is in data files."""
