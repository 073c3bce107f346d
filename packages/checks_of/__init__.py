"""The checks of each package, one file each. They must not know how a package is built."""
