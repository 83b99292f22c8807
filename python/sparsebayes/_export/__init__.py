"""Fitted models for services: model files, ONNX graphs, C headers."""
