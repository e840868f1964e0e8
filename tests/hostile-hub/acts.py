"""The list of acts, in the order in which they are played."""

from typing import Callable, NamedTuple


class Act(NamedTuple):
    """A case of docs/security-cases.md, what the thief does, and the function that does it."""

    case: str
    words: str
    function: Callable
    long: bool


ACTS = []


def act(case, words, long=False):
    """Adds a function to the list. It is given the stage, and raises `Failed` if the thief got something."""

    def added(function):
        ACTS.append(Act(case, words, function, long))
        return function

    return added
