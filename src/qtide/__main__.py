"""`python -m qtide`: the command line."""

from qtide.interfaces.cli.main import main

if __name__ == "__main__":
    main()
