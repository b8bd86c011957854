"""Reports: what a compilation did, as one HTML file that needs no network.

    Compilation -> collect -> Report (values) -> render -> HTML

Sections are values of their own, each with a template of its name: to add one is to add both.
"""
