"""Where state lies on the disk of a host, and who may use it.

`state_directory` is the directory of an application, `client_folder` that of one of several drivers
on a host, `locked_directory` that of a task. `file_lock` and `own_file` lock them, `checkpoint` is
the file of offsets. `disk` is all that any of them does to the disk.
"""
