"""What the scripts of the clients share: checks, the mounted host, and the programs that they install."""
