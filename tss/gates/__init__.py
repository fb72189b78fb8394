"""Popup scores, the gates they open, importance, soft mask, packed bits."""
