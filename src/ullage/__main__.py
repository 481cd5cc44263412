"""`python -m ullage`: the command line, where the command itself is not on the path."""

from ullage.cli.start import run

if __name__ == "__main__":
    run()
