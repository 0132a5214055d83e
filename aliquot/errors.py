"""The errors that end a command, each with a text its user can act on."""


class UserError(Exception):
    """What was asked cannot be done as asked; the text says how to ask right (exit code 2)."""


class OperationError(Exception):
    """What was asked was right and failed all the same; the text says what to look at (exit 1)."""
