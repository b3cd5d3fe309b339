"""The HTTP server of an application.

Requires the extra `server`: starlette and uvicorn.

The server accesses the application only through `backend` and runs on one thread of the driver
(`server_thread`). By default, it listens on the loopback address only, and requires a token. A
request passes these steps:

1. Connection (`http_protocol`): uvicorn's protocol, with limits on the number of connections and on
   the time for the TLS handshake, for sending a request head, and for reading a response.
2. Validation (`asgi_app`): token, path, parameters, body. Paths are matched byte by byte against a
   table of endpoints (`request_routing`). The OpenAPI document is generated from the same table
   (`openapi`, `schemas`).
3. Response (`routes`), on one of a fixed number of threads (`request_threads`). Requests of other
   instances have their own threads, so that two instances that query each other never block.
4. Encoding (`json_codec`, `responses`): keys and values as JSON. Each page (`paged_answers`) has a
   cursor with the position of its last entry, so the server keeps no state between pages.

Invalid requests raise `HttpError`, which ends the request with an error response.

The folder `console` contains the console. Each view is a function from the document to a tree of
elements; `dom.js` updates the page only where it differs from the tree, which preserves focus and
scroll positions. `graph_layout.js` lays out the topology independently of the page; `viewport.js`
pans and zooms it. The console has no build step and no framework, and its content security policy
forbids all external resources.
"""
