"""How the parts are put together: settings, roles, and the command line."""
