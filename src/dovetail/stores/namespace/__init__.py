"""A namespace whose queues are spread over several shared logs: one store of stores/shared for each log that this node serves."""
