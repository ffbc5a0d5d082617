"""From formulas with variables to formulas without: the propositional view."""
