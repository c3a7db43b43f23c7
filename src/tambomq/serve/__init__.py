"""``tambo serve``: one process that runs the components of all protocols."""
