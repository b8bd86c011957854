"""`stripec demo`: two real programs from Tile text to machine code, checked against SciPy and scikit-learn."""
