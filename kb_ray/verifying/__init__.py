"""Whether a trace store is sound: rules for one episode, for all of them together, and for the files that hold them."""
