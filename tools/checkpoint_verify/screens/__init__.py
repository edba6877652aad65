"""Output: for people on a terminal or in a pipe, for programs as JSON, for node_exporter as metrics."""
