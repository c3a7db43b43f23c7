"""A Django project with one job."""
