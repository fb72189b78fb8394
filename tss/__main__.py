"""`python -m tss` is `tss`."""

from tss.cli import main

if __name__ == "__main__":
    main()
