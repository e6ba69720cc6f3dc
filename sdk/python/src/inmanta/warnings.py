"""The warnings of the language."""


class InmantaWarning(Warning):
    """The base of all warnings about models and modules."""
