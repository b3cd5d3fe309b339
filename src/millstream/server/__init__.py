"""What an application answers over HTTP. Needs the extra `server`: starlette and uvicorn.

The server knows the application as `Served` only, and runs on one thread of the driver. Nothing of
it listens beyond this machine, or answers without the token, unless it was told to.
"""
