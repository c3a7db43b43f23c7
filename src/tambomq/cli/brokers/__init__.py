"""The commands ``tambo gomq`` and ``tambo kqueue``."""
