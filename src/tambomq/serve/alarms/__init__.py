"""The alarms of ``tambo serve``: measuring memory, disks and queues, and stopping producers."""
