"""The programs of the chaos suite: what senders, workers and servers of each protocol run."""
