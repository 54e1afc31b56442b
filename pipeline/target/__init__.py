"""The demo target: a real, small, openly licensed model that comes with a package."""
