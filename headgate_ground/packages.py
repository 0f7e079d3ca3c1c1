"""The lists of our packages and of those that a driver runs."""

#: The control plane's, as installed.
SERVER = ("installation", "queries", "listeners", "controlplane", "headgate_server")
#: Those that drivers run: all of our code that is visible inside their isolation.
DRIVER = ("queries", "listeners", "headgate_ground", "headgate_async")
#: All of them.
OURS = tuple(dict.fromkeys((*SERVER, *DRIVER)))
