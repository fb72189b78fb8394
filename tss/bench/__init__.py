"""Sequences of tasks, learnt by several methods, measured alike."""
