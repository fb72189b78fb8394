"""A store answering over HTTP: many tasks in one batch, a page to look at."""
