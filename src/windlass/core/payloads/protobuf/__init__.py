"""Protobuf messages in payloads: their forms in JSON, their schema, the hints that name them."""
