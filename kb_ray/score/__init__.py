"""What verified attempts are worth: metrics over many episodes, their intervals, comparisons. Pure."""
