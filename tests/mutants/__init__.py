"""Mutants: small edits of the passes' own source, to see which checks notice.

python -m tests.mutants [--only PASS] [--limit N] [--seed S] [--jobs N] [--quick]

edits     every mechanical edit of a source file
battery   programs and steps on which a pass acts, with what each should give
judge     one mutant in a process of its own: which check catches it
report    counts, and the survivors against survivors.md
"""
