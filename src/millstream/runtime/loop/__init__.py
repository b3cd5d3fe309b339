"""The stream thread: polls, lets work be done, commits, follows the group."""
