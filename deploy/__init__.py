"""What an administrator applies, and the checks that it is what the programs expect."""
