"""Streams the weights of models that are larger than the GPU, at the speed of the link."""

from ullage.runtime.weights.plan import StreamPlan, plan_stream
from ullage.runtime.weights.prediction import StreamPrediction
from ullage.runtime.weights.stream import StreamedModel, stream

__all__ = ["StreamPlan", "StreamPrediction", "StreamedModel", "plan_stream", "stream"]
