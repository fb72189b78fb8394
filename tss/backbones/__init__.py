"""Frozen Hugging Face models, their tokenizers, and the sites where adapters attach."""
