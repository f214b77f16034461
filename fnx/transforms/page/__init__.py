"""A local web page on a jitted function: passes, graphs, kernels, memory, source.

page_data.py answers with JSON what the page (page.html, app.js, graph.js) asks for; layout.py draws
graphs; server.py serves requests that carry the page's token, and pending_connections.py limits the
others. ``FNX_VIZ=1`` (global_page.py) serves all functions of a process.
"""
