"""The state directory on the disk of a host, and its locks.

`state_directory` is the directory of an application, `client_folder` the folder of one of several
drivers on a host, with its process id, and `locked_directory` the directory of a task. `file_lock`
locks them, `checkpoint` is the file with offsets, and `disk` contains all disk operations.
"""
