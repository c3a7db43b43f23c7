"""A worker process of ``tambo work``: loads your modules and runs their workers."""
