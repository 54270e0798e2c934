"""The REST interface of the registry: Confluent's paths, bodies, statuses and error codes."""
