"""The role `handlers`: runs operations on resources, one thread for each agent."""
