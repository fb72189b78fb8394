"""Where tasks come from: folders, the Hugging Face hub, the demo's generator and the benchmark's data sets."""
