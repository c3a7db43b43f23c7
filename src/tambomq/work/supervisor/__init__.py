"""The supervisor of ``tambo work``: starts worker processes, and never imports your modules."""
