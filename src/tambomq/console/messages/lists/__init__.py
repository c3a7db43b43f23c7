"""The messages of each protocol in each state, as sources that `pages` reads in bounded parts."""
