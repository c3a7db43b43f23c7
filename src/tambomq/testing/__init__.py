"""The test kit: a pytest plugin with a server for tests, and assertions about queues of jobs."""
