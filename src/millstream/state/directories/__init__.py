"""The state directory on the disk of a host, and its locks.

`state_directory` is the directory of an application, `client_folder` the folder of one of several
drivers on a host and its process id, `locked_directory` the directory of a task. `file_lock` locks
them, `checkpoint` is the file of offsets. `disk` contains all disk operations.
"""
