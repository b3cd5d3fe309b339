"""The HTTP server of an application. Requires the extra `server`: starlette and uvicorn.

The server accesses the application only through `backend` and runs on one thread of the driver
(`server_thread`). By default, it listens on the loopback address only, and requires a token. A
request passes these steps:

1. Connection (`http_protocol`): uvicorn's, with limits on the number of connections and on the time
   to send a request head, to read a response, and for the TLS handshake.
2. Validation (`asgi_app`): token, path, parameters, body. Paths are matched byte by byte with a
   table of endpoints (`request_routing`), from which `openapi` and `schemas` make the document.
3. Response (`routes`), on one of a fixed number of threads (`request_threads`). Requests of other
   instances have their own threads, so that two instances that query each other never block.
4. Encoding (`json_codec`, `responses`): keys and values as JSON. A page (`paged_answers`) ends with
   a cursor that contains the last entry; the server keeps no state.

Invalid requests raise `HttpError`, which ends the request with an error response.

The folder `console` contains the console: each view is a function from the document to a tree of
elements, and `dom.js` changes the page where they differ, so that focus and scrolling stay.
`graph_layout.js` lays out the topology independently of the page; `viewport.js` pans and zooms it.
There is no build step and no framework; a policy forbids all external resources.
"""
