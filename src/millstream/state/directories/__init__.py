"""The state directory on the disk of a host, and its locks.

`state_directory` manages the directory of an application, `client_folder` assigns folders in it to
the drivers whose threads run on the host, and `locked_directory` manages the directory of a task.
`file_lock` implements their locks, `checkpoint` reads and writes the file with offsets, and `disk`
contains all disk operations.
"""
