"""Programs of other projects as clients of the virtual host; README.md has the list."""
