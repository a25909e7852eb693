"""What a user meets: command-line flags and the checks on each request."""
