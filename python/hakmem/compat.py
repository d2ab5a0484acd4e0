"""Functions that the tools use and Python 3.9 lacks."""

import sys

if sys.version_info >= (3, 10):
    def zip_strict(*sequences):
        """zip() of sequences of one length; ValueError where they differ."""
        return zip(*sequences, strict=True)  # novm

    bit_count = int.bit_count  # novm
else:
    def zip_strict(*sequences):
        """zip() of sequences of one length; ValueError where they differ."""
        sequences = [tuple(sequence) for sequence in sequences]
        if len({len(sequence) for sequence in sequences}) > 1:
            raise ValueError(f"sequences of {', '.join(str(len(sequence)) for sequence in sequences)} items")
        return zip(*sequences)

    def bit_count(number):
        """How many bits of a number are set."""
        return bin(number).count("1")


def read_toml(path):
    """Returns the content of a TOML file. Only checkouts have such files, and they require a newer Python."""
    try:
        import tomllib  # novm
    except ModuleNotFoundError:
        import click  # gdb's Python imports this file too, and has none

        raise click.ClickException(f"reading {path} takes Python 3.11 or newer") from None
    with open(path, "rb") as file:
        return tomllib.load(file)
