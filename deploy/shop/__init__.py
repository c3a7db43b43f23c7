"""A small application, so that the files of this folder can be tried as they are."""
