"""Training: returns, advantages, losses and samples as pure functions, and a learner that applies them."""
