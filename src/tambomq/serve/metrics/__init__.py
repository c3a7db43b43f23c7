"""The metrics of ``tambo serve``: the page, and the numbers of queues."""
