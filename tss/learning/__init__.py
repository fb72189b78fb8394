"""The one training loop, its schedule, resume, and the probes that prove nothing changed."""
