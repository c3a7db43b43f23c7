"""The GOMQ service and its gRPC server."""
