"""Alert rules and a dashboard for the metrics of the library, of dra-agent and of checkpoint-verify; see README.md."""
