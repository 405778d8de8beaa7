"""The command `qtide`, also as `python -m qtide`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while its modules are loaded ends it without a traceback."""
    try:
        from qtide.core.files import keep_bytecode

        keep_bytecode()
        from qtide.interfaces.cli import main as command_line
    except KeyboardInterrupt:
        sys.exit(130)
    command_line.main()


if __name__ == "__main__":
    main()
