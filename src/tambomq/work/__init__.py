"""``tambo work``: runs the workers of your modules in processes that a supervisor keeps alive."""
