"""`python -m svmsim` is `svmsim`."""

from svmsim.cli import main

if __name__ == "__main__":
    main()
