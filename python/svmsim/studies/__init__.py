"""Published experiments, repeated: what was published, what the simulator says, and a verdict."""
