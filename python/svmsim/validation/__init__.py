"""Published measurements against the model: each one a scenario, a simulated figure, a verdict.

The figures stand in `published.toml` and nowhere else. Each has one function, which builds the
scenarios and takes the figure from their results; no scenario changes a cost, so that what is
judged is the profiles.
"""

from svmsim.validation.judge import Judgement
from svmsim.validation.outcome import Outcome, validate
from svmsim.validation.published import Item, published_items

__all__ = ["Item", "Judgement", "Outcome", "published_items", "validate"]
