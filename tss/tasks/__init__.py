"""What is to be learnt: `Task`, its examples and metrics, and how each kind is encoded, read out and scored."""
