"""The gRPC server on Envoy."""
