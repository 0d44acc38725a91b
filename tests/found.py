"""Findings by their class, for tests of facts instead of words."""

from dissensus.exceptions import DissensusError


def find(kind, messages):
    """The one message of a class."""
    (one,) = [message for message in messages if type(message) is kind]
    return one


def kinds(messages):
    """The classes of messages, in their order."""
    return [type(message) for message in messages]


def shown(message):
    """A message as the command line words it."""
    from dissensus.cli.face import COMMAND_LINE

    return message.render(COMMAND_LINE)


def error_of(result):
    """The error behind the exit status of a command."""
    found = result.exception
    while found is not None and not isinstance(found, DissensusError):
        found = found.__cause__ or found.__context__
    return found
