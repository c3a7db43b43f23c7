"""The parts that all data sources share: options, schemas, columns, paging."""
