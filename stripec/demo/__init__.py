"""`stripec demo`: two real programs, compared with SciPy and scikit-learn."""
