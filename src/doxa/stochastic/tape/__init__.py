"""The tape of what was sampled and what it cost, and the surrogate loss of both."""
